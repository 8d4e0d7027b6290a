//! `gleaner.scenario/1`: what real virtual machines did under a scenario, run by run, and what follows from it.

mod in_turn;
mod shown;
mod summary;

pub use in_turn::{InTurnRun, InTurnSlice, InTurnVm, SliceTurn};
pub use summary::{MetricMedian, RatioSpread, ScenarioRow};

use gleaner_report::{LatencyReport, RunReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the test bed measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioReport {
    pub schema: String,
    /// The scenario's name.
    pub name: String,
    /// The question.
    pub description: String,
    /// What it ran on.
    pub host: HostFacts,
    /// The scenario, whole, as it was run: with `--rounds`, `--work` and `--only`.
    pub scenario: Value,
    /// Why there is less than the scenario asked for; null when all of it is there.
    pub incomplete: Option<String>,
    /// The virtual machines.
    pub vms: Vec<VmFacts>,
    /// Every measured run, in the order in which they were made. Warm-up rounds are here too.
    pub runs: Vec<ScenarioRun>,
    /// Runs within which slices took turns (`machine.in_turn`); then there are no `runs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_turn: Vec<InTurnRun>,
    /// Every background workload alone.
    pub solos: Vec<SoloRun>,
    /// Per VM, workload, background and policy: warm-up rounds and failed runs left out.
    pub summary: Vec<ScenarioRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// CPUs online.
    pub cpus: u32,
    pub kernel: String,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// QEMU's version.
    pub qemu: String,
    /// Start, seconds since 1970 in UTC, as 2026-11-21T23:34:27Z.
    pub date: String,
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmFacts {
    /// Its name in the scenario.
    pub vm: String,
    /// `measured` or `background`.
    pub role: String,
    pub vcpus: u32,
    /// The kernel it runs.
    pub kernel: String,
    /// From QEMU's start until it was ready.
    pub boot_ns: u64,
    /// Boots until one was not broken by the emulator.
    pub boots: u32,
    /// Retention time-outs measured after boot; null where no policy asked for them. 0: halting is free, nothing to
    /// retain.
    pub frugal_ns: Option<u64>,
    /// The same of the balanced profile.
    pub balanced_ns: Option<u64>,
}

/// One run of a measured workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRun {
    /// Counted from 0, warm-up rounds first.
    pub round: u32,
    /// Whether it does not count: the round is one of the warm-up, or `adaptive` was still searching its slices.
    pub warmup: bool,
    /// Place of the combination in its round, from 0. Runs of several VMs at the same time share it.
    pub order: u32,
    pub vm: String,
    pub workload: String,
    pub policy: String,
    /// vCPUs' slice on the host meanwhile (`kernel`, `adaptive`, or a duration); null where the scenario compares none.
    pub slice: Option<String>,
    /// What came of it; null where nobody set slices.
    pub delivered: Option<DeliveredSlices>,
    /// What the others did meanwhile.
    pub background: Vec<BackgroundRate>,
    /// Start of the workload, since the first round began, on the host's clock.
    pub at_ns: u64,
    /// From the workload's exec to its exit, as `gleaner run` saw it; null when it gave no result.
    pub wall_ns: Option<u64>,
    /// The same on the host's clock.
    pub host_wall_ns: u64,
    /// Its throughput by its own account, or a command's metric where higher is better; null where it gives none.
    pub items_per_second: Option<f64>,
    /// The figure found in a command's output; null where none was looked for, or found.
    pub metric: Option<MetricFound>,
    /// Latency by its own account (of `spin-lock`, waiting for the lock); null where it gives none.
    pub latency: Option<LatencyReport>,
    /// How long a lock was held at a time, by its own account; null where it gives none.
    pub holding: Option<LatencyReport>,
    /// As a shell would say it; 124 for a run that was over `run_timeout`.
    pub exit_status: i32,
    /// Why it failed, in words; null for a run that counts.
    pub failure: Option<String>,
    /// Proves that the same work was done; null where the workload has none.
    pub checksum: Option<String>,
    /// CPU time that the VM's threads used on the host meanwhile.
    pub host_cpu_ns: Option<u64>,
    /// Last lines of what it wrote, when it failed; else null.
    pub output: Option<String>,
    /// Cgroups and journals of Gleaner that were there afterwards: there should be none.
    pub left_behind: Vec<String>,
    /// What Gleaner said of it; null when it said nothing.
    pub run: Option<RunFigures>,
}

/// A figure found in a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricFound {
    /// Above 0.
    pub value: f64,
    /// False of a latency.
    pub higher_is_better: bool,
}

/// What `gleaner host run` said of a run's slices, background and measured VMs together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveredSlices {
    /// Median of the run intervals that ended by preemption, the longest of the VMs' medians. Null
    /// without BPF.
    pub p50_ns: Option<u64>,
    /// Their 90th percentile, likewise.
    pub p90_ns: Option<u64>,
    /// From a vCPU's wake-up to running, 99th percentile, of the VM with the longest.
    pub wake_to_run_p99_ns: Option<u64>,
    /// CPU time of enforcing (tickers, and asking where vCPUs compete) by wall time, the mean over the CPUs that had a
    /// ticker. Results before 2026-11-24: of a slice for all without asking, of `adaptive` the sum over the CPUs.
    pub enforcement_cpu_ratio: Option<f64>,
    /// CPU time of `adaptive`'s own loop, observing and deciding, by wall time; null of a slice for all.
    pub agent_cpu_ratio: Option<f64>,
    /// What `adaptive` had chosen at the end, the shortest of the VMs' slices; null of a slice for all.
    pub chosen_ns: Option<u64>,
    /// How often `adaptive` changed a slice while the run was measured (its search before that is in warm-up runs);
    /// null of a slice for all.
    pub changes: Option<u64>,
}

/// What a VM in the background did during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundRate {
    pub vm: String,
    /// The workload's label, or `nothing`.
    pub workload: String,
    /// Its throughput meanwhile; null where it reports none.
    pub items_per_second: Option<f64>,
}

/// A background workload alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoloRun {
    /// Counted from 0, warm-up rounds first.
    pub round: u32,
    /// Whether the round is one of the warm-up.
    pub warmup: bool,
    pub vm: String,
    pub workload: String,
    /// Start, since the first round began.
    pub at_ns: u64,
    /// Its throughput; null where it reports none.
    pub items_per_second: Option<f64>,
}

/// Figures of `gleaner.run/1`, under the same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Idle time bridged, summed over vCPUs.
    pub retained_ns: u64,
    /// Times an idle task was entered.
    pub halts: Option<u64>,
    /// Idle periods.
    pub idle_entries: Option<u64>,
    /// Mean number of vCPUs allowed.
    pub active_vcpus_mean: f64,
    /// How often the contention guard stopped a yielding thread.
    pub guard_trips: u64,
    /// CPU time of the program.
    pub cpu_time_ns: Option<u64>,
    /// Its voluntary context switches.
    pub voluntary_switches: Option<u64>,
    /// Stolen time as the guest saw it.
    pub steal_ns: Option<u64>,
    /// Retention time-out in force.
    pub timeout_ns: Option<u64>,
    /// CPU time that observing took.
    pub overhead_cpu_ns: u64,
    /// How many decisions were taken.
    pub decisions: u64,
    /// Everything that was weaker than it might be.
    pub warnings: Vec<String>,
    /// Whether all changes were undone.
    pub restored: bool,
}

impl From<&RunReport> for RunFigures {
    fn from(run: &RunReport) -> Self {
        Self {
            retained_ns: run.retained_ns,
            halts: run.halts,
            idle_entries: run.idle_entries,
            active_vcpus_mean: run.active_vcpus_mean,
            guard_trips: run.guard_trips,
            cpu_time_ns: run.cpu_time_ns,
            voluntary_switches: run.voluntary_switches,
            steal_ns: run.steal_ns,
            timeout_ns: run.timeout_ns,
            overhead_cpu_ns: run.overhead_cpu_ns,
            decisions: run.decisions.len() as u64 + run.decisions_left_out,
            warnings: run.warnings.clone(),
            restored: run.restored,
        }
    }
}
