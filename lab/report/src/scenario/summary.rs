//! What follows from the runs of a scenario: medians, pairs of the same round, and two figures of what all VMs get
//! done.
//!
//! *System throughput* is the Gleaner paper's (section 7.2.1, there called weighted speedup): the average of the
//! speedups of the measured VM and of its neighbour, relative to the same round's run with policy `off`, which has 1.
//!
//! *Weighted speedup* is the usual sum, over the measured VM and its neighbours, of what each gets done here relative
//! to what it gets done alone. The measured VM's performance alone is the median of its runs with nothing in the
//! background and policy `off`; a neighbour's is the median of its solo runs. 2 means that neither notices the other.
//! Both medians are taken as exact: the interval is that of the runs here, and does not contain how uncertain the
//! medians are.

use super::{ScenarioReport, ScenarioRun};
use gleaner_report::show::Value;
use gleaner_stats::{interval_of_median, median, speedup};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One combination over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRow {
    pub vm: String,
    pub workload: String,
    /// What the others did: `VM: WORKLOAD`, joined by commas, or `alone`.
    pub background: String,
    /// vCPUs' slice on the host; null where the scenario compares none.
    pub slice: Option<String>,
    pub policy: String,
    /// Runs that count.
    pub n: u64,
    /// Runs that failed.
    pub failed: u64,
    pub wall_ns_median: Option<f64>,
    /// Median throughput.
    pub items_per_second_median: Option<f64>,
    /// Of a command's metric; null where it has none.
    pub metric: Option<MetricMedian>,
    /// Median CPU time of the VM on the host.
    pub host_cpu_ns_median: Option<f64>,
    /// Medians of its latency's quantiles; null where it reports none.
    pub latency_p50_ns_median: Option<f64>,
    /// See `latency_p50_ns_median`.
    pub latency_p99_ns_median: Option<f64>,
    /// See `latency_p50_ns_median`.
    pub latency_p999_ns_median: Option<f64>,
    /// The VM whose `off` the next three are against; null: this one's own.
    pub baseline: Option<String>,
    /// Throughput, or metric, with this policy / with `off` (turned round where lower is better; where a workload has
    /// neither: time with `off` / with this policy), paired by round: above 1 is better. Null for a VM's own `off`
    /// itself.
    pub speedup: Option<RatioSpread>,
    /// The same against the VM's own `off`; null where that is what `speedup` is.
    pub own_speedup: Option<RatioSpread>,
    /// Neighbours' throughput with this policy / with `off`, paired by round; null without a neighbour that reports
    /// one.
    pub neighbour_speedup: Option<RatioSpread>,
    /// The average of the two in a round; null where one of them is.
    pub system_throughput: Option<RatioSpread>,
    /// Throughput with this slice / with the scenario's first (where a workload has none: the inverse of the times),
    /// same policy, paired by round: above 1 is better. Null for the first itself.
    pub slice_speedup: Option<RatioSpread>,
    /// What each VM gets done relative to alone, summed; null without the solo runs it needs.
    pub weighted_speedup: Option<RatioSpread>,
}

/// A command's metric over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricMedian {
    pub median: f64,
    /// False of a latency.
    pub higher_is_better: bool,
}

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioSpread {
    pub median: f64,
    /// Lower and upper end; null for fewer than five values.
    pub ci95: Option<[f64; 2]>,
    pub n: u64,
}

impl RatioSpread {
    /// Of these values; `None` when there are none.
    fn of(values: &[f64]) -> Option<Self> {
        let ci95 = interval_of_median(values).map(|(low, high)| [low, high]);
        Some(Self { median: median(values)?, ci95, n: values.len() as u64 })
    }

    /// Of the ratios first / second of pairs, as `gleaner ab` has it.
    pub(super) fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        let found = speedup(pairs)?;
        Some(Self { median: found.median, ci95: found.ci95.map(|(low, high)| [low, high]), n: found.pairs as u64 })
    }
}

/// `1.05 [0.99, 1.12]`.
impl Value for RatioSpread {
    fn told(self) -> String {
        let ends = self.ci95.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
        format!("{:.2}{}", self.median, ends.unwrap_or_default())
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
        for (case @ (vm, workload, background), settings) in &cases {
            let baseline = self.baseline(vm);
            let base = baseline.map(|base| (base.to_owned(), workload.clone(), background.clone()));
            for (&(slice, other, policy), runs) in settings {
                let own = settings.get(&(slice, false, "off")).filter(|_| policy != "off");
                let (off, own_off) = match &base {
                    Some(base) => (cases.get(base).and_then(|settings| settings.get(&(slice, false, "off"))), own),
                    None => (own, None),
                };
                let first_slice = settings.get(&(0, other, policy)).filter(|_| slice > 0);
                rows.push(row(case, policy, runs, &Against { baseline, off, own_off, first_slice, alone: &alone }));
            }
        }
        rows
    }

    /// The VM that the scenario has another one compared with.
    fn baseline(&self, vm: &str) -> Option<&str> {
        let vms = self.scenario["vm"].as_array()?;
        vms.iter().find(|found| found["name"] == vm)?["baseline"].as_str()
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

/// What a row's runs are compared with.
struct Against<'a> {
    baseline: Option<&'a str>,
    off: Option<&'a Vec<&'a ScenarioRun>>,
    own_off: Option<&'a Vec<&'a ScenarioRun>>,
    first_slice: Option<&'a Vec<&'a ScenarioRun>>,
    alone: &'a Alone<'a>,
}

fn row(case: &Case, policy: &str, runs: &[&ScenarioRun], against: &Against<'_>) -> ScenarioRow {
    let good: Vec<&ScenarioRun> = runs.iter().copied().filter(|run| succeeded(run)).collect();
    let median_of = |figure: fn(&ScenarioRun) -> Option<f64>| {
        median(&good.iter().filter_map(|run| figure(run)).collect::<Vec<f64>>())
    };
    let paired = |others: Option<&Vec<&ScenarioRun>>, figure: Figure| {
        let pairs = good.iter().filter_map(|run| pair(run, others?, figure));
        RatioSpread::of_pairs(&pairs.collect::<Vec<(f64, f64)>>())
    };
    let both = good.iter().filter_map(|run| {
        let ratio = |figure| pair(run, against.off?, figure).map(|(here, off)| here / off);
        Some(f64::midpoint(ratio(performance)?, ratio(neighbours)?))
    });
    let system_throughput = RatioSpread::of(&both.collect::<Vec<f64>>());
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
        metric: median_of(|run| run.metric.map(|metric| metric.value)).map(|median| MetricMedian {
            median,
            higher_is_better: good.iter().filter_map(|run| run.metric).all(|metric| metric.higher_is_better),
        }),
        host_cpu_ns_median: median_of(|run| run.host_cpu_ns.map(|ns| ns as f64)),
        latency_p50_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p50_ns as f64)),
        latency_p99_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p99_ns as f64)),
        latency_p999_ns_median: median_of(|run| run.latency.as_ref().map(|latency| latency.p999_ns as f64)),
        baseline: against.baseline.map(str::to_owned),
        speedup: paired(against.off, performance),
        own_speedup: paired(against.own_off, performance),
        slice_speedup: paired(against.first_slice, performance),
        neighbour_speedup: paired(against.off, neighbours),
        system_throughput,
        weighted_speedup: RatioSpread::of(
            &good.iter().filter_map(|run| against.alone.weighted_speedup(run)).collect::<Vec<f64>>(),
        ),
    }
}

fn succeeded(run: &ScenarioRun) -> bool {
    run.exit_status == 0 && run.wall_ns.is_some() && run.failure.is_none()
}

/// By what it is told how much a run got done. Figures by different accounts have different units, and no ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Account {
    Metric,
    Items,
    Time,
}

/// More is better.
type Figure = fn(&ScenarioRun) -> Option<(Account, f64)>;

/// What a run got done per second: by a command's metric or by its own account if it has one (a run over a fixed time
/// says nothing by its duration), else in runs per second.
fn performance(run: &ScenarioRun) -> Option<(Account, f64)> {
    let figure = match (run.metric, run.items_per_second) {
        (Some(metric), _) if metric.higher_is_better => (Account::Metric, metric.value),
        (Some(metric), _) => (Account::Metric, 1.0 / metric.value),
        (None, Some(rate)) => (Account::Items, rate),
        (None, None) => (Account::Time, 1e9 / run.wall_ns? as f64),
    };
    (figure.1 > 0.0 && figure.1.is_finite()).then_some(figure)
}

/// What the neighbours of a run got done per second; `None` without any, or where one says nothing.
fn neighbours(run: &ScenarioRun) -> Option<(Account, f64)> {
    let mut busy = run.background.iter().filter(|other| other.workload != "nothing").peekable();
    busy.peek()?;
    let sum = busy.map(|other| other.items_per_second).sum::<Option<f64>>()?;
    (sum > 0.0).then_some((Account::Items, sum))
}

/// A run's figure and that of the other run of the same round, where both are by the same account.
fn pair(run: &ScenarioRun, others: &[&ScenarioRun], figure: Figure) -> Option<(f64, f64)> {
    let other = others.iter().find(|other| other.round == run.round && succeeded(other))?;
    let ((account, here), (others_account, there)) = (figure(run)?, figure(other)?);
    (account == others_account).then_some((here, there))
}

fn background_of(run: &ScenarioRun) -> String {
    let busy = run.background.iter().filter(|other| other.workload != "nothing");
    let words: Vec<String> = busy.map(|other| format!("{}: {}", other.vm, other.workload)).collect();
    if words.is_empty() { "alone".to_owned() } else { words.join(", ") }
}

/// What everybody gets done alone.
struct Alone<'a> {
    measured: BTreeMap<(&'a str, &'a str, Account), f64>,
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
            if let Some((account, figure)) = performance(run) {
                measured.entry((&*run.vm, &*run.workload, account)).or_default().push(figure);
            }
        }
        let mut background: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for solo in report.solos.iter().filter(|solo| !solo.warmup) {
            background.entry((&*solo.vm, &*solo.workload)).or_default().extend(solo.items_per_second);
        }
        Self { measured: medians(measured), background: medians(background) }
    }

    /// The sum of relative performances in this run; `None` where one of them is unknown.
    fn weighted_speedup(&self, run: &ScenarioRun) -> Option<f64> {
        let (account, figure) = performance(run)?;
        let own = figure / self.measured.get(&(&*run.vm, &*run.workload, account))?;
        let others = run.background.iter().filter(|other| other.workload != "nothing");
        let others = others.map(|other| {
            let alone = self.background.get(&(&*other.vm, &*other.workload))?;
            Some(other.items_per_second? / alone)
        });
        Some(own + others.sum::<Option<f64>>()?)
    }
}

fn medians<K: Ord>(all: BTreeMap<K, Vec<f64>>) -> BTreeMap<K, f64> {
    all.into_iter().filter_map(|(who, rates)| Some((who, median(&rates).filter(|rate| *rate > 0.0)?))).collect()
}
