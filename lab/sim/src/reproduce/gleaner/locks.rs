//! Threads that compute and meet at one mutex, which whoever comes first has: for cholesky and volrend, whose tasks are
//! in queues under `LOCK`, and that is pthread_mutex_lock (SPLASH-2's pthread macros; kernels/cholesky/src/mf.C, `Send`
//! and `GetBlock`; PARSEC's gcc-pthreads).
//!
//! A task's granularity is fitted; the lock is held for 1.2 us, the shortest of the micro-sliced paper's Table I, solo.
//! The real queues are several, and a thread of cholesky that has no task spins until it has one.

use crate::Time;
use crate::program::catalogue::Plan;
use crate::program::{Builder, Op, Span, Workload};

pub(super) const HELD: Time = 1_200;

/// An item is a task.
pub(super) fn workload(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let lock = b.mutex();
    let again = b.label_here();
    b.op(Op::Compute(plan.granularity));
    b.op(Op::Lock(lock)).op(Op::Compute(Span::Fixed(HELD))).op(Op::Unlock(lock)).op(Op::Done).jump(again);
    b.threads(plan.threads, 0);
    b.build()
}
