//! Threads that compute and meet at one lock, which goes to the first who waits: for cholesky and volrend, whose tasks are in shared
//! queues under locks, and whose kernel's semaphores hand over so.
//!
//! A task's granularity is fitted; the lock is held for 1.2 us, the shortest of the micro-slice paper's Table I, solo.

use crate::Time;
use crate::program::catalogue::Plan;
use crate::program::{Builder, Op, Span, Workload};

pub(super) const HELD: Time = 1_200;

/// An item is a task.
pub(super) fn workload(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let lock = 0;
    let again = b.label_here();
    b.op(Op::Compute(plan.granularity));
    b.op(Op::Wait(lock)).op(Op::Compute(Span::Fixed(HELD))).op(Op::Post(lock)).op(Op::Done).jump(again);
    b.threads(plan.threads, 0);
    // Semaphores begin with none.
    b.op(Op::Post(lock)).threads(1, 0);
    super::dedup::one_semaphore(b.build())
}
