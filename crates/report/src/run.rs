//! `gleaner.run/1`: what a program looked like, what Gleaner did about it and why, what that cost.

mod shown;
mod timeline;

pub(crate) use shown::documents;

use crate::status::StatusTrial;
use crate::text::percent;
use gleaner_model::{Decision, Distribution, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner run` has to say at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    pub schema: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The policy in force.
    pub policy: String,
    /// The retention profile; `custom` for a time-out of the user's own.
    pub profile: String,
    /// Whether it ran already (`gleaner attach`): its exit status is not known then, and `wall_ns` is what was seen of
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// From exec to exit.
    pub wall_ns: u64,
    /// As a shell would say it: 128 + n after signal n.
    pub exit_status: i32,
    /// Idle periods that began on active vCPUs; null where they could not be seen.
    pub idle_entries: Option<u64>,
    /// Times an idle task was entered; null where it could not be seen.
    pub halts: Option<u64>,
    /// What ended their idle periods; null without BPF.
    pub idle_ended_by: Option<IdleEndedBy>,
    /// Summed over vCPUs: idle time bridged, by a yielding thread or by the idle task's polling.
    pub retained_ns: u64,
    /// Summed over vCPUs: stolen time; null where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    /// CPU time of the program; null when it was not observed.
    pub cpu_time_ns: Option<u64>,
    /// Voluntary context switches of the program; null when it was not observed.
    pub voluntary_switches: Option<u64>,
    /// Involuntary ones; null when it was not observed.
    pub involuntary_switches: Option<u64>,
    /// Wake-ups of its threads from another vCPU; null without BPF.
    pub cross_wakeups: Option<u64>,
    /// Most threads seen at once; null when it was not observed.
    pub threads_max: Option<u64>,
    /// vCPUs it might use.
    pub vcpus: u64,
    /// Mean number of vCPUs it was allowed.
    pub active_vcpus_mean: f64,
    /// What each vCPU did meanwhile, for this program and for others; empty when nothing was observed.
    pub vcpu_times: Vec<VcpuTimes>,
    /// The paper's measurements over the whole run.
    pub lengths: ObservedLengths,
    /// Retention time-out in force; null when the policy does not retain.
    pub timeout_ns: Option<u64>,
    /// Where the time-out comes from, in words.
    pub timeout_from: Option<String>,
    /// How often the contention guard stopped a yielding thread.
    pub guard_trips: u64,
    /// The means in use.
    pub means: Means,
    pub windows: u64,
    /// Mean length of a window.
    pub window_ns_mean: Option<u64>,
    /// CPU time that observing and deciding took.
    pub overhead_cpu_ns: u64,
    /// What was decided, oldest first.
    pub decisions: Vec<DecisionRecord>,
    /// Decisions between the first hundred and the newest nine hundred, which are not listed.
    pub decisions_left_out: u64,
    /// The most frequent reason for taking no step, with its windows; null when nothing was to be decided.
    pub no_step_because: Option<String>,
    /// What a synchronization cost with idle periods bridged, as a multiple of what it cost without, when that was last
    /// tried; null: it was not.
    pub retention_cost_ratio: Option<f64>,
    /// The last trial of retention; null: there was none.
    pub trial: Option<StatusTrial>,
    /// Everything that was weaker than it might be, and other things to know.
    pub warnings: Vec<String>,
    /// Whether all changes to the machine were undone.
    pub restored: bool,
}

/// Idle periods by what ended them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleEndedBy {
    /// An interrupt, of a device or a timer.
    pub interrupts: u64,
    /// A wake-up by a thread on another vCPU.
    pub wakeups: u64,
}

impl From<gleaner_model::IdleEndedBy> for IdleEndedBy {
    fn from(ended: gleaner_model::IdleEndedBy) -> Self {
        Self { interrupts: ended.interrupts, wakeups: ended.wakeups }
    }
}

impl fmt::Display for IdleEndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.interrupts.saturating_add(self.wakeups).max(1) as f64;
        let (interrupts, wakeups) = (self.interrupts as f64 / all, self.wakeups as f64 / all);
        write!(f, "{} ended by an interrupt, {} by another vCPU's thread", percent(interrupts), percent(wakeups))
    }
}

/// The time of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VcpuTimes {
    pub vcpu: u32,
    /// At work, for whomever.
    pub busy_ns: u64,
    /// Idle and kept awake: a yielding thread ran, or the idle task polled.
    pub retained_ns: u64,
    /// Idle and halted.
    pub halted_ns: u64,
    /// Wanted, and taken by the host, as far as that is reported.
    pub steal_ns: u64,
}

/// The paper's lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedLengths {
    /// l_comp: a vCPU's busy time between two idle periods.
    pub l_comp: Option<LengthStats>,
    /// g_comp: a thread's computation between two synchronization points.
    pub g_comp: Option<LengthStats>,
    /// l_idle: an idle period.
    pub l_idle: Option<LengthStats>,
    /// From wake-up to running.
    pub wake_to_run: Option<LengthStats>,
}

/// A length: its mean, and its distribution where the observer sees one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LengthStats {
    pub mean_ns: f64,
    /// How many were seen; null where only the ratio of sums is known.
    pub n: Option<u64>,
    /// Median (to 12.5 %); null without BPF.
    pub p50_ns: Option<u64>,
    /// 99th percentile (to 12.5 %); null without BPF.
    pub p99_ns: Option<u64>,
}

impl LengthStats {
    /// From a mean alone.
    pub fn from_mean(mean_ns: f64) -> Option<Self> {
        mean_ns.is_finite().then_some(Self { mean_ns, n: None, p50_ns: None, p99_ns: None })
    }

    /// From a distribution; `None` when it is empty.
    pub fn from_distribution(distribution: &Distribution) -> Option<Self> {
        let quantile = |q| distribution.quantile(q).map(|ns: Nanos| ns.0);
        Some(Self {
            mean_ns: distribution.mean()?,
            n: Some(distribution.count()),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Means {
    /// `bpf` or `procfs`; null when nothing was observed.
    pub observer: Option<String>,
    /// `affinity`; null when the policy does not consolidate.
    pub placement: Option<String>,
    /// `idle-poll`, `haltpoll`, `pm-qos` or `yielding`; null when the policy does not retain.
    pub retention: Option<String>,
    /// `sched-idle` or `nice-19`, with `+cpu.idle` where there is such a cgroup; null where no yielding thread is in
    /// use.
    pub yielding: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionRecord {
    /// Since exec.
    pub at_ns: u64,
    /// `retain`, `release`, `deactivate`, `activate` or `activate-all`.
    pub action: String,
    /// Which vCPU; null for all.
    pub vcpu: Option<u32>,
    pub reason: String,
}

impl From<&Decision> for DecisionRecord {
    fn from(decision: &Decision) -> Self {
        Self {
            at_ns: decision.at.0,
            action: decision.action.name().to_owned(),
            vcpu: decision.action.vcpu().map(|vcpu| vcpu.0),
            reason: decision.reason.to_string(),
        }
    }
}
