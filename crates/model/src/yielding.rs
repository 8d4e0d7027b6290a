//! The yielding thread's vocabulary: what it is told, what it sees, what it does next.
//!
//! The spin/halt state machine is a decision and lives in decide; act runs it on a real thread, a simulator on a
//! simulated one. This trait is their one seam: act must not know decide, and the loop is too hot for messages.

use crate::{Nanos, RetainCounters};

/// What the policy wants of a vCPU's yielding thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Keep the vCPU from halting for idle periods up to `timeout`.
    Retain {
        /// Idle time after which the vCPU may halt.
        timeout: Nanos,
    },
    /// Sleep: the vCPU is deactivated, or retention is off there.
    Sleep,
}

/// How a call of sched_yield came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldReturn {
    /// At once: nothing else wanted the vCPU.
    Immediate,
    /// Another task ran meanwhile.
    Displaced,
    /// Late, although no other task ran: the hypervisor had taken the vCPU.
    Stolen,
}

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call sched_yield again.
    Yield,
    /// Sleep, so that the vCPU may halt.
    Sleep {
        /// Longest sleep.
        at_most: Nanos,
        /// Wake as soon as the vCPU has become busy, where something can tell.
        until_busy: bool,
    },
}

/// The spin/halt state machine of one yielding thread. Times are on any monotonic clock that does not change.
pub trait YieldMachine: Send {
    /// The policy's word changed.
    fn order(&mut self, now: Nanos, order: Order) -> Next;
    /// sched_yield returned `elapsed` after the return before it.
    fn returned(&mut self, now: Nanos, elapsed: Nanos, how: YieldReturn) -> Next;
    /// The sleep ended after `asleep_for`; `vcpu_was_busy` is `None` where nothing can tell.
    fn woke(&mut self, now: Nanos, asleep_for: Nanos, vcpu_was_busy: Option<bool>) -> Next;
    /// What it has counted so far (`vcpu` and `tid` are the runner's to fill).
    fn counters(&self) -> RetainCounters;
}
