//! The world -> [`gleaner_model::Window`].
//!
//! Problem: see what the vCPUs and the managed group of threads do, at a cost nobody notices, on machines where Gleaner
//! may do anything and on machines where it may do nothing. Two observers fill the same window:
//!
//! ```text
//!   Observer ─┬─ bpf     programs on the scheduler's tracepoints: exact, with distributions; needs privilege
//!             └─ procfs  files of /proc: means; needs none
//!   burst: more to do than the active vCPUs can take, told at once
//!   target: what runs already and is to be managed, and how it is found
//!   system, hypervisor, capabilities: what `doctor` asks
//!   run_intervals: what slices threads really got, and where they compete
//!   system_calls: how many a few processes make, for as long as places are compared
//!   neighbours: who else steers these vCPUs
//!   host: what a host is, and what things cost on it
//!   vmm: which VMs run on this host, and which threads are their vCPUs
//! ```
//!
//! Every reader starts from a [`ProcRoot`], so that tests hand in trees of their own.

mod bound;
mod bpf;
mod burst;
mod capabilities;
mod config;
mod cpuidle;
mod error;
mod host;
mod hypervisor;
mod neighbours;
mod observer;
mod procfs;
mod progress;
mod run_intervals;
mod seen;
mod system;
mod system_calls;
mod target;
mod vmm;

pub use gleaner_sys::{CpuTimes, ProcRoot, StatReader, SystemStat};

pub use bpf::{BpfObserver, BpfRefusal, BusySignal, BusyWaker};
pub use burst::{BurstLook, BurstSignal, BurstStop};
pub use capabilities::{Capabilities, capabilities};
pub use config::{ObserverChoice, ObserverConfig};
pub use error::ObserveError;
pub use host::{
    Fact, HaltPolling, HostFacts, KernelVersion, PauseExits, RefillCost, RtBudget, SliceIssue, SwitchCost, host_facts,
    slice_issues, switch_and_refill,
};
pub use hypervisor::{Evidence, Hypervisor, hypervisor};
pub use neighbours::{Neighbours, irqbalance, neighbours, never_halts, sched_ext};
pub use observer::Observer;
pub use procfs::ProcfsObserver;
pub use progress::ProgressFile;
pub use run_intervals::{
    CompetingThreads, Competition, IntervalDistribution, Intervals, IntervalsWindow, RunIntervals, RunIntervalsConfig,
    ThreadIntervals,
};
pub use seen::{Seen, SeenGroup};
pub use system::online_cpus;
pub use system_calls::SystemCallCounter;
pub use target::{Cgroups, LastRoots, Selector, Target, TargetError, vcpus_of};
pub use vmm::{
    Accelerator, Activity, CgroupPath, PassedOver, PauseExitCounters, PauseExitRefusal, SchedPolicy, SelectError,
    ThreadCounters, ThreadStat, VcpuActivity, VcpuLoad, VcpuThread, Vm, Vmm, WatchedVcpus, cgroup_of, cpu_limit,
    discover, entitlements, select, thread_stat,
};
