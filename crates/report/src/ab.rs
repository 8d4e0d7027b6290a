//! `gleaner.ab/1`: two modes of one command, in interleaved pairs: every run, what the interval says, what it cost.

mod chart;
mod shown;

pub(crate) use shown::documents;

use crate::text::program;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner ab` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbReport {
    pub schema: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The modes: first what is compared with, then what is compared.
    pub modes: Vec<AbMode>,
    /// The retention profile of managed runs; `custom` for a time-out of the user's own.
    pub profile: String,
    /// What is compared; null for wall time.
    pub metric: Option<AbMetric>,
    /// Pairs asked for.
    pub pairs_planned: u64,
    /// Complete pairs.
    pub pairs: u64,
    /// Warm-up runs of each mode before the pairs; they are not in `runs`.
    pub warmups: u64,
    /// Decided who goes first in each pair.
    pub shuffle_seed: u64,
    /// Where.
    pub machine: AbMachine,
    /// Every run, in the order in which they ran.
    pub runs: Vec<AbRun>,
    /// How much better the second mode is; null when no pair has a ratio.
    pub speedup: Option<AbSpeedup>,
    /// `helps`, `hurts` or `no difference`.
    pub verdict: String,
    /// What kept a verdict from being given, other than the interval; null when nothing did.
    pub verdict_withheld: Option<String>,
    /// Where the interval is too wide to say anything (`no difference` would be taken for "equal"): about how many
    /// pairs would tell, if the median and the noise stay. Null where the verdict stands, or there is no interval.
    pub pairs_to_tell: Option<u64>,
    /// The verdict as it is told: as `verdict`, or `inconclusive` where that rests on too little.
    pub told_verdict: String,
    /// What the second mode cost.
    pub side_costs: AbSideCosts,
    /// The third mode and those after it against the first; left out where there are two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<AbComparison>,
    /// Why there are fewer pairs than planned, when a run failed or somebody interrupted; else null.
    pub incomplete: Option<String>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

impl AbReport {
    /// The mode at this place.
    fn name(&self, which: usize) -> &str {
        self.modes.get(which).map_or("?", |mode| &mode.mode)
    }

    /// What it is about, in a few words.
    fn subject(&self) -> String {
        let metric = self.metric.as_ref().map(|metric| format!(", {}", metric.name));
        format!("{}{}", program(&self.command), metric.unwrap_or_default())
    }
}

/// What a mode comes to against the first; each field as of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbComparison {
    pub mode: String,
    /// How much better it is.
    pub speedup: Option<AbSpeedup>,
    /// `helps`, `hurts` or `no difference`.
    pub verdict: String,
    /// What kept a verdict from being given.
    pub verdict_withheld: Option<String>,
    /// About how many pairs would tell.
    pub pairs_to_tell: Option<u64>,
    pub side_costs: AbSideCosts,
}

/// A mode and the medians over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbMode {
    /// A policy's name.
    pub mode: String,
    pub runs: u64,
    pub outliers: u64,
    /// Medians; null when there is no run.
    pub median: Option<AbMedians>,
    /// Mean and deviation of what is compared; null when there is no run.
    pub spread: Option<AbSpread>,
}

/// Means, and standard deviations of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbSpread {
    /// From exec to exit.
    pub wall_ns_mean: u64,
    /// Null of a single run.
    pub wall_deviation_ns: Option<u64>,
    /// The metric; null without one.
    pub metric_mean: Option<f64>,
    /// Null of a single run, and without a metric.
    pub metric_deviation: Option<f64>,
}

/// Medians over the runs of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbMedians {
    /// From exec to exit.
    pub wall_ns: u64,
    /// The metric; null without one.
    pub metric: Option<f64>,
    /// CPU time of the command, and of Gleaner around it.
    pub cpu_time_ns: u64,
    /// Idle time bridged.
    pub retained_ns: u64,
    /// Stolen time of all vCPUs; null where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary ones.
    pub involuntary_switches: u64,
    /// Mean number of vCPUs that the command was allowed.
    pub active_vcpus_mean: f64,
}

/// A figure read from the command's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbMetric {
    /// What it is called.
    pub name: String,
    /// The regular expression whose group it is.
    pub regex: String,
    /// `lower` or `higher`.
    pub better: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbMachine {
    pub kernel: String,
    /// vCPUs that the command might use.
    pub vcpus: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbRun {
    /// A policy's name.
    pub mode: String,
    /// Which pair, from 1.
    pub pair: u64,
    /// 1 or 2: whether it ran first or second in its pair.
    pub order: u64,
    /// From exec to exit.
    pub wall_ns: u64,
    /// The metric; null without one.
    pub metric: Option<f64>,
    /// CPU time of the command and its descendants, and of Gleaner around it, what retention takes included: yielding
    /// threads, or polling.
    pub cpu_time_ns: u64,
    /// Idle time bridged, summed over vCPUs.
    pub retained_ns: u64,
    /// Stolen time, summed over vCPUs; null where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    /// Voluntary context switches, of whom `cpu_time_ns` is.
    pub voluntary_switches: u64,
    /// Involuntary ones; a yielding thread that makes room is one.
    pub involuntary_switches: u64,
    /// How often the contention guard stopped a yielding thread.
    pub guard_trips: u64,
    /// Mean number of vCPUs that the command was allowed.
    pub active_vcpus_mean: f64,
    /// As a shell would say it.
    pub exit_status: i32,
    /// Far from the other runs of its mode. It counts all the same.
    pub outlier: bool,
}

/// How much better the second mode is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbSpeedup {
    /// Median of the pairs' ratios: above 1 the second mode is better.
    pub median: f64,
    /// 95 % interval; null for fewer than five pairs.
    pub ci95: Option<[f64; 2]>,
    /// Pairs that it rests on.
    pub pairs: u64,
}

/// The second mode's costs as ratios to the first's: medians over pairs; null where the first had none, or there is no
/// pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbSideCosts {
    pub cpu_time_ratio: Option<f64>,
    /// CPU time without what yielding threads spent on bridging idle time.
    pub cpu_time_less_retained_ratio: Option<f64>,
    /// Voluntary context switches.
    pub voluntary_switches_ratio: Option<f64>,
    /// Involuntary ones.
    pub involuntary_switches_ratio: Option<f64>,
    /// Idle time that the second mode bridged, median of its runs.
    pub retained_ns: Option<u64>,
    /// The same as a share of its runs' wall time and vCPUs.
    pub retained_ratio: Option<f64>,
}
