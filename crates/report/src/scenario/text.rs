//! A scenario's result in plain words: one table.

use super::{RatioSpread, ScenarioReport, ScenarioRow};
use crate::text::{count, duration, table};
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

fn cells(row: &ScenarioRow, latencies: bool, slices: bool) -> Vec<String> {
    let failed = if row.failed > 0 { format!(" ({} failed)", row.failed) } else { String::new() };
    let mut cells = vec![row.vm.clone(), row.workload.clone(), row.background.clone()];
    cells.extend(slices.then(|| row.slice.clone().unwrap_or_else(|| "-".to_owned())));
    cells.extend([
        row.policy.clone(),
        format!("{}{failed}", row.n),
        time(row.wall_ns_median),
        row.items_per_second_median.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
    ]);
    if latencies {
        let quantiles = [row.latency_p50_ns_median, row.latency_p99_ns_median, row.latency_p999_ns_median];
        cells.push(quantiles.map(time).join("/"));
    }
    cells.extend([
        time(row.host_cpu_ns_median),
        spread(row.speedup),
        spread(row.neighbour_speedup),
        spread(row.weighted_speedup),
    ]);
    cells.extend(slices.then(|| spread(row.slice_speedup)));
    cells
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds =
            self.runs.iter().filter(|run| !run.warmup).map(|run| run.round).collect::<std::collections::BTreeSet<_>>();
        writeln!(f, "{}: {}", self.name, self.description)?;
        let (host, vms) = (&self.host, count(self.vms.len() as u64, "VM"));
        let rounds = count(rounds.len() as u64, "round");
        writeln!(f, "{vms} on {} CPUs ({}, Linux {}), {rounds}", host.cpus, host.accelerator, host.kernel)?;
        // A column that would be empty everywhere is left out.
        let latencies = self.summary.iter().any(|row| row.latency_p50_ns_median.is_some());
        let slices = self.summary.iter().any(|row| row.slice.is_some());
        let mut header = vec!["VM", "workload", "beside"];
        header.extend(slices.then_some("slice"));
        header.extend(["policy", "n", "time", "items/s"]);
        header.extend(latencies.then_some("p50/p99/p99.9"));
        header.extend(["host CPU", "speedup", "neighbour", "weighted"]);
        header.extend(slices.then_some("by slice"));
        let mut table = table(&header);
        for row in &self.summary {
            table.add_row(cells(row, latencies, slices));
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "speedup: against off in the same round, above 1 is better, [95 % interval]. neighbour: the same of its throughput."
        )?;
        writeln!(f, "weighted: what each VM gets done here relative to alone, summed.")?;
        if slices {
            writeln!(f, "by slice: against the scenario's first slice in the same round and policy.")?;
        }
        if let Some(why) = &self.incomplete {
            writeln!(f, "INCOMPLETE: {why}")?;
        }
        Ok(())
    }
}
