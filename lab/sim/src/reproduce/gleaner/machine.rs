//! The paper's machine and its settings: two Xeon E5-2665 (16 cores), KVM on Linux 3.9.4, virtual machines of 16 vCPUs.

pub(super) use crate::Time;
use crate::config::{
    Config, HaltPoll, HostConfig, LazyTlb, Managed, PauseLoop, Scheduler, SimError, VmConfig, WindowParams,
};
use crate::program::{Builder, Op, Span, Workload};
use crate::reproduce::result::{Extent, ReproduceError};
use crate::{Costs, SimResult, Simulation};
use gleaner_model::{Policy, Profile};

pub(super) const US: Time = 1_000;
pub(super) const MS: Time = 1_000_000;
pub(super) const S: Time = 1_000_000_000;

/// Cores, vCPUs of a virtual machine, threads of a program.
pub(super) const CORES: u32 = 16;
const CORES_PER_SOCKET: u32 = 8;

/// How the paper runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Setting {
    /// On the hardware.
    Native,
    /// In a virtual machine with a pCPU for each vCPU.
    Dedicated { gleaner: bool },
    /// Beside another virtual machine of the same size.
    Shared { gleaner: bool, neighbour: Neighbour },
}

/// What the second virtual machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Neighbour {
    Matmul,
    Freqsleep,
    Streamcluster,
}

impl Setting {
    pub(super) fn is_virtual(self) -> bool {
        self != Self::Native
    }

    pub(super) fn gleaner(self) -> bool {
        matches!(self, Self::Dedicated { gleaner: true } | Self::Shared { gleaner: true, .. })
    }

    pub(super) fn costs(self) -> Costs {
        if self.is_virtual() { Costs::KVM_2014 } else { Costs::NATIVE_2014 }
    }
}

/// A host that its virtual machines have to themselves. Its pCPUs sleep no deeper than C1: "we disabled the C states
/// deeper than C1 (including C1E)" (section 7).
pub(super) fn dedicated(pcpus: u32) -> HostConfig {
    HostConfig {
        llc_pcpus: CORES_PER_SOCKET,
        ple: Some(PauseLoop::KVM),
        ..HostConfig::new(pcpus, Scheduler::Dedicated)
    }
}

/// CFS of Linux 3.9 with a group for each virtual machine (`CONFIG_SCHED_AUTOGROUP`). Where one keeps three vCPUs busy,
/// a wake-up does not preempt (`wakeup_gran`); the first tick after 3 ms does (`check_preempt_tick`).
pub(super) fn grouped_cfs(pcpus: u32) -> HostConfig {
    HostConfig {
        scheduler: Scheduler::Window(WindowParams::CFS),
        groups: true,
        rebalances: true,
        // kvm.ko had no halt polling before Linux 4.1.
        halt_poll: HaltPoll::OFF,
        ..dedicated(pcpus)
    }
}

/// Simulated time from when and to when rates are counted: queues have filled, and Gleaner has found its place, which
/// takes eight windows for each of 15 steps.
pub(super) fn counted(smoke: bool, gleaner: bool) -> (Time, Time) {
    match (smoke, gleaner) {
        (true, _) => (10 * MS, 25 * MS),
        (false, false) => (S, 3 * S),
        (false, true) => (12 * S, 14 * S),
    }
}

/// Longer than anything that is simulated here.
const HOUR_MS: u64 = 3_600_000;
/// nanosleep(1) of a thread with Linux's timer slack, and no yielding in between: its time-out is over until somebody
/// displaces it.
const NANOSLEEP_US: u64 = 50;

/// Gleaner as the paper describes it, with none of what is ours: factors from 1, a time-out of what a switch of vCPUs
/// costs (Table 2), sleeps of nanosleep(1), and figures with steal in them (section 6).
pub(super) fn gleaner(oversubscribed: bool) -> Managed {
    let costs = Costs::KVM_2014;
    let preempting = if oversubscribed { costs.vcpu_preempt_ns } else { 0 };
    let mut managed = Managed::new(Policy::Full);
    managed.profile = Profile::Latency;
    managed.timeout = Some(costs.vcpu_resume_ns + preempting);
    // The paper does not say how often it looks. As often as the daemon: windows of 25 ms, which settle in 3 simulated
    // seconds, hold two slices of a host that is shared, and everything in them seems to change.
    managed.window = 100 * MS;
    managed.signalled = false;
    managed.steal_visible = false;
    managed.periods_visible = false;
    let params = &mut managed.params;
    params.load_factor = 1.0;
    params.granularity_factor = 1.0;
    params.tuning.predicted_utilization_max = 1.0;
    params.tuning.fine_grained_allowance = 1.0;
    params.several_at_once = false;
    params.retention_trials = false;
    params.steal_share_stop = 1.0;
    // "calls nanosleep(1) to effect the actual vCPU suspension" (section 6), however often.
    (params.tuning.nap_min_us, params.tuning.nap_max_us, params.tuning.nap_check_us) = (NANOSLEEP_US, NANOSLEEP_US, 0);
    // "Then, it gradually reduces active vCPUs when the above two conditions are met" (section 5): at once.
    (params.tuning.hold_off_min_ms, params.tuning.hold_off_max_ms) = (1, 1);
    (params.tuning.look_out_min_ms, params.tuning.look_out_doubtful_ms, params.tuning.look_out_max_ms) =
        (HOUR_MS, HOUR_MS, HOUR_MS);
    managed
}

/// matmul: computes without end, in items of 1 ms.
pub(super) fn matmul(threads: u32) -> Workload {
    forever(threads, |b| {
        b.op(Op::Compute(Span::Fixed(MS))).op(Op::Done);
    })
}

/// freqsleep: nanosleep(1) over and over; the timers' slack makes it 50 us.
pub(super) fn freqsleep(threads: u32) -> Workload {
    forever(threads, |b| {
        b.op(Op::Compute(Span::Fixed(US))).op(Op::Sleep(Span::Fixed(1))).op(Op::Done);
    })
}

/// Programs of different virtual machines do not begin in the same nanosecond on all pCPUs; slices of equal length
/// would stay in step for ever. As in the micro-sliced paper's reproductions (micro/kernel.rs).
const BEGINS_WITHIN: Time = 30 * MS;

/// Beside another virtual machine results hang on how both begin: as in the micro-sliced paper's reproductions they are
/// means over several beginnings.
const BEGINNINGS: u64 = 4;

/// Each beginning; where nothing is shared, one is as another.
pub(super) fn beginnings(setting: Setting, extent: &Extent) -> Vec<Extent> {
    let shared = matches!(setting, Setting::Shared { .. });
    extent.beginnings(if shared && !extent.smoke { BEGINNINGS } else { 1 })
}

/// A thread of a neighbour begins at some time.
pub(super) fn begin(b: &mut Builder) {
    b.op(Op::Sleep(Span::Uniform { low: 0, high: BEGINS_WITHIN }));
}

/// Threads that repeat something.
pub(super) fn forever(threads: u32, body: impl Fn(&mut Builder)) -> Workload {
    let mut b = Builder::new();
    begin(&mut b);
    let again = b.label_here();
    body(&mut b);
    b.jump(again);
    b.threads(threads, 0);
    b.build()
}

/// A kernel of Linux 3.9, also natively.
fn guest(name: &str, setting: Setting, vcpus: u32, workload: Workload) -> VmConfig {
    let mut vm = VmConfig::new(name, vcpus, setting.costs(), workload);
    // kernel/sched/core.c, `idle_cpu`.
    vm.guest.yielding_is_idle = false;
    // arch/x86/mm/tlb.c.
    vm.guest.lazy_tlb = LazyTlb::Leaves;
    // QEMU makes a socket of each vCPU unless it is told otherwise (before 6.2: "sockets over cores over threads").
    vm.guest.llc_vcpus = if setting.is_virtual() { 1 } else { CORES_PER_SOCKET };
    // `get_update_sysctl_factor`: as `WindowParams::CFS`, for as many CPUs as there are.
    vm.guest.wakeup_granularity = MS * u64::from(1 + vcpus.clamp(1, 8).ilog2());
    vm
}

/// The machine under a setting: a virtual machine with the program, and its neighbours.
pub(super) fn config(setting: Setting, vcpus: u32, workload: Workload, neighbours: Vec<Workload>, seed: u64) -> Config {
    let oversubscribed = matches!(setting, Setting::Shared { .. });
    let mut vm = guest("app", setting, vcpus, workload);
    vm.gleaner = setting.gleaner().then(|| gleaner(oversubscribed));
    let mut vms = vec![vm];
    for (workload, number) in neighbours.into_iter().zip(1..) {
        let name = format!("neighbour-{number}");
        vms.push(guest(&name, setting, vcpus, workload).background());
    }
    let host = if oversubscribed { grouped_cfs(vcpus) } else { dedicated(vcpus) };
    Config { seed, ..Config::new(host, vms) }
}

pub(super) fn run(case: &str, config: Config) -> Result<SimResult, ReproduceError> {
    let wrong = |error: SimError| ReproduceError::Simulation { case: case.to_owned(), error };
    Simulation::new(config).map_err(wrong)?.run().map(|(result, _)| result).map_err(wrong)
}
