//! Parallel regions of a pool (bodytrack's WorkerGroup, vips' threadgroups, facesim's task queues): a leader hands a
//! part to each thread and waits for all. As catalogue's `fork_join`, with a part for each thread and no work by the
//! leader.

use crate::program::catalogue::Plan;
use crate::program::{Builder, Op, Test, Workload};

/// An item is a region.
pub(super) fn workload(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let parties = i64::from(plan.threads);
    let (mutex, work, all_done) = (b.mutex(), b.cond(), b.cond());
    let (parts, done) = (b.counter(0), b.counter(0));
    let again = b.label_here();
    b.op(Op::Stamp).op(Op::Lock(mutex)).op(Op::Add(parts, parties)).op(Op::Broadcast(work));
    b.op(Op::WaitUntil { cond: all_done, mutex, guard: Test::AtLeast(done, parties).into() });
    b.op(Op::Add(done, -parties)).op(Op::Unlock(mutex)).op(Op::Done).jump(again);
    b.threads(1, 0);

    b.op(Op::Lock(mutex));
    let again = b.label_here();
    let nothing = b.label();
    b.op(Op::WaitUntil { cond: work, mutex, guard: Test::AtLeast(parts, 1).into() });
    b.claim(parts, nothing);
    b.op(Op::Unlock(mutex)).op(Op::Compute(plan.granularity)).op(Op::Lock(mutex)).op(Op::Add(done, 1));
    b.unless(Test::AtLeast(done, parties), again);
    b.op(Op::Signal(all_done));
    b.here(nothing);
    b.jump(again);
    b.threads(plan.threads, 0);
    b.build()
}
