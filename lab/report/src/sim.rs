//! `gleaner.sim/1`: what a simulated scenario came to.

mod shown;

use gleaner_report::DecisionRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What `gleaner-lab sim run` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimReport {
    pub schema: String,
    pub scenario: String,
    /// Keys of the scenario that were set (`--set`), with their values.
    pub set: Map<String, Value>,
    /// The first round's seed; each further round has the next one.
    pub seed: u64,
    /// The simulated host.
    pub host: SimHost,
    /// What things cost in it.
    pub costs: Vec<SimCost>,
    /// One entry for each combination and round, in order.
    pub runs: Vec<SimRun>,
    /// Measured workloads under each policy, against the first policy of their VM.
    pub rows: Vec<SimRow>,
}

/// The simulated host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimHost {
    /// Physical CPUs.
    pub pcpus: u32,
    /// Its scheduler, as the scenario calls it.
    pub scheduler: String,
    /// The slice that the scenario gives; null: the scheduler's own.
    pub slice_ns: Option<u64>,
    /// Longest halt polling; 0: none.
    pub halt_poll_ns: u64,
    /// Whether there are pause-loop exits.
    pub ple: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimCost {
    pub name: String,
    /// How long it takes.
    pub value_ns: u64,
    /// What it is paid for.
    pub meaning: String,
}

/// One simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimRun {
    /// From 0.
    pub round: u32,
    pub seed: u64,
    /// When it ended, in simulated time.
    pub end_ns: u64,
    /// Whether all measured workloads had ended by then.
    pub complete: bool,
    /// Events dealt with.
    pub events: u64,
    /// Busy share of all pCPUs.
    pub pcpu_busy_ratio: f64,
    /// Times a pCPU changed to another vCPU or came out of idleness.
    pub vcpu_switches: u64,
    /// Each virtual machine.
    pub vms: Vec<SimVm>,
}

/// One virtual machine in one simulation. Times of vCPUs are summed over them; the seven parts add up to `vcpus *
/// end_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimVm {
    /// Its name.
    pub vm: String,
    /// `measured` or `background`.
    pub role: String,
    pub workload: String,
    pub policy: String,
    pub vcpus: u32,
    /// Until its last thread ended; null if it had not.
    pub wall_ns: Option<u64>,
    /// Items done.
    pub items: u64,
    /// Items per second, over `wall_ns`, or until the end.
    pub items_per_s: f64,
    /// Median time of an item, to 12.5 %; null without items.
    pub latency_p50_ns: Option<u64>,
    /// 99th percentile of it.
    pub latency_p99_ns: Option<u64>,
    /// Threads ran.
    pub work_ns: u64,
    /// Of that, spinning in the kernel.
    pub spun_ns: u64,
    /// The guest's kernel switched and handled interrupts.
    pub kernel_ns: u64,
    /// Yielding threads held the vCPU.
    pub retained_ns: u64,
    /// The guest's idle task polled.
    pub polled_ns: u64,
    /// The host switched.
    pub overhead_ns: u64,
    /// Stolen: waiting for a pCPU.
    pub stolen_ns: u64,
    pub halted_ns: u64,
    /// Idle periods that began.
    pub idle_entries: u64,
    pub halts: u64,
    /// Context switches of threads that blocked.
    pub voluntary_switches: u64,
    /// Context switches by the guest's scheduler.
    pub involuntary_switches: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Mean wait for a kernel spinlock; null without one.
    pub spin_wait_mean_ns: Option<u64>,
    /// Mean time one is held; null without one.
    pub spin_hold_mean_ns: Option<u64>,
    /// Mean time of a TLB shootdown; null without one.
    pub shootdown_mean_ns: Option<u64>,
    /// vCPUs the workload was allowed, on average; null where nobody manages it.
    pub active_vcpus_mean: Option<f64>,
    /// Retention time-out in force; null where nobody manages it.
    pub timeout_ns: Option<u64>,
    /// What Gleaner decided; at most the first hundred.
    pub decisions: Vec<DecisionRecord>,
    pub decisions_count: u64,
}

/// A measured workload under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimRow {
    pub vm: String,
    pub workload: String,
    /// What ran beside it.
    pub beside: String,
    pub policy: String,
    /// vCPUs' slice on the host (`kernel`, `adaptive`, or a duration); null where the scenario compares none.
    pub slice: Option<String>,
    /// Median over rounds.
    pub items_per_s: f64,
    /// Of `items_per_s` over the first policy's at the first slice, the median over rounds; null where that did
    /// nothing.
    pub speedup: Option<f64>,
    /// The same for the background VMs together; null without any that does items.
    pub beside_speedup: Option<f64>,
}
