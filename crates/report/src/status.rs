//! `gleaner.status/1`: what the daemon manages, by which means, what it decided and why, what that has won.

use crate::host_run::HostDecisionRecord;
use crate::run::{DecisionRecord, IdleEndedBy, ObservedLengths};
use crate::text::{count, duration, percent, table};
use crate::told::told;
use crate::verify::VerifiedFile;
use gleaner_model::{CLEARLY_FASTER, CpuSet, Nanos, VcpuId};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// The daemon at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// `gleaner.status/1`.
    pub schema: String,
    /// Of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Since it began: the clock of `at_ns`.
    pub up_ns: u64,
    /// When it began, since 1970; null from an earlier version.
    #[serde(default)]
    pub began_unix_ns: Option<u64>,
    /// Whether nothing is changed, only watched.
    pub dry_run: bool,
    /// Where it runs; null from an earlier version.
    #[serde(default)]
    pub machine: Option<StatusMachine>,
    /// `procfs` or `bpf`; null from an earlier version.
    #[serde(default)]
    pub observer: Option<String>,
    /// What the vCPUs did since the daemon began, while there was a group; null from an earlier version.
    #[serde(default)]
    pub times: Option<StatusTimes>,
    /// The same of the last one to two seconds.
    #[serde(default)]
    pub recent: Option<StatusTimes>,
    /// The files that it is configured by, later ones over earlier ones.
    pub configuration: Vec<String>,
    /// What is wrong with the configuration that was to be reloaded last; null: nothing.
    pub reload_error: Option<String>,
    /// How long windows are now.
    pub window_ns: u64,
    /// Whether that is more than it should be, because observing takes all that it may.
    #[serde(default)]
    pub windows_paced: bool,
    /// CPU time of observing and deciding.
    pub overhead_cpu_ns: u64,
    /// What the daemon took of CPUs lately, as the kernel counts it; null from an earlier version.
    #[serde(default)]
    pub cost: Option<StatusCost>,
    /// `haltpoll`, `pm-qos`, `idle-poll` or `yielding`; null where nothing is retained.
    pub retention: Option<String>,
    /// Idle time bridged, summed over vCPUs.
    pub retained_ns: u64,
    /// How often a contention guard stopped retention.
    pub guard_trips: u64,
    /// The time-out in force on each retained vCPU, whichever group asked for it.
    pub retaining: Vec<StatusVcpu>,
    /// What the daemon has set, and somebody else has changed since; each as in `gleaner.verify/1`.
    #[serde(default)]
    pub settings_differ: Vec<VerifiedFile>,
    /// What is managed.
    pub groups: Vec<StatusGroup>,
    /// The host agent; left out where there is to be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<StatusHost>,
    /// Everything that is weaker than it might be.
    pub warnings: Vec<String>,
}

/// What the daemon took of CPUs lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusMachine {
    /// `KVM`, `Xen`, ...; null on bare metal, and where nothing tells.
    pub hypervisor: Option<String>,
    /// Kernel release.
    pub kernel: String,
    /// vCPUs that groups may use.
    pub vcpus: u64,
}

/// What the vCPUs did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The time of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusVcpuTimes {
    /// Its number.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusRecent {
    /// How long it was watched.
    pub observed_ns: u64,
    /// Its CPU time.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusVcpu {
    /// Its number.
    pub vcpu: u32,
    /// For how long.
    pub timeout_ns: u64,
}

/// A managed group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusGroup {
    /// That of the configuration; with what a wildcard stands for behind it.
    pub name: String,
    /// What it is, in words.
    pub target: String,
    /// Its profile.
    pub profile: String,
    /// Its policy.
    pub policy: String,
    /// `bpf` or `procfs`: which observer sees it now; null: a daemon that does not say.
    #[serde(default)]
    pub observer: Option<String>,
    /// When it was adopted.
    pub since_ns: u64,
    /// vCPUs it may use.
    pub vcpus: u64,
    /// How it stands, in words.
    pub state: String,
    /// Whether it is left alone because somebody said so (`gleaner hold`).
    #[serde(default)]
    pub held: bool,
    /// The vCPUs it runs on; empty from an earlier version.
    #[serde(default)]
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
    #[serde(default)]
    pub idle_entries: Option<u64>,
    /// What ended them; null without BPF.
    #[serde(default)]
    pub idle_ended_by: Option<IdleEndedBy>,
    /// The paper's measurements since then; `wake_to_run` is null without BPF.
    #[serde(default)]
    pub lengths: ObservedLengths,
    /// What it did in the last one to two seconds; null from an earlier version.
    #[serde(default)]
    pub recent: Option<StatusRecent>,
    /// Who wakes whom, in plain words, such as `hand-offs: ...`; null without BPF.
    #[serde(default)]
    pub wake_pattern: Option<String>,
    /// What retention has won, as it was last tried on the running program; null: not tried yet.
    pub trial: Option<StatusTrial>,
    /// Decisions so far.
    pub decisions_count: u64,
    /// The newest ones, oldest first; `hold` and `manage` are what somebody ordered.
    pub decisions: Vec<DecisionRecord>,
    /// What would change how it stands, in words.
    pub would_change: Vec<String>,
}

/// The host agent at one moment: what it gives the VMs of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Decisions so far.
    pub decisions_count: u64,
    /// The newest ones, oldest first.
    pub decisions: Vec<HostDecisionRecord>,
    /// Everything that is weaker than it might be.
    pub warnings: Vec<String>,
}

/// A VM of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusVm {
    /// Its process.
    pub vm: u32,
    /// What its monitor calls it.
    pub name: String,
    /// Its vCPU threads.
    pub vcpus: u64,
    /// The slice that the agent gives them; null: none so far.
    pub slice_ns: Option<u64>,
}

/// A trial: windows with and without retention, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusTrial {
    /// When it ended.
    pub at_ns: u64,
    /// Whether retention pays.
    pub pays: bool,
    /// In plain words.
    pub reason: String,
    /// Synchronizations per second (CPU time, where those cannot be compared) with retention, over those without: the
    /// median of pairs of windows.
    pub rate_ratio: Option<f64>,
    /// The lowest and the highest pair.
    pub rate_range: Option<[f64; 2]>,
    /// Pairs compared.
    pub pairs: u64,
    /// Before then there is no other; null: there will be none.
    #[serde(default)]
    pub next_at_ns: Option<u64>,
}

impl StatusTrial {
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
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.status/1";

    /// Whether it keeps vCPUs awake for the groups that ask for it, where there are any.
    pub fn acts(&self) -> bool {
        !self.dry_run && (self.retention.is_some() || self.groups.iter().all(|group| group.policy != "retain"))
    }

    /// The group of this name; or all that a wildcard of this name stands for.
    pub fn groups_named(&self, name: &str) -> Vec<&StatusGroup> {
        let below = |group: &&StatusGroup| group.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        self.groups.iter().filter(|group| group.name == name || below(group)).collect()
    }

    /// Of some groups: how they stand, the newest decisions, what would change it.
    pub fn explain(&self, groups: &[&StatusGroup]) -> String {
        let mut text = self.differences();
        for group in groups {
            // A String takes everything.
            let _ = group.explain(self.up_ns, &mut text);
        }
        text
    }

    /// What somebody else has changed, a line each.
    fn differences(&self) -> String {
        let line = |file: &VerifiedFile| format!("  DIFFERS    {}\n", file.difference());
        self.settings_differ.iter().map(line).collect()
    }

    /// Whether what is set for one vCPU holds for all.
    fn keeps_all_awake(&self) -> bool {
        self.retention.as_deref() == Some("haltpoll") && !self.retaining.is_empty()
    }

    /// Of one vCPU: whether it is kept awake, who asked, and what was last decided for it.
    pub fn explain_vcpu(&self, vcpu: u32) -> String {
        let mut text = match self.retaining.iter().find(|found| found.vcpu == vcpu) {
            Some(found) => format!("vCPU {vcpu} is kept awake for {}\n", Nanos(found.timeout_ns)),
            None if self.keeps_all_awake() => {
                format!("vCPU {vcpu} polls too: haltpoll is the whole machine's; nothing was decided for it\n")
            }
            None => format!("vCPU {vcpu} halts as the kernel likes\n"),
        };
        for group in &self.groups {
            let of_it = group.decisions.iter().rev().find(|decision| decision.vcpu.is_none_or(|of| of == vcpu));
            if let Some(DecisionRecord { at_ns, action, reason, .. }) = of_it {
                let ago = Nanos(self.up_ns.saturating_sub(*at_ns));
                let _ = writeln!(text, "  {}: {action} {ago} ago: {reason}", group.name);
            }
        }
        text
    }
}

impl StatusGroup {
    fn explain(&self, now_ns: u64, text: &mut String) -> fmt::Result {
        writeln!(text, "{} ({}), profile {}, policy {}", self.name, self.target, self.profile, self.policy)?;
        writeln!(text, "  now        {}", self.state)?;
        writeln!(text, "  seen by    {}", self.seen_by())?;
        if let Some(ended) = self.idle_ended_by {
            writeln!(text, "  idle       {ended}")?;
        }
        if let Some(pattern) = &self.wake_pattern {
            writeln!(text, "  waits      {pattern}")?;
        }
        if let Some(trial) = &self.trial {
            writeln!(text, "  tried      {} ago: {}", Nanos(now_ns.saturating_sub(trial.at_ns)), trial.reason)?;
            if let (Some(ratio), Some([low, high])) = (trial.rate_ratio, trial.rate_range) {
                let shown = if trial.is_shown() { "" } else { ": no difference is shown" };
                writeln!(
                    text,
                    "             {ratio:.2} times the rate, {low:.2} to {high:.2} in {} pairs{shown}",
                    trial.pairs
                )?;
            }
            if let Some(next) = trial.next(now_ns) {
                writeln!(text, "             tried again {next}")?;
            }
        }
        for told in told(&self.decisions).iter().rev() {
            let ago = Nanos(now_ns.saturating_sub(told.at_ns())).to_string();
            writeln!(text, "  {ago:>7} ago  {told}")?;
        }
        let left_out = self.decisions_count - (self.decisions.len() as u64).min(self.decisions_count);
        if left_out > 0 {
            writeln!(text, "             and {} before", count(left_out, "decision"))?;
        }
        for line in &self.would_change {
            writeln!(text, "  changes if {line}")?;
        }
        Ok(())
    }

    fn seen_by(&self) -> &str {
        self.observer.as_deref().unwrap_or("?")
    }

    fn won(&self) -> String {
        match self.trial.as_ref().map(|trial| (trial.pays, trial.rate_ratio)) {
            Some((_, Some(_))) if self.trial.as_ref().is_some_and(|trial| !trial.is_shown()) => "not shown".to_owned(),
            Some((true, Some(ratio))) => format!("x{ratio:.2}"),
            Some((true, None)) => "yes".to_owned(),
            Some((false, _)) => "no gain".to_owned(),
            None => "-".to_owned(),
        }
    }
}

impl StatusHost {
    /// How it stands: each VM, the newest decisions.
    pub fn explain(&self) -> String {
        let mut text = format!("{self}\n");
        for vm in &self.vms {
            let slice = vm.slice_ns.map_or_else(|| "its own slice".to_owned(), |ns| format!("slice {}", Nanos(ns)));
            let _ = writeln!(text, "  {} ({}), {}: {slice}", vm.name, vm.vm, count(vm.vcpus, "vCPU"));
        }
        for decision in &self.decisions {
            let ago = Nanos(self.up_ns.saturating_sub(decision.at_ns)).to_string();
            let name = self.vms.iter().find(|vm| vm.vm == decision.vm).map_or("a VM that has gone", |vm| &vm.name);
            let _ = writeln!(text, "  {ago:>7} ago  {name}: {}: {}", Nanos(decision.slice_ns), decision.reason);
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "  note       {warning}");
        }
        text
    }
}

impl fmt::Display for StatusHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why_not) = &self.why_not {
            return write!(f, "host agent: {why_not}");
        }
        let mut slices: Vec<Nanos> = self.vms.iter().filter_map(|vm| vm.slice_ns.map(Nanos)).collect();
        slices.sort_unstable();
        slices.dedup();
        let slices: Vec<String> = slices.iter().map(ToString::to_string).collect();
        let slices = if slices.is_empty() { "none set".to_owned() } else { slices.join(", ") };
        write!(f, "host agent, {}: {}, slices {slices}", self.policy, count(self.vms.len() as u64, "VM"))
    }
}

impl StatusReport {
    /// What the process takes of one CPU: lately; from an earlier version, that of observing since it began.
    pub fn cpu_share(&self) -> f64 {
        let since_it_began = || self.overhead_cpu_ns as f64 / self.up_ns.max(1) as f64;
        self.cost.and_then(|cost| cost.cpu_share()).unwrap_or_else(since_it_began)
    }

    fn cost_in_words(&self) -> String {
        let lately = self.cost.map(|cost| {
            let bpf = cost.bpf_share().map(|share| format!("; its BPF programs {} of one", percent(share)));
            format!(" (in the last {}{})", Nanos(cost.elapsed_ns), bpf.unwrap_or_default())
        });
        let paced = if self.windows_paced { ", as short as daemon.overhead allows" } else { "" };
        let (share, window) = (percent(self.cpu_share()), Nanos(self.window_ns));
        format!("{share} of one CPU{}, windows of {window}{paced}", lately.unwrap_or_default())
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.dry_run { ", which changes nothing (dry run)" } else { "" };
        writeln!(f, "gleaner {} as process {}, up {}{what}", self.version, self.pid, Nanos(self.up_ns))?;
        let files = if self.configuration.is_empty() { "no file".to_owned() } else { self.configuration.join(", ") };
        writeln!(f, "  configured by {files}")?;
        if let Some(error) = &self.reload_error {
            writeln!(f, "  RELOAD     failed, the earlier configuration counts: {error}")?;
        }
        let by = self.retention.as_deref().unwrap_or("nothing");
        let awake: CpuSet = self.retaining.iter().map(|vcpu| VcpuId(vcpu.vcpu)).collect();
        let awake = if awake.is_empty() { "none".to_owned() } else { awake.to_string() };
        let by = if self.keeps_all_awake() { format!("{by}, which makes all poll") } else { by.to_owned() };
        writeln!(f, "  vCPUs kept awake: {awake}, by {by}; {} of idle time bridged", duration(Some(self.retained_ns)))?;
        f.write_str(&self.differences())?;
        writeln!(f, "  observing takes {}", self.cost_in_words())?;
        if let Some(host) = &self.host {
            writeln!(f, "  {host}")?;
        }
        if self.groups.is_empty() && self.host.is_some() {
            return Ok(());
        }
        if self.groups.is_empty() {
            return writeln!(f, "  nothing of what the configuration names runs");
        }
        let mut rows = table(&["group", "profile", "managed", "CPUs used", "threads", "seen by", "won", "now"]);
        for group in &self.groups {
            let managed = self.up_ns.saturating_sub(group.since_ns);
            rows.add_row([
                group.name.clone(),
                group.profile.clone(),
                Nanos(managed).to_string(),
                format!("{:.2}", group.cpu_time_ns as f64 / managed.max(1) as f64),
                group.threads_max.map_or_else(|| "-".to_owned(), |threads| threads.to_string()),
                group.seen_by().to_owned(),
                group.won(),
                group.state.clone(),
            ]);
        }
        writeln!(f, "\n{rows}")?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  note       {warning}"))
    }
}
