//! `gleaner.workload/1` on the page: what the built-in programs got done, and how long their requests took.

use super::DrawError;
use super::chart::{Axis, GRID, Look, MUTED, Row, SERIES, Scale, Shape, axis_time, rows, rows_height};
use super::figure::Figure;
use super::section::{Section, Table};
use crate::text::{count, duration};
use crate::{LatencyReport, WorkloadReport};
use maud::html;

const QUANTILES: [(&str, Look); 5] = [
    ("p50", Look { colour: SERIES[0], shape: Shape::Circle }),
    ("p90", Look { colour: SERIES[2], shape: Shape::Square }),
    ("p99", Look { colour: SERIES[1], shape: Shape::Triangle }),
    ("p99.9", Look { colour: SERIES[3], shape: Shape::Diamond }),
    ("largest", Look { colour: MUTED, shape: Shape::Ring }),
];

/// One section for all of them.
pub(super) fn section(reports: &[&WorkloadReport]) -> Result<Option<Section>, DrawError> {
    let [first, ..] = reports else { return Ok(None) };
    let heading = if reports.len() == 1 { format!("workload {}", first.name) } else { "built-in workloads".to_owned() };
    let mut section = Section::new(heading);
    for report in reports {
        section.summary.push(html! {
            (report.name) " with " (count(report.threads_total, "thread")) " finished " (count(report.items, "item"))
            " in " (duration(Some(report.wall_ns))) ": "
            span.verdict { (format!("{:.1}", report.items_per_second)) " items/s" }
            @if let Some(latency) = report.latency {
                "; requests took " (duration(Some(latency.p50_ns))) " (p99 " (duration(Some(latency.p99_ns))) ")"
            }
            @if let Some(errors) = report.errors.filter(|errors| *errors > 0) {
                "; " span.hurts { (count(errors, "request")) " failed" }
            }
            "."
        });
    }
    let latencies = latencies(reports);
    if !latencies.is_empty() {
        section.figures.push(figure(&latencies)?);
        section.tables.push(latency_table(&latencies));
    }
    section.tables.insert(0, table(reports));
    section.terms = vec!["computation granularity"];
    Ok(Some(section))
}

/// Every distribution with its name; the number tells apart what has the same one.
fn latencies(reports: &[&WorkloadReport]) -> Vec<(String, LatencyReport)> {
    let several = reports.len() > 1;
    let each = (1..).zip(reports).flat_map(|(number, report)| {
        let name = if several { format!("{number}: {}", report.name) } else { report.name.clone() };
        let sides = [(name.clone(), report.latency), (format!("{name}, sent late"), report.send_delay)];
        sides.into_iter().filter_map(|(name, latency)| latency.map(|latency| (name, latency)))
    });
    each.collect()
}

fn times(latency: &LatencyReport) -> [u64; 5] {
    [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns]
}

fn figure(latencies: &[(String, LatencyReport)]) -> Result<Figure, DrawError> {
    let row = |(name, latency): &(String, LatencyReport)| {
        let times = times(latency).map(|ns| ns as f64);
        let marks = times.into_iter().zip(QUANTILES).map(|(ns, (_, look))| (ns, look)).collect();
        Row { label: name.clone(), range: Some((times[0], times[4], GRID)), marks, note: String::new() }
    };
    let lines: Vec<Row> = latencies.iter().map(row).collect();
    let told: Vec<String> = latencies.iter().map(|(name, latency)| format!("{name}: {latency}")).collect();
    let scale = Scale::log(latencies.iter().flat_map(|(_, latency)| times(latency)).map(|ns| ns as f64));
    Figure::draw(
        "How long requests took",
        told.join("; "),
        "Each row is one run: half of the requests were answered before p50, all but one in a hundred before p99. \
         Where a client sends at a fixed rate, latency counts from when a request was due; \"sent late\" is the part \
         of it that the client itself was late.",
        rows_height(lines.len()),
        |canvas| {
            canvas.legend(&QUANTILES.map(|(words, look)| (look, words)))?;
            rows(canvas, Axis { scale: scale.clone(), name: "latency (logarithmic)", label: &axis_time }, &lines, None)
        },
    )
}

fn latency_table(latencies: &[(String, LatencyReport)]) -> Table {
    let mut table =
        Table::new("Latency of requests", &["workload", "requests", "p50", "p90", "p99", "p99.9", "largest"]);
    for (name, latency) in latencies {
        let mut row = vec![name.clone(), latency.n.to_string()];
        row.extend(times(latency).map(|ns| duration(Some(ns))));
        table.rows.push(row);
    }
    table
}

fn table(reports: &[&WorkloadReport]) -> Table {
    let mut table = Table::new(
        "What was done",
        &[
            "no.",
            "workload",
            "threads",
            "granularity",
            "items",
            "time",
            "items/s",
            "CPU time",
            "voluntary switches",
            "involuntary",
            "ended by",
            "checksum",
        ],
    );
    table.words = vec![1, 10, 11];
    for (number, report) in (1..).zip(reports) {
        table.rows.push(vec![
            format!("{number}"),
            report.name.clone(),
            report.threads_total.to_string(),
            duration(Some(report.granularity_ns)),
            report.items.to_string(),
            duration(Some(report.wall_ns)),
            format!("{:.1}", report.items_per_second),
            duration(Some(report.cpu_time_ns)),
            report.voluntary_switches.to_string(),
            report.involuntary_switches.to_string(),
            report.ended_by.clone(),
            report.checksum.clone(),
        ]);
    }
    table
}
