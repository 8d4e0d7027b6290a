//! What follows from the runs of a scenario: medians, pairs of the same round, weighted speedup.
//!
//! Weighted speedup is the papers' system throughput: the sum, over the measured VM and its neighbours, of what each gets done
//! here relative to what it gets done alone. The measured VM's performance alone is the median of its runs with nothing in the
//! background and policy `off`; a neighbour's is the median of its solo runs. 2 means that neither notices the other.

use super::{ScenarioReport, ScenarioRun};
use gleaner_stats::{interval_of_median, median, speedup};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One combination over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRow {
    /// The VM.
    pub vm: String,
    /// The workload's label.
    pub workload: String,
    /// What the others did: `VM: WORKLOAD`, joined by commas, or `alone`.
    pub background: String,
    /// vCPUs' slice on the host; null where the scenario compares none.
    pub slice: Option<String>,
    /// The policy's label.
    pub policy: String,
    /// Runs that count.
    pub n: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Median of `wall_ns`.
    pub wall_ns_median: Option<f64>,
    /// Median throughput.
    pub items_per_second_median: Option<f64>,
    /// Median CPU time of the VM on the host.
    pub host_cpu_ns_median: Option<f64>,
    /// Medians of its latency's quantiles; null where it reports none.
    pub latency_p50_ns_median: Option<f64>,
    /// See `latency_p50_ns_median`.
    pub latency_p99_ns_median: Option<f64>,
    /// See `latency_p50_ns_median`.
    pub latency_p999_ns_median: Option<f64>,
    /// Throughput with this policy / with `off` (where a workload has none: time with `off` / with this policy), paired by round:
    /// above 1 is better. Null for `off` itself.
    pub speedup: Option<RatioSpread>,
    /// Neighbours' throughput with this policy / with `off`, paired by round; null without a neighbour that reports one.
    pub neighbour_speedup: Option<RatioSpread>,
    /// Throughput with this slice / with the scenario's first (where a workload has none: the inverse of the times), same policy, paired by
    /// round: above 1 is better. Null for the first itself.
    pub slice_speedup: Option<RatioSpread>,
    /// System throughput; null without the solo runs it needs.
    pub weighted_speedup: Option<RatioSpread>,
}

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioSpread {
    /// Median.
    pub median: f64,
    /// Lower and upper end; null for fewer than five values.
    pub ci95: Option<[f64; 2]>,
    /// Values.
    pub n: u64,
}

impl RatioSpread {
    /// Of these values; `None` when there are none.
    fn of(values: &[f64]) -> Option<Self> {
        let ci95 = interval_of_median(values).map(|(low, high)| [low, high]);
        Some(Self { median: median(values)?, ci95, n: values.len() as u64 })
    }

    /// Of the ratios first / second of pairs, as `gleaner ab` has it.
    fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        let found = speedup(pairs)?;
        Some(Self { median: found.median, ci95: found.ci95.map(|(low, high)| [low, high]), n: found.pairs as u64 })
    }
}

/// What makes runs comparable but for slice and policy: VM, workload, background.
type Case = (String, String, String);
/// Place of the slice among the scenario's, and not `off` after `off`.
type Setting<'a> = (usize, bool, &'a str);

impl ScenarioReport {
    /// The summary of the runs and solos there are: a row per combination, sorted, `off` before
    /// the other policies.
    pub fn summarize(&self) -> Vec<ScenarioRow> {
        let slices = self.slices();
        let mut cases: BTreeMap<Case, BTreeMap<Setting<'_>, Vec<&ScenarioRun>>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| !run.warmup) {
            let case = (run.vm.clone(), run.workload.clone(), background_of(run));
            let slice = slices.iter().position(|slice| *slice == run.slice.as_deref()).unwrap_or(0);
            cases.entry(case).or_default().entry((slice, run.policy != "off", &run.policy)).or_default().push(run);
        }
        let alone = Alone::of(self);
        let mut rows = Vec::new();
        for (case, settings) in &cases {
            for (&(slice, other, policy), runs) in settings {
                let off = settings.get(&(slice, false, "off")).filter(|_| policy != "off");
                let first = settings.get(&(0, other, policy)).filter(|_| slice > 0);
                rows.push(row(case, policy, runs, off, first, &alone));
            }
        }
        rows
    }

    /// The slices there are, in the order in which the scenario names them.
    fn slices(&self) -> Vec<Option<&str>> {
        let named = self.scenario["machine"]["slices"].as_array();
        let mut slices: Vec<Option<&str>> = named.into_iter().flatten().map(|slice| slice.as_str()).collect();
        for run in &self.runs {
            if !slices.contains(&run.slice.as_deref()) {
                slices.push(run.slice.as_deref());
            }
        }
        slices
    }
}

fn row(
    case: &Case,
    policy: &str,
    runs: &[&ScenarioRun],
    off: Option<&Vec<&ScenarioRun>>,
    first_slice: Option<&Vec<&ScenarioRun>>,
    alone: &Alone,
) -> ScenarioRow {
    let good: Vec<&ScenarioRun> = runs.iter().copied().filter(|run| succeeded(run)).collect();
    let median_of = |figure: fn(&ScenarioRun) -> Option<f64>| {
        median(&good.iter().filter_map(|run| figure(run)).collect::<Vec<f64>>())
    };
    // Pairs are runs of the same round; of figures where more is better, the new one comes first.
    let paired = |others: Option<&Vec<&ScenarioRun>>, figure: &dyn Fn(&ScenarioRun) -> Option<f64>| {
        let others = others?;
        let pairs = good.iter().filter_map(|run| {
            let pair = others.iter().find(|pair| pair.round == run.round && succeeded(pair))?;
            Some((figure(run)?, figure(pair)?))
        });
        RatioSpread::of_pairs(&pairs.collect::<Vec<(f64, f64)>>())
    };
    let (vm, workload, background) = case.clone();
    ScenarioRow {
        vm,
        workload,
        background,
        slice: runs.first().and_then(|run| run.slice.clone()),
        policy: policy.to_owned(),
        n: good.len() as u64,
        failed: (runs.len() - good.len()) as u64,
        wall_ns_median: median_of(|run| run.wall_ns.map(|ns| ns as f64)),
        items_per_second_median: median_of(|run| run.items_per_second),
        host_cpu_ns_median: median_of(|run| run.host_cpu_ns.map(|ns| ns as f64)),
        latency_p50_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p50_ns as f64)),
        latency_p99_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p99_ns as f64)),
        latency_p999_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p999_ns as f64)),
        speedup: paired(off, &|run| performance(run)),
        slice_speedup: paired(first_slice, &|run| performance(run)),
        neighbour_speedup: paired(off, &|run| {
            let busy = run.background.iter().filter(|other| other.workload != "nothing");
            busy.map(|other| other.items_per_second).sum::<Option<f64>>()
        }),
        weighted_speedup: RatioSpread::of(
            &good.iter().filter_map(|run| alone.weighted_speedup(run)).collect::<Vec<f64>>(),
        ),
    }
}

fn succeeded(run: &ScenarioRun) -> bool {
    run.exit_status == 0 && run.wall_ns.is_some()
}

/// What a run got done per second, in units of its own: the workload's figure if it has one (a run over a fixed time says
/// nothing by its duration), else runs per second.
fn performance(run: &ScenarioRun) -> Option<f64> {
    let by_time = || run.wall_ns.filter(|ns| *ns > 0).map(|ns| 1e9 / ns as f64);
    run.items_per_second.filter(|rate| *rate > 0.0).or_else(by_time)
}

fn background_of(run: &ScenarioRun) -> String {
    let busy = run.background.iter().filter(|other| other.workload != "nothing");
    let words: Vec<String> = busy.map(|other| format!("{}: {}", other.vm, other.workload)).collect();
    if words.is_empty() { "alone".to_owned() } else { words.join(", ") }
}

/// What everybody gets done alone.
struct Alone<'a> {
    measured: BTreeMap<(&'a str, &'a str), f64>,
    background: BTreeMap<(&'a str, &'a str), f64>,
}

impl<'a> Alone<'a> {
    fn of(report: &'a ScenarioReport) -> Self {
        let mut measured: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        // Beside another measured VM nobody is alone.
        let solitary = |run: &ScenarioRun| {
            background_of(run) == "alone"
                && !report.runs.iter().any(|o| (o.round, o.order) == (run.round, run.order) && o.vm != run.vm)
        };
        for run in
            report.runs.iter().filter(|run| !run.warmup && run.policy == "off" && succeeded(run) && solitary(run))
        {
            measured.entry((&*run.vm, &*run.workload)).or_default().extend(performance(run));
        }
        let mut background: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for solo in report.solos.iter().filter(|solo| !solo.warmup) {
            background.entry((&*solo.vm, &*solo.workload)).or_default().extend(solo.items_per_second);
        }
        let medians = |all: BTreeMap<_, Vec<f64>>| {
            all.into_iter().filter_map(|(who, rates)| Some((who, median(&rates).filter(|rate| *rate > 0.0)?))).collect()
        };
        Self { measured: medians(measured), background: medians(background) }
    }

    /// The sum of relative performances in this run; `None` where one of them is unknown.
    fn weighted_speedup(&self, run: &ScenarioRun) -> Option<f64> {
        let own = performance(run)? / self.measured.get(&(&*run.vm, &*run.workload))?;
        let others = run.background.iter().filter(|other| other.workload != "nothing");
        let others = others.map(|other| {
            let alone = self.background.get(&(&*other.vm, &*other.workload))?;
            Some(other.items_per_second? / alone)
        });
        Some(own + others.sum::<Option<f64>>()?)
    }
}
