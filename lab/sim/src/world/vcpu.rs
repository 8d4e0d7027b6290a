//! A virtual CPU: where it is for the host, what it does for the guest, and where its time went.
//!
//! ```text
//!             dispatch                     HLT, host polls
//!   Ready ---------------> Running -------------------------> Polling
//!     ^  <--------------     |    <-------------------------    |
//!     |      preempted       | HLT       interrupt              | polled long enough
//!     |                      v                                  |
//!     +----------------- Halted <-------------------------------+
//!          interrupt
//! ```
//!
//! A running vCPU first pays what it owes (the host's debt: a switch; the guest's: interrupts, a switch of threads),
//! then goes on with its activity. Time is charged when something changes, never by ticks.

use super::entity::Entity;
use super::yielder::Yielder;
use crate::engine::{NEVER, Time};
use crate::ids::{PcpuIx, ThreadIx, VmIx};
use crate::program::Line;
use crate::totals::VcpuTotals;
use gleaner_model::Distribution;
use smallvec::SmallVec;

/// Where a vCPU is for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On its pCPU.
    Running,
    /// Halted, while the host polls on its pCPU for an interrupt.
    Polling,
    /// Waiting for a pCPU: time stolen from the guest.
    Ready,
    Halted,
}

/// What it does for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The idle task, which looks for work and halts.
    Idle,
    Thread(ThreadIx),
    /// The yielding thread.
    Yield,
    /// The idle task, polling.
    Poll,
}

/// An interrupt, by what its handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Irq {
    /// Looks at the run queue.
    Resched,
    /// Wakes a thread whose sleep or request is over.
    Wake(ThreadIx),
    /// Invalidates the TLB and tells who asked.
    Flush(ThreadIx),
    /// Ends the yielding thread's nap.
    Nap,
}

/// What only an observer looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) l_comp: Distribution,
    pub(crate) l_idle: Distribution,
    /// As of the last window.
    pub(crate) zero: VcpuTotals,
}

/// Of a vCPU, as of the last window of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSeen {
    pub(crate) zero: VcpuTotals,
    /// From a wake-up until it ran.
    pub(crate) wake_to_run: Distribution,
    /// Interrupts that came while it waited for a pCPU.
    pub(crate) interrupts_while_waiting: u64,
}

/// In the order in which an event needs it, in lines of the processor's cache: on big machines that is what an event
/// costs.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Vcpu {
    pub(crate) vm: VmIx,
    /// Its number in its virtual machine.
    pub(crate) index: u32,
    // --- the host's ---
    pub(crate) place: Place,
    /// Whether it came out of a halt and has not run since.
    pub(crate) woken: bool,
    /// Whether the host's debt is for being taken up from a halt.
    pub(crate) resuming: bool,
    /// A woken thread, first in the queue, is to have the vCPU.
    pub(crate) resched: bool,
    /// Where it is, or was last.
    pub(crate) pcpu: PcpuIx,
    /// Which pCPUs it may use (`Host::classes`).
    pub(crate) class: u32,
    /// Thousandths of full speed.
    pub(crate) speed: u32,
    pub(crate) weight: u32,
    /// What things cost in it (`World::costs`).
    pub(crate) costs: u32,
    // --- time ---
    /// Up to when time has been charged.
    pub(crate) since: Time,
    pub(crate) host_debt: Time,
    pub(crate) debt: Time,
    pub(crate) activity: Activity,
    // --- the host's ---
    pub(crate) entity: Entity,
    /// When it last halted, or became ready.
    pub(crate) placed_at: Time,
    // --- the guest's ---
    /// How long the running thread has had the vCPU since others wait or it came.
    pub(crate) thread_ran: Time,
    /// Spinning left until a pause-loop exit.
    pub(crate) pause_left: Time,
    pub(crate) queue: Line,
    /// Being handled: done when the debt is paid.
    pub(crate) handling: SmallVec<[Irq; 2]>,
    /// Arrived while the vCPU was away.
    pub(crate) pending: SmallVec<[Irq; 2]>,
    /// When the present idle period began.
    pub(crate) idle_since: Option<Time>,
    /// Mean idle length, as the kernel keeps it.
    pub(crate) idle_mean: Time,
    /// `work` + `kernel` when the present busy period began.
    pub(crate) busy_zero: Time,
    /// On their way, in the order of arrival.
    pub(crate) arriving: SmallVec<[(Time, Irq); 2]>,
    pub(crate) totals: VcpuTotals,
    // --- seldom needed ---
    /// A slice of its own.
    pub(crate) slice: Option<Time>,
    /// How long the host polls at the next halt.
    pub(crate) halt_poll: Time,
    pub(crate) pause_window: Time,
    /// When its idle task gives up polling.
    pub(crate) poll_until: Time,
    /// The haltpoll governor's present limit.
    pub(crate) poll_limit: Time,
    /// How long its idle task polls because Gleaner has it poll.
    pub(crate) retained_for: Time,
    pub(crate) yielder: Option<Box<Yielder>>,
    pub(crate) seen: Box<Seen>,
    pub(crate) host_seen: Box<HostSeen>,
}

/// The kernel's first guess at a mean idle length: twice the cost of a migration.
const IDLE_MEAN_FIRST: Time = 1_000_000;

impl Vcpu {
    pub(crate) fn new(vm: VmIx, index: u32, pcpu: PcpuIx, class: u32) -> Self {
        Self {
            vm,
            index,
            place: Place::Halted,
            woken: false,
            resuming: false,
            resched: false,
            pcpu,
            class,
            speed: 1_000,
            weight: 1_024,
            costs: 0,
            since: 0,
            host_debt: 0,
            debt: 0,
            activity: Activity::Idle,
            entity: Entity::default(),
            placed_at: 0,
            thread_ran: 0,
            pause_left: NEVER,
            queue: Line::default(),
            handling: SmallVec::new(),
            pending: SmallVec::new(),
            idle_since: Some(0),
            idle_mean: IDLE_MEAN_FIRST,
            busy_zero: 0,
            arriving: SmallVec::new(),
            totals: VcpuTotals::default(),
            slice: None,
            halt_poll: 0,
            pause_window: 0,
            poll_until: NEVER,
            poll_limit: 0,
            retained_for: 0,
            yielder: None,
            seen: Box::default(),
            host_seen: Box::default(),
        }
    }

    /// This vCPU as a bit in its virtual machine's sets.
    pub(crate) fn bit(&self) -> u64 {
        1 << self.index
    }

    pub(crate) fn runs(&self) -> bool {
        self.place == Place::Running
    }

    pub(crate) fn owes(&self) -> bool {
        self.host_debt > 0 || self.debt > 0
    }

    /// How long `work` takes at its present speed.
    pub(crate) fn takes(&self, work: Time) -> Time {
        if self.speed == 1_000 || work == NEVER {
            return work;
        }
        work.saturating_mul(1_000).div_ceil(u64::from(self.speed))
    }

    /// The work that is done in `time` at its present speed.
    pub(crate) fn does(&self, time: Time) -> Time {
        if self.speed == 1_000 { time } else { time.saturating_mul(u64::from(self.speed)) / 1_000 }
    }
}

/// Takes what can be paid of a debt out of `left`; says how long that took.
pub(crate) fn pay(debt: &mut Time, left: &mut Time, takes: Time, does: Time) -> Time {
    if takes <= *left {
        *debt = 0;
        *left -= takes;
        return takes;
    }
    *debt -= does.min(*debt);
    std::mem::take(left)
}
