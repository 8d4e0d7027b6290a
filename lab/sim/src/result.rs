//! The result of a simulation: each VM's times, work and latencies.

use crate::engine::Time;
use crate::vcpu::VcpuTotals;
use gleaner_model::{Decision, Distribution, HostDecision, RetainCounters};

/// What a virtual machine's threads did, as it goes.
#[derive(Clone, Debug, Default)]
pub struct VmTotals {
    /// Items done.
    pub items: u64,
    /// When the last one was.
    pub last_item_at: Time,
    /// From an item's stamp until it was done.
    pub latency: Distribution,
    /// Threads that have not ended.
    pub threads_left: u32,
    /// When the last one ended.
    pub ended_at: Option<Time>,
    /// Switches by threads that blocked.
    pub voluntary_switches: u64,
    /// Switches by the guest's scheduler.
    pub involuntary_switches: u64,
    /// How long threads waited for ticket locks, those that did not wait included.
    pub spin_waits: Distribution,
    /// How long they held them.
    pub spin_holds: Distribution,
    /// How long shootdowns took.
    pub shootdowns: Distribution,
    /// A thread's computation between two waits; kept where somebody observes.
    pub g_comp: Distribution,
    /// From a thread's wake-up until it ran; kept where somebody observes.
    pub wake_to_run: Distribution,
}

/// One virtual machine's result.
#[derive(Clone, Debug)]
pub struct VmResult {
    /// Its name.
    pub name: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Its threads.
    pub totals: VmTotals,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuTotals>,
    /// CPU time of its threads.
    pub cpu_ns: Time,
    /// Of that, spinning in the kernel.
    pub spun_ns: Time,
    /// Threads that went on on another vCPU.
    pub migrations: u64,
    /// What Gleaner decided.
    pub decisions: Vec<Decision>,
    /// What its yielding threads counted.
    pub yielding: Vec<RetainCounters>,
    /// vCPUs its workload was allowed, on average over time; `None` where nobody manages it.
    pub active_vcpus_mean: Option<f64>,
    /// The retention time-out in force.
    pub timeout_ns: Option<Time>,
}

impl VmResult {
    /// When its threads had ended, or the end of the simulation.
    pub fn wall_ns(&self, end: Time) -> Time {
        self.totals.ended_at.unwrap_or(end)
    }

    /// The vCPUs' totals together.
    pub fn sum(&self, of: impl Fn(&VcpuTotals) -> u64) -> u64 {
        self.vcpus.iter().map(of).sum()
    }
}

/// A simulation's result.
#[derive(Clone, Debug)]
pub struct SimResult {
    /// When it ended.
    pub end_ns: Time,
    /// Whether the measured workloads had ended by then.
    pub complete: bool,
    /// Whether it was ended from outside before that, and before its time was over.
    pub stopped: bool,
    /// Events dealt with.
    pub events: u64,
    /// Busy time of each pCPU.
    pub pcpu_busy_ns: Vec<Time>,
    /// Times a pCPU changed to another vCPU, or came out of idleness.
    pub vcpu_switches: u64,
    /// What Gleaner decided on the host; virtual machines by their number.
    pub slice_decisions: Vec<HostDecision>,
    /// The virtual machines, in their order.
    pub vms: Vec<VmResult>,
}

impl SimResult {
    /// The virtual machine of that name.
    pub fn vm(&self, name: &str) -> Option<&VmResult> {
        self.vms.iter().find(|vm| vm.name == name)
    }
}
