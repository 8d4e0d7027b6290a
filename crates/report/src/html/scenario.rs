//! `gleaner.scenario/1` on the page: virtual machines beside one another, policies against `off`.

use super::answer::{self, Answer, Ratio, Verdict};
use super::chart::{Axis, Look, Row, Scale, axis_time, rows, rows_height};
use super::figure::Figure;
use super::forest::{self, Estimate, Words};
use super::section::{Section, Table};
use super::{DrawError, probe};
use crate::text::{count, duration};
use crate::{RatioSpread, ScenarioReport, ScenarioRow};
use maud::{Markup, html};

/// Clear differences told at the top of the page.
const MOST_TOLD: usize = 12;
/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;

pub(super) fn section(report: &ScenarioReport) -> Result<Section, DrawError> {
    let mut section = Section::new(format!("scenario {}", report.name));
    section.answers = answers(report);
    section.summary = told(report);
    for ratio in &RATIOS {
        section.figures.extend(figures(report, ratio)?);
    }
    section.figures.extend(latency_figure(report)?);
    section.tables = vec![summary_table(report), runs_table(report), vms_table(report)];
    section.tables.retain(|table| !table.rows.is_empty());
    section.terms = vec!["policy", "vCPU", "steal", "retained", "contention guard", "halt"];
    section.notes = report
        .runs
        .iter()
        .filter(|run| !run.left_behind.is_empty())
        .map(|run| {
            format!(
                "round {}, {} under {}, left behind: {}",
                run.round,
                run.workload,
                run.policy,
                run.left_behind.join(", ")
            )
        })
        .collect();
    let host = &report.host;
    section.facts = vec![
        (
            "host".into(),
            format!("{} CPUs, Linux {}, QEMU {} with {}", host.cpus, host.kernel, host.qemu, host.accelerator),
        ),
        ("begun".into(), host.date.clone()),
    ];
    if host.accelerator == "tcg" {
        section.notes.push(
            "The machines were emulated (tcg): ratios say something, times do not, and guests see no steal.".to_owned(),
        );
    }
    Ok(section)
}

fn told(report: &ScenarioReport) -> Vec<Markup> {
    let failed: u64 = report.summary.iter().map(|row| row.failed).sum();
    let vms: Vec<String> = report
        .vms
        .iter()
        .map(|vm| format!("{} ({}, {})", vm.vm, vm.role, count(u64::from(vm.vcpus), "vCPU")))
        .collect();
    let mut told = vec![
        html! { (report.description) },
        html! {
            "Virtual machines " (vms.join(", ")) " ran on a host with " (count(u64::from(report.host.cpus), "CPU"))
            " (" (report.host.accelerator) "); "
            (count(report.runs.iter().filter(|run| !run.warmup).count() as u64, "run")) " count."
        },
    ];
    let of = |verdict| report.summary.iter().filter(|row| verdict_of(row) == Some(verdict)).count();
    let clear = of(Verdict::Helps) + of(Verdict::Hurts);
    if clear > MOST_TOLD {
        let more = (clear - MOST_TOLD) as u64;
        told.push(html! { "And " (count(more, "other clear difference")) ": the figures have them all." });
    }
    for (verdict, words) in
        [(Verdict::NoDifference, "showed no difference"), (Verdict::Inconclusive, "told nothing: inconclusive")]
    {
        let n = of(verdict) as u64;
        if n > 0 {
            told.push(html! { (count(n, "other comparison")) " with off " (words) "." });
        }
    }
    if failed > 0 {
        told.push(html! { span.hurts { (count(failed, "run")) " failed." } });
    }
    let left: usize = report.runs.iter().filter(|run| !run.left_behind.is_empty()).count();
    if left > 0 {
        told.push(html! {
            span.hurts { (count(left as u64, "run")) " left something behind in the machine: see the notes." }
        });
    }
    if let Some(why) = &report.incomplete {
        told.push(html! { span.hurts { "Incomplete: " (why) } });
    }
    told
}

fn verdict_of(row: &ScenarioRow) -> Option<Verdict> {
    row.speedup.map(|spread| Verdict::of(spread.into()))
}

/// The clear differences: the others are counted in the summary and drawn.
fn answers(report: &ScenarioReport) -> Vec<Answer> {
    let clear = |row: &&ScenarioRow| matches!(verdict_of(row), Some(Verdict::Helps | Verdict::Hurts));
    report.summary.iter().filter(clear).take(MOST_TOLD).filter_map(answer).collect()
}

fn answer(row: &ScenarioRow) -> Option<Answer> {
    let verdict = verdict_of(row)?;
    let speedup = row.speedup.map(|spread| answer::told(spread.into())).unwrap_or_default();
    Some(Answer {
        of: format!("{} ({}), {}", row.workload, row.background, row.policy),
        verdict,
        told: html! {
            "policy " (row.policy)
            @if let Some(base) = &row.baseline { " in " (row.vm) ", against off in " (base) "," }
            " " (verdict.name()) ", speedup " (speedup) "."
        },
        speedup: row.speedup.map(Ratio::from),
    })
}

/// A ratio of the summary and its words.
struct Compared {
    of: fn(&ScenarioRow) -> Option<RatioSpread>,
    title: &'static str,
    axis: &'static str,
    one: Option<&'static str>,
    caption: &'static str,
}

const RATIOS: [Compared; 4] = [
    Compared {
        of: |row| row.speedup,
        title: "speedup by policy against off",
        axis: "speedup (off / policy; above 1 is better)",
        one: Some("1: as with off"),
        caption: "Each mark is a policy's speedup over off, the median of pairs of runs in the same round; the bar is \
                  its 95 % interval. Right of 1 it is faster.",
    },
    Compared {
        of: |row| row.neighbour_speedup,
        title: "what the neighbours got done, against off",
        axis: "neighbours' throughput (policy / off; above 1 is better)",
        one: Some("1: as with off"),
        caption: "What the other virtual machines got done meanwhile: left of 1 the policy took something from its \
                  neighbours.",
    },
    Compared {
        of: |row| row.system_throughput,
        title: "system throughput, against off",
        axis: "average of both speedups (above 1 is better)",
        one: Some("1: as with off"),
        caption: "The average of the measured machine's speedup and its neighbours', round by round: right of 1 the \
                  policy gained more than it took.",
    },
    Compared {
        of: |row| row.weighted_speedup,
        title: "weighted speedup: what all machines got done together",
        axis: "weighted speedup (sum of shares of what each does alone)",
        one: None,
        caption: "The sum, over the measured machine and its neighbours, of what each got done relative to what it \
                  gets done alone: higher is better, and as many as there are machines means that none notices the \
                  others.",
    },
];

/// One figure for each machine and background; long ones in parts.
fn figures(report: &ScenarioReport, ratio: &Compared) -> Result<Vec<Figure>, DrawError> {
    let mut policies: Vec<&str> = Vec::new();
    for row in &report.summary {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let look = |policy: &str| Look::nth(policies.iter().position(|known| *known == policy).unwrap_or(0));
    let mut figures = Vec::new();
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for row in &report.summary {
        if !cases.contains(&(&row.vm, &row.background)) {
            cases.push((&row.vm, &row.background));
        }
    }
    for (vm, background) in cases {
        let estimates: Vec<(Estimate, &str)> = report
            .summary
            .iter()
            .filter(|row| (row.vm.as_str(), row.background.as_str()) == (vm, background))
            .filter_map(|row| {
                let spread = (ratio.of)(row)?;
                let label = format!("{}, {}", row.workload, row.policy);
                let estimate = Estimate { label, median: spread.median, ci95: spread.ci95, look: look(&row.policy) };
                Some((estimate, row.policy.as_str()))
            })
            .collect();
        for part in estimates.chunks(MOST_ROWS) {
            let shown = policies.iter().filter(|policy| part.iter().any(|(_, of)| of == *policy));
            let words = Words {
                title: format!("{vm}, {background}: {}", ratio.title),
                caption: ratio.caption.to_owned(),
                axis: ratio.axis,
                one: ratio.one,
                legend: shown.map(|policy| (look(policy), *policy)).collect(),
            };
            let part: Vec<Estimate> = part.iter().map(|(estimate, _)| estimate.clone()).collect();
            figures.push(forest::figure(words, &part)?);
        }
    }
    Ok(figures)
}

/// The latencies that workloads gave of themselves: a row for each workload, background and policy, marks for each run.
fn latency_figure(report: &ScenarioReport) -> Result<Option<Figure>, DrawError> {
    let looks = [probe::QUANTILES[0], probe::QUANTILES[2]];
    let mut lines: Vec<Row> = Vec::new();
    for run in report.runs.iter().filter(|run| !run.warmup) {
        let Some(latency) = run.latency else { continue };
        let busy = run.background.iter().filter(|other| other.workload != "nothing");
        let beside: Vec<String> = busy.map(|other| format!("{}: {}", other.vm, other.workload)).collect();
        let beside = if beside.is_empty() { "alone".to_owned() } else { beside.join(", ") };
        let label = format!("{}, {beside}, {}", run.workload, run.policy);
        let marks = [(latency.p50_ns as f64, looks[0].1), (latency.p99_ns as f64, looks[1].1)];
        match lines.iter_mut().find(|row| row.label == label) {
            Some(row) => row.marks.extend(marks),
            None => lines.push(Row { label, marks: marks.into(), ..Row::default() }),
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    lines.sort_by(|a, b| a.label.cmp(&b.label));
    let left_out = lines.len().saturating_sub(MOST_ROWS);
    lines.truncate(MOST_ROWS);
    let cut = if left_out > 0 { format!(" {} not drawn.", count(left_out as u64, "row")) } else { String::new() };
    let scale = Scale::log(lines.iter().flat_map(|row| row.marks.iter().map(|(ns, _)| *ns)));
    let told: Vec<&str> = lines.iter().map(|row| row.label.as_str()).collect();
    let figure = Figure::draw(
        format!("{}: latency of requests, run by run", report.name),
        format!("Median and 99th percentile of each run for: {}", told.join("; ")),
        format!(
            "Each run has two marks: its median and its 99th percentile. Further left is sooner; the scale is \
             logarithmic.{cut}"
        ),
        rows_height(lines.len()),
        |canvas| {
            canvas.legend(&looks.map(|(words, look)| (look, words)))?;
            rows(canvas, Axis { scale: scale.clone(), name: "latency (logarithmic)", label: &axis_time }, &lines, None)
        },
    )?;
    Ok(Some(figure))
}

fn summary_table(report: &ScenarioReport) -> Table {
    let mut table = Table::new(
        "Per machine, workload, background and policy (warm-up and failed runs left out; 95 % intervals in brackets)",
        &[
            "machine",
            "workload",
            "background",
            "slice",
            "policy",
            "runs",
            "failed",
            "time, median",
            "items/s, median",
            "speedup",
            "neighbours",
            "system throughput",
            "weighted speedup",
            "by slice",
        ],
    );
    table.words = vec![1, 2, 3, 4];
    let ratio = |spread: Option<RatioSpread>| {
        spread.map_or_else(|| "-".to_owned(), |spread| forest::told(spread.median, spread.ci95))
    };
    for row in &report.summary {
        table.rows.push(vec![
            row.vm.clone(),
            row.workload.clone(),
            row.background.clone(),
            row.slice.clone().unwrap_or_else(|| "-".to_owned()),
            row.policy.clone(),
            row.n.to_string(),
            row.failed.to_string(),
            row.wall_ns_median.map_or_else(|| "-".to_owned(), |ns| gleaner_model::Nanos::from_f64(ns).to_string()),
            row.items_per_second_median.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
            ratio(row.speedup),
            ratio(row.neighbour_speedup),
            ratio(row.system_throughput),
            ratio(row.weighted_speedup),
            ratio(row.slice_speedup),
        ]);
    }
    table
}

fn runs_table(report: &ScenarioReport) -> Table {
    let mut table = Table::new(
        "Every run",
        &[
            "round",
            "machine",
            "workload",
            "policy",
            "time",
            "items/s",
            "status",
            "neighbours' items/s",
            "halts",
            "retained",
            "vCPUs active",
            "guard trips",
        ],
    );
    table.words = vec![1, 2, 3];
    for run in &report.runs {
        let figures = run.run.as_ref();
        let dash = || "-".to_owned();
        let neighbours: Vec<String> = run
            .background
            .iter()
            .filter(|other| other.workload != "nothing")
            .map(|other| other.items_per_second.map_or_else(dash, |rate| format!("{rate:.1}")))
            .collect();
        table.rows.push(vec![
            format!("{}{}", run.round, if run.warmup { " (warm-up)" } else { "" }),
            run.vm.clone(),
            run.workload.clone(),
            run.policy.clone(),
            duration(run.wall_ns),
            run.items_per_second.map_or_else(dash, |rate| format!("{rate:.1}")),
            run.exit_status.to_string(),
            if neighbours.is_empty() { dash() } else { neighbours.join(", ") },
            figures.and_then(|figures| figures.halts).map_or_else(dash, |n| n.to_string()),
            duration(figures.map(|figures| figures.retained_ns)),
            figures.map_or_else(dash, |figures| format!("{:.2}", figures.active_vcpus_mean)),
            figures.map_or_else(dash, |figures| figures.guard_trips.to_string()),
        ]);
    }
    table.folded = table.rows.len() > 12;
    table
}

fn vms_table(report: &ScenarioReport) -> Table {
    let mut table = Table::new(
        "The virtual machines",
        &["machine", "role", "vCPUs", "kernel", "booted in", "time-out, balanced", "time-out, frugal"],
    );
    table.words = vec![1, 3];
    for vm in &report.vms {
        table.rows.push(vec![
            vm.vm.clone(),
            vm.role.clone(),
            vm.vcpus.to_string(),
            vm.kernel.clone(),
            duration(Some(vm.boot_ns)),
            duration(vm.balanced_ns),
            duration(vm.frugal_ns),
        ]);
    }
    table
}
