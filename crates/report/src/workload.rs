//! `gleaner.workload/1`: what one of the built-in programs did.

use crate::show::{Axis, Bar, Chart, Document, Part, Row, Shown, bad, line, quantile, table};
use crate::text::{count, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner workload NAME` did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadReport {
    pub schema: String,
    pub name: String,
    /// As asked for; each program says what it counts.
    pub threads: u64,
    pub threads_total: u64,
    /// Computation between two synchronization points, nominally: turns of the loop at a fixed number to the
    /// microsecond.
    pub granularity_ns: u64,
    /// The same in turns of the loop, which is what is fixed.
    pub granularity_iterations: u64,
    /// Where its data came from.
    pub seed: u64,
    pub items: u64,
    /// From the moment all threads were there to the end of the last one.
    pub wall_ns: u64,
    pub items_per_second: f64,
    /// Sixteen hexadecimal digits: the same for the same program, items, seed and granularity (of some programs: and
    /// threads).
    pub checksum: String,
    /// `items`, `time`, or `signal`.
    pub ended_by: String,
    /// How long requests took; of `spin-lock`, how long the lock was waited for; null where the program has neither.
    pub latency: Option<LatencyReport>,
    /// How long the lock of `spin-lock` was held at a time; null elsewhere.
    pub holding: Option<LatencyReport>,
    /// How late the open-loop client sent its requests, which is a part of `latency`; null elsewhere.
    pub send_delay: Option<LatencyReport>,
    /// Requests that failed; null where none can.
    pub errors: Option<u64>,
    /// Switches by threads that waited.
    pub voluntary_switches: u64,
    /// Switches by threads whose CPU was taken.
    pub involuntary_switches: u64,
    /// User and system time of all threads.
    pub cpu_time_ns: u64,
}

/// A distribution of latencies, to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// Requests.
    pub n: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl LatencyReport {
    fn times(&self) -> [(&'static str, u64); 5] {
        let Self { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = *self;
        [("p50", p50_ns), ("p90", p90_ns), ("p99", p99_ns), ("p99.9", p999_ns), ("max", max_ns)]
    }
}

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.times().map(|(name, ns)| format!("{name} {}", time(ns))).join(", "))
    }
}

/// What the page explains.
const TERMS: &[&str] = &["computation granularity"];

impl Shown for WorkloadReport {
    fn document(&self) -> Document {
        document(&[self]).unwrap_or_default()
    }
}

/// One document for all of them.
pub(crate) fn document(reports: &[&WorkloadReport]) -> Option<Document> {
    let first = reports.first()?;
    let heading = if reports.len() == 1 { format!("workload {}", first.name) } else { "built-in workloads".to_owned() };
    let mut document = Document { terms: TERMS, ..Document::new(heading) };
    document.both(reports.iter().flat_map(|report| report.done()));
    document.words(first.how().map(line));
    document.page(table("What was done", (1..).zip(reports).map(|(number, report)| report.cells(number))));
    let latencies = latencies(reports);
    if !latencies.is_empty() {
        document.page(chart(&latencies));
        let row = |(name, latency): &(String, LatencyReport)| {
            let row = Row::default().text("workload", name).number("requests", latency.n);
            latency.times().into_iter().fold(row, |row, (name, ns)| row.time(name, ns))
        };
        document.page(table("Latency of requests", latencies.iter().map(row)));
    }
    Some(document)
}

/// Every distribution with its name; the number tells apart what has the same one.
fn latencies(reports: &[&WorkloadReport]) -> Vec<(String, LatencyReport)> {
    let each = (1..).zip(reports).flat_map(|(number, report)| {
        let name = if reports.len() > 1 { format!("{number}: {}", report.name) } else { report.name.clone() };
        let sides = [(name.clone(), report.latency), (format!("{name}, sent late"), report.send_delay)];
        sides.into_iter().filter_map(|(name, latency)| latency.map(|latency| (name, latency)))
    });
    each.collect()
}

fn chart(latencies: &[(String, LatencyReport)]) -> Chart {
    let bar = |(name, latency): &(String, LatencyReport)| {
        Bar::of(name, latency.times().map(|(name, ns)| quantile(name, ns)).into())
    };
    Chart::rows(
        "How long requests took",
        "Each row is one run: half of the requests were answered before p50, all but one in a hundred before p99. \
         Where a client sends at a fixed rate, latency counts from when a request was due; \"sent late\" is the part \
         of it that the client itself was late.",
        Axis::times("latency"),
        latencies.iter().map(bar).collect(),
    )
}

impl WorkloadReport {
    /// What was done, and how long requests took.
    fn done(&self) -> impl Iterator<Item = Part> {
        let (items, wall) = (count(self.items, "item"), time(self.wall_ns));
        let lines = [
            Some(line(format!("{}: {items} in {wall}, {:.1} items/s", self.name, self.items_per_second))),
            self.latency.map(|latency| line(format!("latency: {latency}"))),
            self.holding.map(|holding| line(format!("holding: {holding}"))),
            self.send_delay.map(|delay| line(format!("of which sent late: {delay}"))),
            self.errors.map(|errors| if errors > 0 { bad(format!("errors: {errors}")) } else { line("errors: 0") }),
        ];
        lines.into_iter().flatten()
    }

    fn how(&self) -> [String; 2] {
        let Self { threads, granularity_iterations, checksum, voluntary_switches, involuntary_switches, .. } = self;
        let (all, granularity) = (count(self.threads_total, "thread"), time(self.granularity_ns));
        let cpu_time = time(self.cpu_time_ns);
        [
            format!(
                "{all} (--threads {threads}), granularity {granularity} ({granularity_iterations} iterations), checksum \
                 {checksum}"
            ),
            format!(
                "CPU time {cpu_time}; {voluntary_switches} voluntary and {involuntary_switches} involuntary context \
                 switches"
            ),
        ]
    }

    fn cells(&self, number: u64) -> Row {
        Row::default()
            .number("no.", number)
            .text("workload", &self.name)
            .number("threads", self.threads_total)
            .time("granularity", self.granularity_ns)
            .number("items", self.items)
            .time("time", self.wall_ns)
            .fixed("items/s", self.items_per_second, 1)
            .time("CPU time", self.cpu_time_ns)
            .number("voluntary switches", self.voluntary_switches)
            .number("involuntary", self.involuntary_switches)
            .text("ended by", &self.ended_by)
            .text("checksum", &self.checksum)
    }
}
