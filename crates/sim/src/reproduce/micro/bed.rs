//! The paper's machine: Xen 4.2's credit scheduler on one socket of four cores, HVM guests with four vCPUs (section III-B).

use super::super::ReproduceError;
use crate::config::{Config, CreditParams, HostConfig, PauseLoop, Scheduler, VmConfig};
use crate::engine::Time;
use crate::program::Workload;
use crate::{Costs, SimResult, Simulation, Timeline};

pub(super) const US: Time = 1_000;
pub(super) const MS: Time = 1_000 * US;
pub(super) const S: Time = 1_000 * MS;
/// Xen's own slice.
pub(super) const XEN_SLICE: Time = 30 * MS;
/// The socket that guests run on.
const PCPUS: u32 = 4;

/// One setting of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bed {
    /// Time slice.
    pub slice: Time,
    /// Pause-loop exits.
    pub ple: bool,
    /// Simulated time.
    pub length: Time,
    /// Of everything that is drawn.
    pub seed: u64,
}

/// Xen 4.2's csched_init: three ticks a slice, credit once a slice. The ratelimit of 1 ms cannot be longer than a slice.
fn credit(slice: Time) -> Scheduler {
    let xen = CreditParams::XEN;
    Scheduler::Credit(CreditParams { slice, ratelimit: xen.ratelimit.min(slice), tick: slice / 3, period: slice })
}

/// What things cost there.
pub(super) fn costs() -> Costs {
    // A slice evicts both first-level caches: 1,024 lines of 64 bytes, from the third level in 38 cycles at 2.4 GHz each, none overlapping
    // (Intel's optimization manual, Westmere). Larger working sets come back while the program goes on.
    Costs { cache_refill_ns: 1_024 * 38 * 1_000 / 2_400, ..Costs::XEN_2014 }
}

impl Bed {
    /// With Xen's slice.
    pub(super) fn xen(length: Time, seed: u64) -> Self {
        Self { slice: XEN_SLICE, ple: false, length, seed }
    }

    /// Runs these workloads, a virtual machine each.
    pub(super) fn run(&self, vms: Vec<(String, Workload)>) -> Result<SimResult, ReproduceError> {
        self.start(vms, false).map(|(result, _)| result)
    }

    /// And keeps the timeline.
    pub(super) fn traced(&self, vms: Vec<(String, Workload)>) -> Result<(SimResult, Timeline), ReproduceError> {
        self.start(vms, true).map(|(result, timeline)| (result, timeline.unwrap_or_default()))
    }

    fn start(
        &self,
        vms: Vec<(String, Workload)>,
        trace: bool,
    ) -> Result<(SimResult, Option<Timeline>), ReproduceError> {
        let ple = self.ple.then_some(PauseLoop::KVM);
        let host = HostConfig { ple, ..HostConfig::new(PCPUS, credit(self.slice)) };
        let case = vms.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" + ");
        let vms = vms.into_iter().map(|(name, work)| VmConfig::new(&name, PCPUS, costs(), work)).collect();
        let config = Config { seed: self.seed, end: self.length, trace, ..Config::new(host, vms) };
        let run = Simulation::new(config).and_then(Simulation::run);
        run.map_err(|error| ReproduceError::Simulation { case, error })
    }
}

/// Work done a second.
pub(super) fn rate(result: &SimResult, vm: usize) -> f64 {
    result.vms[vm].totals.items as f64 / (result.end_ns as f64 / S as f64)
}

/// What a solo run would do with that share of all CPUs, which is what the paper's equal-capped solo runs are for: the same time, and none
/// of time-sharing's effects. A program that does not use more than its share is not capped.
pub(super) fn capped(solo: &SimResult, share: f64) -> f64 {
    let busy: Time = solo.pcpu_busy_ns.iter().sum();
    let used = busy as f64 / (solo.end_ns as f64 * f64::from(PCPUS));
    rate(solo, 0) * (share / used).min(1.0)
}
