//! A scenario's result in plain words: one table.

use super::{RatioSpread, ScenarioReport, ScenarioRow};
use crate::text::{count, duration, table};
use std::collections::BTreeSet;
use std::fmt;

pub(super) fn spread(spread: Option<RatioSpread>) -> String {
    match spread {
        None => "-".to_owned(),
        Some(RatioSpread { median, ci95: None, .. }) => format!("{median:.2}"),
        Some(RatioSpread { median, ci95: Some([lo, hi]), .. }) => format!("{median:.2} [{lo:.2}, {hi:.2}]"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| duration(Some(ns.max(0.0) as u64)))
}

/// A metric of which less is better: it has no place among items per second.
fn lower_metric(row: &ScenarioRow) -> Option<f64> {
    row.metric.filter(|metric| !metric.higher_is_better).map(|metric| metric.median)
}

pub(super) fn decimal(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn runs(row: &ScenarioRow) -> String {
    if row.failed > 0 { format!("{} ({} failed)", row.n, row.failed) } else { row.n.to_string() }
}

fn latencies(row: &ScenarioRow) -> String {
    let quantiles = [row.latency_p50_ns_median, row.latency_p99_ns_median, row.latency_p999_ns_median];
    if quantiles[0].is_some() { quantiles.map(time).join("/") } else { "-".to_owned() }
}

/// A column's name, whether it is left out where it would be empty everywhere, and its cell in a row.
type Column = (&'static str, bool, fn(&ScenarioRow) -> String);

const COLUMNS: [Column; 17] = [
    ("VM", false, |row| row.vm.clone()),
    ("workload", false, |row| row.workload.clone()),
    ("beside", false, |row| row.background.clone()),
    ("slice", true, |row| row.slice.clone().unwrap_or_else(|| "-".to_owned())),
    ("policy", false, |row| row.policy.clone()),
    ("n", false, runs),
    ("time", false, |row| time(row.wall_ns_median)),
    ("items/s", false, |row| decimal(row.items_per_second_median)),
    ("metric (lower is better)", true, |row| decimal(lower_metric(row))),
    ("p50/p99/p99.9", true, latencies),
    ("host CPU", false, |row| time(row.host_cpu_ns_median)),
    ("speedup", false, |row| spread(row.speedup)),
    ("by own off", true, |row| spread(row.own_speedup)),
    ("neighbour", false, |row| spread(row.neighbour_speedup)),
    ("system", false, |row| spread(row.system_throughput)),
    ("weighted", false, |row| spread(row.weighted_speedup)),
    ("by slice", true, |row| spread(row.slice_speedup)),
];

/// Guests and host, each with its kernel.
fn machines(report: &ScenarioReport) -> String {
    let kernels: BTreeSet<&str> = report.vms.iter().map(|vm| &*vm.kernel).filter(|kernel| !kernel.is_empty()).collect();
    let kernels: Vec<String> = kernels.into_iter().map(|kernel| format!("Linux {kernel}")).collect();
    let guests = if kernels.is_empty() { String::new() } else { format!(" ({})", kernels.join(", ")) };
    let (vms, host) = (count(report.vms.len() as u64, "VM"), &report.host);
    let cpus = count(u64::from(host.cpus), "CPU");
    format!("{vms}{guests} on a host with {cpus} ({}, Linux {})", host.accelerator, host.kernel)
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_runs = self.runs.iter().filter(|run| !run.warmup).map(|run| run.round);
        let in_turn = self.in_turn.iter().filter(|run| !run.warmup).map(|run| run.round);
        let rounds: BTreeSet<u32> = of_runs.chain(in_turn).collect();
        writeln!(f, "{}: {}", self.name, self.description)?;
        let rounds = count(rounds.len() as u64, "round");
        writeln!(f, "{}, {rounds}", machines(self))?;
        if !self.in_turn.is_empty() {
            super::in_turn::write(f, &self.in_turn)?;
            return self.incomplete.as_ref().map_or(Ok(()), |why| writeln!(f, "INCOMPLETE: {why}"));
        }
        let filled = |(_, optional, cell): &Column| !optional || self.summary.iter().any(|row| cell(row) != "-");
        let columns: Vec<Column> = COLUMNS.into_iter().filter(filled).collect();
        let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
        let mut table = table(&names);
        for row in &self.summary {
            table.add_row(columns.iter().map(|(.., cell)| cell(row)));
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "speedup: against off in the same round, above 1 is better, [95 % interval]. neighbour: the same of its \
             throughput."
        )?;
        let bases: BTreeSet<(&str, &str)> =
            self.summary.iter().filter_map(|row| Some((&*row.vm, row.baseline.as_deref()?))).collect();
        for (vm, base) in bases {
            writeln!(f, "speedup, neighbour and system of VM {vm} are against off in VM {base}.")?;
        }
        writeln!(f, "system: the average of speedup and neighbour in a round; off has 1.")?;
        writeln!(f, "weighted: what each VM gets done here relative to alone, summed; alone is taken as exact.")?;
        if names.contains(&"by slice") {
            writeln!(f, "by slice: against the scenario's first slice in the same round and policy.")?;
        }
        if let Some(why) = &self.incomplete {
            writeln!(f, "INCOMPLETE: {why}")?;
        }
        Ok(())
    }
}
