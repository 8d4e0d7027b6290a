//! What `gleaner.scenario/1` shows: virtual machines beside one another, policies against `off`.

use super::{RatioSpread, ScenarioReport, ScenarioRow, ScenarioRun, in_turn};
use gleaner_report::show::{
    Answer, Axis, Bar, Chart, Document, Extent, Mark, Part, Row, Shown, Verdict, bad, fact, line, nth, number,
    quantile, table,
};
use gleaner_report::text::{count, distinct, fixed, interval, known, mean_time};
use std::collections::BTreeSet;

/// Clear differences told at the top of the page.
const MOST_TOLD: usize = 12;
/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;

/// What the page explains.
const TERMS: &[&str] = &["policy", "vCPU", "steal", "retained", "contention guard", "halt"];

impl Shown for ScenarioReport {
    fn document(&self) -> Document {
        let mut document =
            Document { answers: self.answers(), terms: TERMS, ..Document::new(format!("scenario {}", self.name)) };
        let counted = self.runs.iter().filter(|run| !run.warmup).map(|run| run.round);
        let in_turn = self.in_turn.iter().filter(|run| !run.warmup).map(|run| run.round);
        let rounds = counted.chain(in_turn).collect::<BTreeSet<u32>>().len();
        document.both([
            line(format!("{}: {}", self.name, self.description)),
            line(format!("{}, {}", self.machines(), count(rounds as u64, "round"))),
        ]);
        document.page(self.told());
        for ratio in &RATIOS {
            document.page(self.ratio_charts(ratio).map(Part::from));
        }
        document.page(self.latency_chart().map(Part::from));
        let title = "Per machine, workload, background and policy (warm-up and failed runs left out; 95 % intervals in \
                     brackets)";
        if self.in_turn.is_empty() {
            document.both(table(title, self.summary.iter().map(ScenarioRow::cells)));
            document.words(self.how_to_read().into_iter().map(line));
        } else {
            document.both(in_turn::parts(&self.in_turn));
        }
        document.both(self.incomplete.as_ref().map(|why| bad(format!("INCOMPLETE: {why}"))));
        document.page(table("Every run", self.runs.iter().map(ScenarioRun::cells)).map(|part| part.folded(12)));
        document.page(self.vms_table());
        document.page(self.notes().map(Part::Note));
        let host = &self.host;
        document.page([
            fact(
                "host",
                format!("{} CPUs, Linux {}, QEMU {} with {}", host.cpus, host.kernel, host.qemu, host.accelerator),
            ),
            fact("begun", &host.date),
        ]);
        document
    }
}

impl ScenarioReport {
    /// Guests and host, each with its kernel.
    fn machines(&self) -> String {
        let kernels: BTreeSet<&str> =
            self.vms.iter().map(|vm| &*vm.kernel).filter(|kernel| !kernel.is_empty()).collect();
        let kernels: Vec<String> = kernels.into_iter().map(|kernel| format!("Linux {kernel}")).collect();
        let guests = if kernels.is_empty() { String::new() } else { format!(" ({})", kernels.join(", ")) };
        let (vms, host) = (count(self.vms.len() as u64, "VM"), &self.host);
        let cpus = count(u64::from(host.cpus), "CPU");
        format!("{vms}{guests} on a host with {cpus} ({}, Linux {})", host.accelerator, host.kernel)
    }

    /// What the table's columns mean.
    fn how_to_read(&self) -> Vec<String> {
        let mut lines = vec![
            "speedup: against off in the same round, above 1 is better, [95 % interval]. neighbour: the same of its \
             throughput."
                .to_owned(),
        ];
        let bases: BTreeSet<(&str, &str)> =
            self.summary.iter().filter_map(|row| Some((&*row.vm, row.baseline.as_deref()?))).collect();
        lines.extend(
            bases
                .into_iter()
                .map(|(vm, base)| format!("speedup, neighbour and system of VM {vm} are against off in VM {base}.")),
        );
        lines.push("system: the average of speedup and neighbour in a round; off has 1.".to_owned());
        lines.push(
            "weighted: what each VM gets done here relative to alone, summed; alone is taken as exact.".to_owned(),
        );
        if self.summary.iter().any(|row| row.slice_speedup.is_some()) {
            lines.push("by slice: against the scenario's first slice in the same round and policy.".to_owned());
        }
        lines
    }

    /// What the page says first.
    fn told(&self) -> Vec<Part> {
        let mut told = Vec::new();
        let of = |verdict| self.summary.iter().filter(|row| row.verdict() == Some(verdict)).count() as u64;
        let more = (of(Verdict::Helps) + of(Verdict::Hurts)).saturating_sub(MOST_TOLD as u64);
        if more > 0 {
            told.push(line(format!("And {}: the figures have them all.", count(more, "other clear difference"))));
        }
        for (n, words) in [
            (of(Verdict::NoDifference), "showed no difference"),
            (of(Verdict::Inconclusive), "told nothing: inconclusive"),
        ] {
            told.extend((n > 0).then(|| line(format!("{} with off {words}.", count(n, "other comparison")))));
        }
        let failed: u64 = self.summary.iter().map(|row| row.failed).sum();
        told.extend((failed > 0).then(|| bad(format!("{} failed.", count(failed, "run")))));
        let left = count(self.runs.iter().filter(|run| !run.left_behind.is_empty()).count() as u64, "run");
        if left != "0 runs" {
            told.push(bad(format!("{left} left something behind in the machine: see the notes.")));
        }
        told
    }

    /// The clear differences: the others are counted and drawn.
    fn answers(&self) -> Vec<Answer> {
        let clear = |row: &&ScenarioRow| matches!(row.verdict(), Some(Verdict::Helps | Verdict::Hurts));
        let answer = |row: &ScenarioRow| {
            let (verdict, RatioSpread { median, ci95, .. }) = (row.verdict()?, row.speedup?);
            let base = row.baseline.as_ref().map(|base| format!(" in {}, against off in {base},", row.vm));
            Some(Answer {
                of: format!("{} ({}), {}", row.workload, row.background, row.policy),
                verdict,
                told: format!(
                    "policy {}{} {}, speedup {}.",
                    row.policy,
                    base.unwrap_or_default(),
                    verdict.name(),
                    interval(median, ci95)
                ),
                bad: None,
                speedup: Some((median, ci95)),
            })
        };
        self.summary.iter().filter(clear).take(MOST_TOLD).filter_map(answer).collect()
    }

    /// One chart for each machine and background; long ones in parts.
    fn ratio_charts<'a>(&'a self, ratio: &'a Ratio) -> impl Iterator<Item = Chart> + 'a {
        let policies = distinct(self.summary.iter().map(|row| row.policy.as_str()));
        let cases = distinct(self.summary.iter().map(|row| (row.vm.as_str(), row.background.as_str())));
        cases.into_iter().flat_map(move |(vm, background)| {
            let of_case = |row: &&ScenarioRow| (row.vm.as_str(), row.background.as_str()) == (vm, background);
            let bar = |row: &ScenarioRow| {
                let spread = (ratio.of)(row)?;
                let place = policies.iter().position(|known| *known == row.policy).unwrap_or(0);
                let mark = Mark::new(spread.median, &row.policy, nth(place));
                Some(Bar::ratio(format!("{}, {}", row.workload, row.policy), mark, spread.ci95))
            };
            let bars: Vec<Bar> = self.summary.iter().filter(of_case).filter_map(bar).collect();
            let title = format!("{vm}, {background}: {}", ratio.title);
            let chart = |bars: &[Bar]| {
                let extent = if ratio.one.is_some() { Extent::Ratio } else { Extent::FromZero };
                let axis = Axis::new(ratio.axis, number, extent);
                Chart::rows(&title, ratio.caption, axis, bars.to_vec())
                    .at(ratio.one.map(|words| (1.0, words.to_owned())))
            };
            bars.chunks(MOST_ROWS).map(chart).collect::<Vec<Chart>>()
        })
    }

    /// The latencies that workloads gave of themselves: a row for each workload, background and policy, marks for each
    /// run.
    fn latency_chart(&self) -> Option<Chart> {
        let mut bars: Vec<Bar> = Vec::new();
        for run in self.runs.iter().filter(|run| !run.warmup) {
            let Some(latency) = run.latency else { continue };
            let busy = run.background.iter().filter(|other| other.workload != "nothing");
            let beside: Vec<String> = busy.map(|other| format!("{}: {}", other.vm, other.workload)).collect();
            let beside = if beside.is_empty() { "alone".to_owned() } else { beside.join(", ") };
            let label = format!("{}, {beside}, {}", run.workload, run.policy);
            let marks = [quantile("p50", latency.p50_ns), quantile("p99", latency.p99_ns)];
            match bars.iter_mut().find(|bar| bar.label == label) {
                Some(bar) => bar.marks.extend(marks),
                None => bars.push(Bar { range: None, ..Bar::of(label, marks.into()) }),
            }
        }
        bars.sort_by(|a, b| a.label.cmp(&b.label));
        let cut = match bars.len().saturating_sub(MOST_ROWS) as u64 {
            0 => String::new(),
            n => format!(" {} not drawn.", count(n, "row")),
        };
        bars.truncate(MOST_ROWS);
        let caption = format!(
            "Each run has two marks: its median and its 99th percentile. Further left is sooner; the scale is \
             logarithmic.{cut}"
        );
        let title = format!("{}: latency of requests, run by run", self.name);
        (!bars.is_empty()).then(|| Chart::rows(title, caption, Axis::times("latency"), bars))
    }

    fn vms_table(&self) -> Option<Part> {
        let row = |vm: &super::VmFacts| {
            Row::default()
                .text("machine", &vm.vm)
                .text("role", &vm.role)
                .number("vCPUs", vm.vcpus)
                .text("kernel", &vm.kernel)
                .time("booted in", vm.boot_ns)
                .time("time-out, balanced", vm.balanced_ns)
                .time("time-out, frugal", vm.frugal_ns)
        };
        table("The virtual machines", self.vms.iter().map(row))
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        let left = self.runs.iter().filter(|run| !run.left_behind.is_empty()).map(|run| {
            let left = run.left_behind.join(", ");
            format!("round {}, {} under {}, left behind: {left}", run.round, run.workload, run.policy)
        });
        let emulated = "The machines were emulated (tcg): ratios say something, times do not, and guests see no steal.";
        left.chain((self.host.accelerator == "tcg").then(|| emulated.to_owned()))
    }
}

/// A ratio of the summary and its words.
struct Ratio {
    of: fn(&ScenarioRow) -> Option<RatioSpread>,
    title: &'static str,
    axis: &'static str,
    one: Option<&'static str>,
    caption: &'static str,
}

const RATIOS: [Ratio; 4] = [
    Ratio {
        of: |row| row.speedup,
        title: "speedup by policy against off",
        axis: "speedup (off / policy; above 1 is better)",
        one: Some("1: as with off"),
        caption: "Each mark is a policy's speedup over off, the median of pairs of runs in the same round; the bar is \
                  its 95 % interval. Right of 1 it is faster.",
    },
    Ratio {
        of: |row| row.neighbour_speedup,
        title: "what the neighbours got done, against off",
        axis: "neighbours' throughput (policy / off; above 1 is better)",
        one: Some("1: as with off"),
        caption: "What the other virtual machines got done meanwhile: left of 1 the policy took something from its \
                  neighbours.",
    },
    Ratio {
        of: |row| row.system_throughput,
        title: "system throughput, against off",
        axis: "average of both speedups (above 1 is better)",
        one: Some("1: as with off"),
        caption: "The average of the measured machine's speedup and its neighbours', round by round: right of 1 the \
                  policy gained more than it took.",
    },
    Ratio {
        of: |row| row.weighted_speedup,
        title: "weighted speedup: what all machines got done together",
        axis: "weighted speedup (sum of shares of what each does alone)",
        one: None,
        caption: "The sum, over the measured machine and its neighbours, of what each got done relative to what it \
                  gets done alone: higher is better, and as many as there are machines means that none notices the \
                  others.",
    },
];

impl ScenarioRow {
    fn verdict(&self) -> Option<Verdict> {
        self.speedup.map(|spread| Verdict::of(spread.ci95))
    }

    fn cells(&self) -> Row {
        let failed = if self.failed > 0 { format!(" ({} failed)", self.failed) } else { String::new() };
        // A metric of which less is better has no place among items per second.
        let lower = self.metric.filter(|metric| !metric.higher_is_better).map(|metric| metric.median);
        let latency = [self.latency_p50_ns_median, self.latency_p99_ns_median, self.latency_p999_ns_median];
        Row::default()
            .text("VM", &self.vm)
            .text("workload", &self.workload)
            .text("beside", &self.background)
            .text("slice", self.slice.as_ref())
            .filled()
            .text("policy", &self.policy)
            .number("n", format!("{}{failed}", self.n))
            .number("time", mean_time(self.wall_ns_median))
            .fixed("items/s", self.items_per_second_median, 1)
            .fixed("metric (lower is better)", lower, 1)
            .filled()
            .number("p50/p99/p99.9", latency[0].map(|_| latency.map(mean_time).join("/")))
            .filled()
            .number("host CPU", mean_time(self.host_cpu_ns_median))
            .number("speedup", self.speedup)
            .number("by own off", self.own_speedup)
            .filled()
            .number("neighbour", self.neighbour_speedup)
            .number("system", self.system_throughput)
            .number("weighted", self.weighted_speedup)
            .number("by slice", self.slice_speedup)
            .filled()
    }
}

impl ScenarioRun {
    fn cells(&self) -> Row {
        let busy = self.background.iter().filter(|other| other.workload != "nothing");
        let neighbours: Vec<String> = busy.map(|other| fixed(other.items_per_second, 1)).collect();
        let figures = self.run.as_ref();
        Row::default()
            .number("round", format!("{}{}", self.round, if self.warmup { " (warm-up)" } else { "" }))
            .text("machine", &self.vm)
            .text("workload", &self.workload)
            .text("policy", &self.policy)
            .time("time", self.wall_ns)
            .fixed("items/s", self.items_per_second, 1)
            .number("status", self.exit_status)
            .number("neighbours' items/s", known((!neighbours.is_empty()).then(|| neighbours.join(", "))))
            .number("halts", figures.and_then(|run| run.halts))
            .time("retained", figures.map(|run| run.retained_ns))
            .fixed("vCPUs active", figures.map(|run| run.active_vcpus_mean), 2)
            .number("guard trips", figures.map(|run| run.guard_trips))
    }
}
