//! What is simulated: the host, the virtual machines, the policies. Plain data; `scenario` makes it of a file.

use crate::costs::Costs;
use crate::engine::Time;
use crate::ids::PcpuIx;
use crate::program::Workload;
use gleaner_decide::guest::GuestParams;
use gleaner_decide::host::HostParams;
use gleaner_model::{Policy, Profile, RetainMeans};

/// Most vCPUs of a virtual machine: sets of them are words.
pub const VCPUS_PER_VM_MAX: u32 = 64;

/// A whole simulation.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the virtual machines run on.
    pub host: HostConfig,
    /// The virtual machines.
    pub vms: Vec<VmConfig>,
    /// Of everything that is drawn.
    pub seed: u64,
    /// It ends here, if the measured workloads have not ended before.
    pub end: Time,
    /// Whether to keep every vCPU's timeline.
    pub trace: bool,
}

#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Physical CPUs (hardware threads).
    pub pcpus: u32,
    /// pCPUs that share a last-level cache: a woken vCPU looks for an idle pCPU there first. 0: all.
    pub llc_pcpus: u32,
    /// Hardware threads of a core, 1 or 2.
    pub smt: u32,
    /// Who runs when.
    pub scheduler: Scheduler,
    /// Whether and how long the host polls for a halted vCPU's wake-up before it gives the pCPU away.
    pub halt_poll: HaltPoll,
    /// Pause-loop exits.
    pub ple: Option<PauseLoop>,
    /// Each virtual machine is a group of the host's scheduler ([`Scheduler::Window`] alone), as libvirt's cgroups and
    /// autogroup make them: its weight is divided among the pCPUs that it is on, by load.
    pub groups: bool,
    /// Busy pCPUs pull from busier ones now and then, as Linux 3.9 does ([`Scheduler::Window`] and [`Scheduler::Fair`]
    /// alone).
    pub rebalances: bool,
    /// How deep idle pCPUs sleep, which whoever wants one waits for. Table 2's costs contain C1.
    pub idle_states: IdleStates,
    /// Gleaner on the host, choosing slices; `None`: nobody does.
    pub adaptive: Option<AdaptiveSlices>,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            pcpus: 1,
            llc_pcpus: 0,
            smt: 1,
            scheduler: Scheduler::Dedicated,
            halt_poll: HaltPoll::OFF,
            ple: None,
            groups: false,
            rebalances: false,
            idle_states: IdleStates::SHALLOW,
            adaptive: None,
        }
    }
}

/// Gleaner's slices on the host (`gleaner host run`).
#[derive(Clone, Debug)]
pub struct AdaptiveSlices {
    pub params: HostParams,
    /// Length of a window of observation.
    pub window: Time,
}

impl Default for AdaptiveSlices {
    /// The agent's.
    fn default() -> Self {
        Self { params: HostParams::default(), window: 1_000_000_000 }
    }
}

/// The host's scheduler. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// vCPU n of all virtual machines together has pCPU n for itself.
    Dedicated,
    /// Fixed slices in turn, no preemption at wake-ups.
    RoundRobin {
        /// How long each runs.
        slice: Time,
    },
    /// A bounded window: CFS before Linux 6.6, and PowerVM (micro-sliced Table II).
    Window(WindowParams),
    /// EEVDF-like: equal shares, earliest virtual deadline first, lag kept over sleeps. Who runs keeps the pCPU for its
    /// slice, and only somebody with a shorter slice preempts (RUN_TO_PARITY).
    Fair(FairParams),
    /// Xen's credit scheduler.
    Credit(CreditParams),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowParams {
    /// Everybody runs once in this time...
    pub latency: Time,
    /// ...unless slices would get shorter than this.
    pub min_granularity: Time,
    /// A woken vCPU preempts one that has run for this much longer.
    pub wakeup_granularity: Time,
    /// Slices end at multiples of this; 0: when they end.
    pub tick: Time,
}

impl WindowParams {
    /// Linux 3.9 with 8 CPUs and more, HZ = 250: 6 ms, 0.75 ms and 1 ms times 1 + log2(8).
    pub const CFS: Self =
        Self { latency: 24_000_000, min_granularity: 3_000_000, wakeup_granularity: 4_000_000, tick: 4_000_000 };
    /// PowerVM: a dispatch window of 10 ms, at least 1 ms each, no preemption by wake-ups before that.
    pub const POWERVM: Self =
        Self { latency: 10_000_000, min_granularity: 1_000_000, wakeup_granularity: 1_000_000, tick: 0 };
}

/// Of [`Scheduler::Fair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairParams {
    /// What a vCPU asks for at a time.
    pub slice: Time,
    /// Slices end at multiples of this (HZ = 250: 4 ms); 0: they are enforced.
    pub tick: Time,
}

impl FairParams {
    /// Linux 6.6 and later, 8 CPUs and more, HZ = 250.
    pub const EEVDF: Self = Self { slice: 3_000_000, tick: 4_000_000 };
}

/// Of [`Scheduler::Credit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditParams {
    /// How long a vCPU runs at most, when others wait.
    pub slice: Time,
    /// Whoever runs is left alone for this long.
    pub ratelimit: Time,
    /// Each pCPU's tick: whoever runs there pays for what it ran and loses its boost.
    pub tick: Time,
    /// Credits are given out this often.
    pub period: Time,
}

impl CreditParams {
    /// Xen 4.2.
    pub const XEN: Self = Self { slice: 30_000_000, ratelimit: 1_000_000, tick: 10_000_000, period: 30_000_000 };
}

/// Idle states that take longer to leave than [`Costs`] say, the shallowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleStates(pub &'static [IdleState]);

/// One of them. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// A pCPU that is not expected to stay idle for so long does not enter it (`target_residency`).
    pub residency: Time,
    /// From when the pCPU is wanted until it runs (`exit_latency`).
    pub exit: Time,
}

impl IdleStates {
    /// None: as with `intel_idle.max_cstate=1`, or where pCPUs are never idle for long.
    pub const SHALLOW: Self = Self(&[]);
    /// C3 and C6 of Sandy Bridge, as Linux 3.9 has them (drivers/idle/intel_idle.c, `snb_cstates`). C1 is part of what
    /// the Gleaner paper's Table 2 measured, on a machine on which all deeper ones were off (its section 7).
    pub const SANDY_BRIDGE: Self =
        Self(&[IdleState { residency: 211_000, exit: 80_000 }, IdleState { residency: 345_000, exit: 104_000 }]);
}

/// Host halt polling (kvm.ko's module parameters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltPoll {
    /// halt_poll_ns; 0: off.
    pub max: Time,
    /// halt_poll_ns_grow_start; growing doubles it.
    pub grow_start: Time,
}

impl HaltPoll {
    /// None.
    pub const OFF: Self = Self { max: 0, grow_start: 0 };
    /// Linux's defaults since 5.x.
    pub const KVM: Self = Self { max: 200_000, grow_start: 10_000 };
}

/// Pause-loop exiting: a vCPU that spins is interrupted, steps behind who waits for its pCPU, and another one of its
/// virtual machine may be preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseLoop {
    /// Spinning time until the first exit (ple_window: 4096 cycles).
    pub window: Time,
    /// It doubles with every exit up to this, and starts again with the next thing waited for.
    pub window_max: Time,
    /// Whether a vCPU of the same virtual machine that waits for a pCPU is preferred there (KVM's directed yield).
    /// Xen's credit scheduler prefers nobody.
    pub directed: bool,
}

impl PauseLoop {
    /// KVM on a 2.4 GHz processor.
    pub const KVM: Self = Self { window: 1_700, window_max: 220_000, directed: true };
    /// Xen 4.2 on the same: a window that stays (ple_window, xen/arch/x86/hvm/vmx/vmcs.c), and a plain yield
    /// (do_sched_op_compat, SCHEDOP_yield).
    pub const XEN: Self = Self { window: 1_700, window_max: 1_700, directed: false };
}

/// One virtual machine.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Unique.
    pub name: String,
    /// 1 to [`VCPUS_PER_VM_MAX`].
    pub vcpus: u32,
    /// What things cost in it.
    pub costs: Costs,
    /// pCPUs that each vCPU may use; empty: any.
    pub affinity: Vec<Vec<PcpuIx>>,
    /// Share of the host relative to others; 1024 is one.
    pub weight: u32,
    /// CPUs' worth of time at most, in thousandths; 0: no limit. Under [`Scheduler::Credit`] as Xen's cap, else as CFS
    /// bandwidth has it.
    pub cap_permille: u32,
    /// A slice of its own.
    pub slice: Option<Time>,
    /// What an idle vCPU does.
    pub idle: IdleLoop,
    /// The guest's scheduler.
    pub guest: GuestConfig,
    /// Gleaner in the guest; `None`: nobody manages it.
    pub gleaner: Option<Managed>,
    /// What it runs.
    pub workload: Workload,
    /// Whether the simulation goes on until its threads have ended.
    pub measured: bool,
}

impl Config {
    /// These virtual machines on that host for at most an hour, seed 1, without a trace.
    pub fn new(host: HostConfig, vms: Vec<VmConfig>) -> Self {
        Self { host, vms, seed: 1, end: 3_600_000_000_000, trace: false }
    }
}

impl HostConfig {
    /// So many pCPUs without any polling or pause-loop exits.
    pub fn new(pcpus: u32, scheduler: Scheduler) -> Self {
        Self { pcpus, scheduler, ..Self::default() }
    }
}

impl VmConfig {
    /// A measured virtual machine that may use every pCPU, halts when it idles, and that nobody manages.
    pub fn new(name: &str, vcpus: u32, costs: Costs, workload: Workload) -> Self {
        Self {
            name: name.to_owned(),
            vcpus,
            costs,
            affinity: Vec::new(),
            weight: 1024,
            cap_permille: 0,
            slice: None,
            idle: IdleLoop::Halt,
            guest: GuestConfig::default(),
            gleaner: None,
            workload,
            measured: true,
        }
    }

    /// vCPU n on the nth of these pCPUs alone.
    #[must_use]
    pub fn pinned(mut self, pcpus: impl IntoIterator<Item = u32>) -> Self {
        self.affinity = pcpus.into_iter().map(|p| vec![PcpuIx(p)]).collect();
        self
    }

    /// There for as long as others are measured.
    #[must_use]
    pub fn background(mut self) -> Self {
        self.measured = false;
        self
    }
}

/// What the guest's idle task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleLoop {
    /// HLT.
    Halt,
    /// idle=poll: never halts.
    Poll,
    /// The haltpoll governor: polls for a while, then halts.
    Haltpoll {
        /// guest_halt_poll_ns.
        max: Time,
        /// guest_halt_poll_grow_start.
        grow_start: Time,
    },
}

impl IdleLoop {
    /// The governor with Linux's defaults.
    pub const HALTPOLL: Self = Self::Haltpoll { max: 200_000, grow_start: 50_000 };
}

/// What a kernel does about vCPUs whose idle task has borrowed the address space of the thread before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LazyTlb {
    /// They are not asked: Linux since 4.20 (commit 145f573b89a6).
    Spared,
    /// They are asked once in an idle period, upon which they leave the address space (arch/x86/mm/tlb.c, `leave_mm`).
    Leaves,
}

/// The guest's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// A thread runs this long while others wait on its vCPU.
    pub slice: Time,
    /// A woken thread preempts one that has run for this much longer; it counts as having slept for at most three of
    /// these.
    pub wakeup_granularity: Time,
    /// Which vCPUs that idle are asked in a TLB shootdown.
    pub lazy_tlb: LazyTlb,
    /// Woken threads go to vCPUs that run the yielding thread alone as to idle ones: Linux since 5.4
    /// (`sched_idle_cpu`). Before that only those that the idle task has are idle (`idle_cpu`), and are preferred.
    pub yielding_is_idle: bool,
    /// vCPUs that share a last-level cache, as the guest sees it: a woken thread looks for an idle one among those of
    /// the vCPU that it ran on (`select_idle_sibling`). 0: all.
    pub llc_vcpus: u32,
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self {
            slice: 3_000_000,
            wakeup_granularity: 1_000_000,
            lazy_tlb: LazyTlb::Spared,
            yielding_is_idle: true,
            llc_vcpus: 0,
        }
    }
}

/// Gleaner in a guest.
#[derive(Clone, Debug)]
pub struct Managed {
    /// What it may do.
    pub policy: Policy,
    /// How long an idle vCPU is retained.
    pub profile: Profile,
    /// By what it is retained. Where the idle task polls, it makes no difference who has it poll.
    pub means: RetainMeans,
    /// A time-out that is given rather than derived from the costs.
    pub timeout: Option<Time>,
    pub params: GuestParams,
    /// Length of a window.
    pub window: Time,
    /// Whether sleeping yielding threads are told that their vCPU became busy (BPF); otherwise they nap.
    pub signalled: bool,
    /// Whether the guest sees the host's steal time.
    pub steal_visible: bool,
    /// Whether idle periods and who gave a vCPU up are seen as such. Otherwise all switches of the yielding threads,
    /// into sleeps as well, and all of the threads stand for them, as in the paper (section 6: S_yield and S_work).
    pub periods_visible: bool,
}

impl Managed {
    /// A policy with the daemon's defaults.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            profile: Profile::default(),
            means: RetainMeans::Yielding,
            timeout: None,
            params: GuestParams::default(),
            window: 100_000_000,
            signalled: true,
            steal_visible: true,
            periods_visible: true,
        }
    }
}

/// Why a simulation cannot be built or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// Something about the configuration.
    #[error("{0}")]
    Config(String),
    /// A program does not let time pass.
    #[error(
        "thread {thread} of virtual machine {vm} runs instructions for ever without using time; give its loop a compute or a wait"
    )]
    Endless {
        /// Which virtual machine.
        vm: String,
        /// Which of its threads, counted from 0.
        thread: u32,
    },
    /// Events without end at one time.
    #[error(
        "at {at_ns} ns events follow one another and time does not go on: whatever is done there takes no time at all (granularity = \"0s\" without items?); give it a granularity of 1us or more"
    )]
    StandsStill {
        /// When.
        at_ns: Time,
    },
    /// All threads wait for each other.
    #[error(
        "at {at_ns} ns nothing can happen any more, and virtual machine {vm} has {waiting} threads that wait: a deadlock in its program"
    )]
    Deadlock {
        /// When.
        at_ns: Time,
        /// Which virtual machine.
        vm: String,
        /// How many of its threads wait.
        waiting: usize,
    },
}
