//! `gleaner.status/1`: what the daemon manages, by which means, what it decided and why, what that has won.

mod shown;

use crate::host_run::HostDecisionRecord;
use crate::run::{DecisionRecord, IdleEndedBy, ObservedLengths};
use crate::verify::VerifiedFile;
use gleaner_model::{CLEARLY_FASTER, Nanos, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The daemon at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    pub schema: String,
    /// Of the program.
    pub version: String,
    pub pid: u32,
    /// Since it began: the clock of `at_ns`.
    pub up_ns: u64,
    /// When it began, since 1970.
    pub began_unix_ns: u64,
    /// Whether nothing is changed, only watched.
    pub dry_run: bool,
    pub machine: StatusMachine,
    /// `procfs` or `bpf`.
    pub observer: String,
    /// What the vCPUs did since the daemon began, while there was a group.
    pub times: StatusTimes,
    /// The same of the last one to two seconds.
    pub recent: StatusTimes,
    /// The files that it is configured by, later ones over earlier ones.
    pub configuration: Vec<String>,
    /// What is wrong with the configuration that was to be reloaded last; null: nothing.
    pub reload_error: Option<String>,
    /// How long windows are now.
    pub window_ns: u64,
    /// Whether that is more than it should be, because observing takes all that it may.
    pub windows_paced: bool,
    /// CPU time of observing and deciding.
    pub overhead_cpu_ns: u64,
    /// What the daemon took of CPUs lately, as the kernel counts it.
    pub cost: StatusCost,
    /// `haltpoll`, `pm-qos`, `idle-poll` or `yielding`; null where nothing is retained.
    pub retention: Option<String>,
    /// Idle time bridged, summed over vCPUs.
    pub retained_ns: u64,
    /// How often a contention guard stopped retention.
    pub guard_trips: u64,
    /// The time-out in force on each retained vCPU, whichever group asked for it.
    pub retaining: Vec<StatusVcpu>,
    /// What the daemon has set, and somebody else has changed since; each as in `gleaner.verify/1`.
    pub settings_differ: Vec<VerifiedFile>,
    pub groups: Vec<StatusGroup>,
    /// What the configuration names, and is not managed now.
    pub waiting: Vec<StatusWaiting>,
    /// The host agent; left out where there is to be none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<StatusHost>,
    /// Everything that is weaker than it might be.
    pub warnings: Vec<String>,
}

/// What the daemon took of CPUs lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusCost {
    /// In how long: some ten seconds.
    pub elapsed_ns: u64,
    /// CPU time of its process, yielding threads included: what `/proc/PID/stat` says.
    pub cpu_ns: u64,
    /// Run time of its BPF programs, which is in nobody's CPU time but that of whom they interrupt; null where the
    /// kernel does not count it (`kernel.bpf_stats_enabled`).
    pub bpf_ns: Option<u64>,
}

impl StatusCost {
    /// The process' share of one CPU; `None` where it is too soon to say.
    pub fn cpu_share(&self) -> Option<f64> {
        self.share(self.cpu_ns)
    }

    /// That of its BPF programs; `None` where nobody counts it.
    pub fn bpf_share(&self) -> Option<f64> {
        self.share(self.bpf_ns?)
    }

    fn share(&self, ns: u64) -> Option<f64> {
        (self.elapsed_ns > 0).then(|| ns as f64 / self.elapsed_ns as f64)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusMachine {
    /// `KVM`, `Xen`, ...; null on bare metal, and where nothing tells.
    pub hypervisor: Option<String>,
    pub kernel: String,
    /// vCPUs that groups may use.
    pub vcpus: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusTimes {
    /// How long they were watched; 0: not at all, because no group runs.
    pub observed_ns: u64,
    /// Idle periods that began on all of them together; null where they could not be seen.
    pub idle_entries: Option<u64>,
    /// Times an idle task was entered on any of them; null where it could not be seen.
    pub halts: Option<u64>,
    /// Of each vCPU that was there.
    pub vcpus: Vec<StatusVcpuTimes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusVcpuTimes {
    pub vcpu: u32,
    /// At work, for whomever; null where unknown, as below.
    pub busy_ns: Option<u64>,
    /// Idle and kept awake: a yielding thread ran, or the idle task polled.
    pub retained_ns: Option<u64>,
    /// Idle and halted.
    pub halted_ns: Option<u64>,
    /// Taken by the host; null where it has never reported any.
    pub steal_ns: Option<u64>,
}

/// What a group did in the last one to two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusRecent {
    pub observed_ns: u64,
    pub cpu_time_ns: u64,
    /// Its voluntary context switches.
    pub voluntary_switches: u64,
    /// Idle periods that began on its vCPUs (without BPF on the whole machine); null where they could not be seen.
    pub idle_entries: Option<u64>,
    /// l_comp: mean busy time of a vCPU between two idle periods; null where unknown, as below.
    pub l_comp_ns: Option<f64>,
    /// g_comp: mean computation of a thread between two synchronization points.
    pub g_comp_ns: Option<f64>,
    /// l_idle: mean length of an idle period.
    pub l_idle_ns: Option<f64>,
}

/// A vCPU that is kept awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusVcpu {
    pub vcpu: u32,
    /// For how long.
    pub timeout_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusGroup {
    /// That of the configuration; with what a wildcard stands for behind it.
    pub name: String,
    /// What it is, in words.
    pub target: String,
    pub profile: String,
    pub policy: String,
    /// `bpf` or `procfs`: which observer sees it now.
    pub observer: String,
    /// When it was adopted.
    pub since_ns: u64,
    /// vCPUs it may use.
    pub vcpus: u64,
    /// How it stands, in words.
    pub state: String,
    /// Whether it is left alone because somebody said so (`gleaner hold`).
    pub held: bool,
    /// The vCPUs it runs on.
    pub active: Vec<u32>,
    /// vCPUs that are kept awake for it.
    pub retaining: Vec<u32>,
    /// Its time-out; null where its policy does not retain.
    pub timeout_ns: Option<u64>,
    /// CPU time since it was adopted.
    pub cpu_time_ns: u64,
    /// Voluntary context switches since then.
    pub voluntary_switches: u64,
    /// Most threads seen at once.
    pub threads_max: Option<u64>,
    /// Idle periods that began on its vCPUs since then (without BPF on the whole machine); null where they could not be
    /// seen.
    pub idle_entries: Option<u64>,
    /// What ended them; null without BPF.
    pub idle_ended_by: Option<IdleEndedBy>,
    /// The paper's measurements since then; `wake_to_run` is null without BPF.
    pub lengths: ObservedLengths,
    /// What it did in the last one to two seconds, or since it was last looked at, where it is quiet.
    pub recent: StatusRecent,
    /// What retention has won, as it was last tried on the running program; null: not tried yet.
    pub trial: Option<StatusTrial>,
    /// What one vCPU has won over all, where its threads take turns, as it was last tried; null: not tried yet.
    pub turns: Option<StatusTrial>,
    pub decisions_count: u64,
    /// The newest ones, oldest first; `hold` and `manage` are what somebody ordered.
    pub decisions: Vec<DecisionRecord>,
    /// What would change how it stands, in words.
    pub would_change: Vec<String>,
}

/// A group that the configuration names, and that is not managed now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusWaiting {
    /// That of the configuration.
    pub name: String,
    /// What it waits for, in words, such as `program redis-server to start`.
    pub waits_for: String,
}

/// The host agent at one moment: what it gives the VMs of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusHost {
    /// Its process; null: it does not run now.
    pub pid: Option<u32>,
    /// Why it does not run, in words; null: it runs.
    pub why_not: Option<String>,
    /// Since it began: the clock of its decisions.
    pub up_ns: u64,
    /// `adaptive`, or `static`: one slice for all.
    pub policy: String,
    /// `bpf` or `procfs`; null before it has begun.
    pub observer: Option<String>,
    /// What ends slices: `ticker`, `hrtick`, or `none` beside the kernel's tick; null before it has begun.
    pub enforcement: Option<String>,
    /// Each VM that is there.
    pub vms: Vec<StatusVm>,
    pub decisions_count: u64,
    /// The newest ones, oldest first.
    pub decisions: Vec<HostDecisionRecord>,
    /// Everything that is weaker than it might be.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusVm {
    pub vm: u32,
    /// What its monitor calls it.
    pub name: String,
    pub vcpus: u64,
    /// The slice that the agent gives them; null: none so far.
    pub slice_ns: Option<u64>,
}

/// So many groups are shown as they are.
const GROUPS_SHOWN: usize = 20;
/// Who takes less of a CPU than this does nothing worth a line.
const IDLE_BELOW: f64 = 0.001;

impl StatusGroup {
    /// CPUs that it used in the last one to two seconds.
    pub fn cpus_lately(&self) -> f64 {
        let recent = self.recent;
        if recent.observed_ns == 0 { 0.0 } else { recent.cpu_time_ns as f64 / recent.observed_ns as f64 }
    }

    /// Whether nothing happens to it now, and nothing is done for it.
    pub fn is_idle(&self) -> bool {
        !self.held && self.retaining.is_empty() && self.cpus_lately() < IDLE_BELOW
    }
}

/// A trial: windows with and without retention, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusTrial {
    /// When it ended.
    pub at_ns: u64,
    /// Whether retention pays.
    pub pays: bool,
    pub reason: String,
    /// Synchronizations per second (CPU time, where those cannot be compared) with retention, over those without: the
    /// median of pairs of windows.
    pub rate_ratio: Option<f64>,
    /// The lowest and the highest pair.
    pub rate_range: Option<[f64; 2]>,
    pub pairs: u64,
    /// Before then there is no other; null: there will be none.
    pub next_at_ns: Option<u64>,
}

impl StatusTrial {
    /// Of what a trial found in each pair.
    pub fn of(at: Nanos, pays: bool, reason: &Reason, rates: &[f64], next: Option<Nanos>) -> Self {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        let range = rates.first().zip(rates.last()).map(|(low, high)| [*low, *high]);
        Self {
            at_ns: at.0,
            pays,
            reason: reason.to_string(),
            rate_ratio: gleaner_stats::median(&rates).filter(|ratio| ratio.is_finite()),
            rate_range: range.filter(|range| range.iter().all(|ratio| ratio.is_finite())),
            pairs: rates.len() as u64,
            next_at_ns: next.map(|next| next.0),
        }
    }

    /// Whether all pairs are on one side of 1, but for one where the median is clear: what differs by less than the
    /// machine's noise is not shown.
    pub fn is_shown(&self) -> bool {
        let clear = self.pays && self.rate_ratio.is_some_and(|ratio| ratio > CLEARLY_FASTER);
        clear || self.rate_range.is_none_or(|[low, high]| low > 1.0 || high < 1.0)
    }

    /// When the next one comes, in words.
    pub fn next(&self, now_ns: u64) -> Option<String> {
        let left = Nanos(self.next_at_ns?.saturating_sub(now_ns));
        Some(if left == Nanos::ZERO { "as soon as it is quiet".to_owned() } else { format!("in {left} or later") })
    }
}

impl StatusReport {
    /// Whether it keeps vCPUs awake for the groups that ask for it, where there are any.
    pub fn acts(&self) -> bool {
        !self.dry_run && (self.retention.is_some() || self.groups.iter().all(|group| group.policy != "retain"))
    }

    /// Groups as a person may read them: of many those that did most lately come first, and how many idle ones are left
    /// out; few are all there, in the daemon's order.
    pub fn by_what_happens(&self) -> (Vec<&StatusGroup>, usize) {
        if self.groups.len() <= GROUPS_SHOWN {
            return (self.groups.iter().collect(), 0);
        }
        let mut shown: Vec<&StatusGroup> = self.groups.iter().filter(|group| !group.is_idle()).collect();
        shown.sort_by(|a, b| b.cpus_lately().total_cmp(&a.cpus_lately()));
        let idle = self.groups.len() - shown.len();
        (shown, idle)
    }

    pub fn waiting_named(&self, name: &str) -> Option<&StatusWaiting> {
        self.waiting.iter().find(|waiting| waiting.name == name)
    }

    /// The group of this name; or all that a wildcard of this name stands for.
    pub fn groups_named(&self, name: &str) -> Vec<&StatusGroup> {
        let below = |group: &&StatusGroup| group.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        self.groups.iter().filter(|group| group.name == name || below(group)).collect()
    }
}
