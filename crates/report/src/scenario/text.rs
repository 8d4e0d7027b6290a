//! A scenario's result in plain words: one table.

use super::{RatioSpread, ScenarioReport, ScenarioRow};
use crate::text::{count, duration, table};
use std::collections::BTreeSet;
use std::fmt;

fn spread(spread: Option<RatioSpread>) -> String {
    match spread {
        None => "-".to_owned(),
        Some(RatioSpread { median, ci95: None, .. }) => format!("{median:.2}"),
        Some(RatioSpread { median, ci95: Some([lo, hi]), .. }) => format!("{median:.2} [{lo:.2}, {hi:.2}]"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| duration(Some(ns.max(0.0) as u64)))
}

/// Columns that are left out where they would be empty everywhere.
struct Columns {
    slices: bool,
    lower_metrics: bool,
    latencies: bool,
    baselines: bool,
}

/// A metric of which less is better: it has no place among items per second.
fn lower_metric(row: &ScenarioRow) -> Option<f64> {
    row.metric.filter(|metric| !metric.higher_is_better).map(|metric| metric.median)
}

fn cells(row: &ScenarioRow, columns: &Columns) -> Vec<String> {
    let decimal = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let failed = if row.failed > 0 { format!(" ({} failed)", row.failed) } else { String::new() };
    let mut cells = vec![row.vm.clone(), row.workload.clone(), row.background.clone()];
    cells.extend(columns.slices.then(|| row.slice.clone().unwrap_or_else(|| "-".to_owned())));
    cells.extend([
        row.policy.clone(),
        format!("{}{failed}", row.n),
        time(row.wall_ns_median),
        decimal(row.items_per_second_median),
    ]);
    cells.extend(columns.lower_metrics.then(|| decimal(lower_metric(row))));
    if columns.latencies {
        let quantiles = [row.latency_p50_ns_median, row.latency_p99_ns_median, row.latency_p999_ns_median];
        cells.push(quantiles.map(time).join("/"));
    }
    cells.extend([time(row.host_cpu_ns_median), spread(row.speedup)]);
    cells.extend(columns.baselines.then(|| spread(row.own_speedup)));
    cells.extend([spread(row.neighbour_speedup), spread(row.system_throughput), spread(row.weighted_speedup)]);
    cells.extend(columns.slices.then(|| spread(row.slice_speedup)));
    cells
}

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
        let rounds: BTreeSet<u32> = self.runs.iter().filter(|run| !run.warmup).map(|run| run.round).collect();
        writeln!(f, "{}: {}", self.name, self.description)?;
        let rounds = count(rounds.len() as u64, "round");
        writeln!(f, "{}, {rounds}", machines(self))?;
        let any = |has: fn(&ScenarioRow) -> bool| self.summary.iter().any(has);
        let columns = Columns {
            slices: any(|row| row.slice.is_some()),
            lower_metrics: any(|row| lower_metric(row).is_some()),
            latencies: any(|row| row.latency_p50_ns_median.is_some()),
            baselines: any(|row| row.own_speedup.is_some()),
        };
        let mut header = vec!["VM", "workload", "beside"];
        header.extend(columns.slices.then_some("slice"));
        header.extend(["policy", "n", "time", "items/s"]);
        header.extend(columns.lower_metrics.then_some("metric (lower is better)"));
        header.extend(columns.latencies.then_some("p50/p99/p99.9"));
        header.extend(["host CPU", "speedup"]);
        header.extend(columns.baselines.then_some("by own off"));
        header.extend(["neighbour", "system", "weighted"]);
        header.extend(columns.slices.then_some("by slice"));
        let mut table = table(&header);
        for row in &self.summary {
            table.add_row(cells(row, &columns));
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "speedup: against off in the same round, above 1 is better, [95 % interval]. neighbour: the same of its throughput."
        )?;
        let bases: BTreeSet<(&str, &str)> =
            self.summary.iter().filter_map(|row| Some((&*row.vm, row.baseline.as_deref()?))).collect();
        for (vm, base) in bases {
            writeln!(f, "speedup, neighbour and system of VM {vm} are against off in VM {base}.")?;
        }
        writeln!(f, "system: the average of speedup and neighbour in a round; off has 1.")?;
        writeln!(f, "weighted: what each VM gets done here relative to alone, summed; alone is taken as exact.")?;
        if columns.slices {
            writeln!(f, "by slice: against the scenario's first slice in the same round and policy.")?;
        }
        if let Some(why) = &self.incomplete {
            writeln!(f, "INCOMPLETE: {why}")?;
        }
        Ok(())
    }
}
