//! The paper's machine: Xen 4.2's credit scheduler on one socket of four cores, HVM guests with four vCPUs (section
//! III-B).

use crate::config::{Config, CreditParams, HostConfig, LazyTlb, PauseLoop, Scheduler, VmConfig};
use crate::engine::Time;
use crate::program::Workload;
use crate::reproduce::result::{Extent, ReproduceError, seeds};
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
    pub slice: Time,
    /// Pause-loop exits, which Xen has on by itself.
    pub ple: bool,
    /// Simulated time of a run.
    pub length: Time,
    /// Runs with a seed each: rates are means over beginnings.
    pub runs: u64,
    /// Of everything that is drawn.
    pub seed: u64,
}

/// Xen 4.2's csched_init: credit once a slice, and three ticks a slice, or one where a slice has less than three
/// milliseconds. The ratelimit of 1 ms cannot be longer than a slice.
fn credit(slice: Time) -> Scheduler {
    let xen = CreditParams::XEN;
    let tick = if slice < 3 * MS { slice } else { slice / 3 };
    Scheduler::Credit(CreditParams { slice, ratelimit: xen.ratelimit.min(slice), tick, period: slice })
}

/// Of `cache_refill_ns`: larger working sets come back while the program goes on.
pub(super) const REFILL_SOURCE: &str = "both first-level caches, 1,024 lines from the third level at 2.4 GHz in 5.2 cycles each, what independent random reads take on a Westmere (7-cpu.com); one after the other they would take 40";

/// What things cost there.
pub(super) fn costs() -> Costs {
    Costs { cache_refill_ns: 1_024 * 52 * 100 / 2_400, ..Costs::XEN_2014 }
}

/// A guest of Linux 3.5.7.
fn guest(name: &str, work: Workload) -> VmConfig {
    let mut vm = VmConfig::new(name, PCPUS, costs(), work);
    vm.guest.lazy_tlb = LazyTlb::Leaves;
    vm
}

impl Bed {
    /// With Xen's slice: eight runs of so long, or, to see that it runs, one.
    pub(super) fn xen(length: Time, extent: &Extent) -> Self {
        let runs = if extent.smoke { 1 } else { 8 };
        Self { slice: XEN_SLICE, ple: true, length, runs, seed: extent.seed }
    }

    /// Each run.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> + use<> {
        let bed = *self;
        seeds(bed.seed, bed.runs).map(move |seed| Self { seed, ..bed })
    }

    /// Work done a second by each of these virtual machines.
    pub(super) fn rates(&self, vms: impl Fn() -> Vec<(String, Workload)>) -> Result<Vec<f64>, ReproduceError> {
        let mut means = Vec::new();
        for bed in self.each() {
            let result = bed.run(vms())?;
            means.resize(result.vms.len(), 0.0);
            for (vm, mean) in means.iter_mut().enumerate() {
                *mean += rate(&result, vm) / self.runs as f64;
            }
        }
        Ok(means)
    }

    /// Work done a second by this virtual machine alone with that share of all CPUs.
    pub(super) fn capped(&self, vm: impl Fn() -> (String, Workload), share: f64) -> Result<f64, ReproduceError> {
        self.each().map(|bed| Ok(capped(&bed.run(vec![vm()])?, share) / self.runs as f64)).sum()
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
        let ple = self.ple.then_some(PauseLoop::XEN);
        let host = HostConfig { ple, ..HostConfig::new(PCPUS, credit(self.slice)) };
        let case = vms.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" + ");
        // They begin on a pCPU each, as Xen creates them (cpumask_cycle in XEN_DOMCTL_max_vcpus), and may go anywhere.
        let vms = vms.into_iter().map(|(name, work)| guest(&name, work)).collect();
        let config = Config { seed: self.seed, end: self.length, trace, ..Config::new(host, vms) };
        let run = Simulation::new(config).and_then(Simulation::run);
        run.map_err(|error| ReproduceError::Simulation { case, error })
    }
}

/// Work done a second.
pub(super) fn rate(result: &SimResult, vm: usize) -> f64 {
    result.vms[vm].totals.items as f64 / (result.end_ns as f64 / S as f64)
}

/// What a solo run would do with that share of all CPUs, which is what the paper's equal-capped solo runs are for: the
/// same time, and none of time-sharing's effects. A program that does not use more than its share is not capped.
fn capped(solo: &SimResult, share: f64) -> f64 {
    let busy: Time = solo.pcpu_busy_ns.iter().sum();
    let used = busy as f64 / (solo.end_ns as f64 * f64::from(PCPUS));
    rate(solo, 0) * (share / used).min(1.0)
}
