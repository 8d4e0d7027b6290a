//! A bounded queue between the stages of a pipeline, as dedup and ferret have it.

use super::kernel::Kernel;
use crate::program::{Builder, Op, Test};

/// A queue between stages: a mutex and two conditions. Who waits enters the kernel, and who wakes somebody
/// (pthread_cond_signal makes no system call while nobody waits).
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    items: u32,
    mutex: u32,
    not_empty: Condition,
    not_full: Condition,
    bucket: u32,
}

/// A condition, and how many wait for it.
#[derive(Clone, Copy, Debug)]
struct Condition {
    cond: u32,
    waiting: u32,
}

/// dedup's and ferret's queues are long enough to hold some items for each thread behind them.
const QUEUE_ITEMS: u32 = 20;

impl Queue {
    pub(super) fn new(b: &mut Builder) -> Self {
        let (items, bucket, mutex) = (b.queue(), b.spinlock(), b.mutex());
        let [not_empty, not_full] = [(); 2].map(|()| Condition { cond: b.cond(), waiting: b.counter(0) });
        Self { items, mutex, not_empty, not_full, bucket }
    }

    pub(super) fn put(self, b: &mut Builder, kernel: &Kernel) {
        let room = Test::Shorter { queue: self.items, than: QUEUE_ITEMS };
        self.when(b, kernel, (self.not_full, room), Op::Push(self.items));
        self.wakes(b, kernel, self.not_empty);
    }

    pub(super) fn take(self, b: &mut Builder, kernel: &Kernel) {
        self.when(b, kernel, (self.not_empty, Test::NotEmpty(self.items)), Op::Pop(self.items));
        self.wakes(b, kernel, self.not_full);
    }

    /// Waits for the condition, then does that, under the mutex.
    fn when(self, b: &mut Builder, kernel: &Kernel, (condition, holds): (Condition, Test), then: Op) {
        let (waits, at_once) = (b.label(), b.label());
        b.unless(holds, waits).jump(at_once);
        b.here(waits);
        kernel.section(b, self.bucket);
        b.here(at_once);
        b.op(Op::Lock(self.mutex)).op(Op::Add(condition.waiting, 1));
        b.op(Op::WaitUntil { cond: condition.cond, mutex: self.mutex, guard: holds.into() });
        b.op(Op::Add(condition.waiting, -1)).op(then).op(Op::Unlock(self.mutex));
    }

    fn wakes(self, b: &mut Builder, kernel: &Kernel, condition: Condition) {
        let nobody = b.label();
        b.unless(Test::AtLeast(condition.waiting, 1), nobody);
        kernel.wakes(b, self.bucket, Op::Signal(condition.cond));
        b.here(nobody);
    }
}
