//! The result of a simulation: each VM's times, work and latencies.

use crate::engine::Time;
use crate::totals::{VcpuTotals, VmTotals};
use gleaner_model::{Decision, HostDecision, RetainCounters};

/// One virtual machine's result.
#[derive(Clone, Debug)]
pub struct VmResult {
    pub name: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Its threads.
    pub totals: VmTotals,
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
