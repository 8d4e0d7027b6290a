//! dedup (PARSEC 3.0, pkgs/kernels/dedup/src/encoder.c): Fragment -> FragmentRefine -> Deduplicate -> Compress -> Reorder.
//!
//! | what | value | from |
//! | --- | --- | --- |
//! | threads | 1 + 3 * 16 + 1 on any number of cores | encoder.c; the paper runs `-n 16` |
//! | items between stages | 20 chunks (`ITEM_PER_INSERT`, `CHUNK_ANCHOR_PER_INSERT`) | dedupdef.h |
//! | room in a queue | 1024 * 1024 chunks (`QUEUE_SIZE`) | dedupdef.h |
//! | queues of a stage | one for each four threads (`MAX_THREADS_PER_QUEUE`) | encoder.c |
//! | chunks | 672 MB (native input) of 4 KB (`RabinMask` 0xfff) | PARSEC, rabin.c |
//! | lock held | 1.2 us, the shortest of kernel locks, and the shootdown | micro-slice paper, Table I, solo |
//! | work, shootdowns per chunk | calibrated | Gleaner, Table 1, native on 1 and 4 cores |
//!
//! Each chunk's memory is mapped and given back, which changes the address space under its semaphore, a kernel lock that blocks: "the problematic
//! blocking synchronization may arise in the guest OS code" (section 1). Whoever changes it is a writer, and a running writer takes it before one that has been woken for it
//! (lib/rwsem.c of Linux 3.9, `try_get_writer_sem`): a mutex that whoever comes first gets. Every other vCPU that is not idle has to drop what was changed from its TLB before anybody
//! goes on (arch/x86/mm/tlb.c, `flush_tlb_mm_range`): one interrupt each, waited for under the semaphore. How often has no source, and page faults, which are readers, are left out
//! (docs/reproductions.md). The three parallel stages share the work equally, the two serial ones only pass items on; between two changes computation is exponentially distributed.

use super::machine::{S, Time, US};
use crate::program::{Builder, Label, Op, Span, Test, Workload};
use crate::reproduce::calibration::Dedup;

const CHUNKS: f64 = 672.0 * 1024.0 / 4.0;
const CHUNKS_PER_ITEM: f64 = 20.0;
const ROOM: u32 = 1024 * 1024 / 20;
const STAGES: f64 = 3.0;
const THREADS: u32 = 16;
const THREADS_PER_QUEUE: u32 = 4;
const HELD: Time = 1_200;

/// Items of the whole native input.
pub(super) const ITEMS: f64 = CHUNKS / CHUNKS_PER_ITEM;

/// How it is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) calibration: Dedup,
    /// Whether it computes in a virtual machine.
    pub(super) virtualized: bool,
    /// Items to do; `None`: without end.
    pub(super) items: Option<u64>,
}

impl Plan {
    /// Shootdowns of an item in a stage, the computation before each, and how long the semaphore is held besides.
    fn granularity(&self) -> (i64, Time, Time) {
        let Dedup { work_s, virtual_ratio, shootdowns_per_chunk } = self.calibration;
        let ratio = if self.virtualized { virtual_ratio } else { 1.0 };
        let ops = (shootdowns_per_chunk * CHUNKS_PER_ITEM / STAGES).round().max(1.0);
        let item_ns = work_s * S as f64 / (CHUNKS / CHUNKS_PER_ITEM) / STAGES;
        let computes = (item_ns / ops - HELD as f64).max(0.0) * ratio;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below a second")]
        (ops as i64, computes as Time, (HELD as f64 * ratio) as Time)
    }
}

/// A queue of items under a mutex with two condition variables (queue.c).
#[derive(Clone, Copy)]
struct Queue {
    items: u32,
    mutex: u32,
    not_empty: u32,
    not_full: u32,
    producers: u32,
}

impl Queue {
    fn new(b: &mut Builder, producers: u32) -> Self {
        let (items, mutex, not_empty, not_full) = (b.queue(), b.mutex(), b.cond(), b.cond());
        Self { items, mutex, not_empty, not_full, producers: b.counter(i64::from(producers)) }
    }

    fn put(&self, b: &mut Builder) {
        let room = Test::Shorter { queue: self.items, than: ROOM }.into();
        b.op(Op::Lock(self.mutex)).op(Op::WaitUntil { cond: self.not_full, mutex: self.mutex, guard: room });
        b.op(Op::Push(self.items)).op(Op::Signal(self.not_empty)).op(Op::Unlock(self.mutex));
    }

    fn take(&self, b: &mut Builder, closed: Label) {
        let guard = Test::NotEmpty(self.items).or(Test::AtMost(self.producers, 0));
        let (empty, taken) = (b.label(), b.label());
        b.op(Op::Lock(self.mutex)).op(Op::WaitUntil { cond: self.not_empty, mutex: self.mutex, guard });
        b.unless(Test::NotEmpty(self.items), empty);
        b.op(Op::Pop(self.items)).op(Op::Signal(self.not_full)).op(Op::Unlock(self.mutex)).jump(taken);
        b.here(empty);
        b.op(Op::Unlock(self.mutex)).jump(closed);
        b.here(taken);
    }

    fn close(&self, b: &mut Builder) {
        let others = b.label();
        b.op(Op::Lock(self.mutex)).op(Op::Add(self.producers, -1));
        b.unless(Test::AtMost(self.producers, 0), others);
        b.op(Op::Broadcast(self.not_empty));
        b.here(others);
        b.op(Op::Unlock(self.mutex));
    }
}

/// Writes it.
pub(super) fn workload(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let groups = THREADS / THREADS_PER_QUEUE;
    let address_space = b.mutex();
    let left = b.counter(plan.items.and_then(|items| i64::try_from(items).ok()).unwrap_or(i64::MAX));
    let queues = |b: &mut Builder, producers| (0..groups).map(|_| Queue::new(b, producers)).collect::<Vec<_>>();
    let stages = [queues(&mut b, 1), queues(&mut b, THREADS_PER_QUEUE), queues(&mut b, THREADS_PER_QUEUE)];
    let to_reorder = Queue::new(&mut b, THREADS);
    fragment(&mut b, left, &stages[0]);
    for stage in 0..stages.len() {
        for thread in 0..THREADS {
            let group = (thread / THREADS_PER_QUEUE) as usize;
            let to = stages.get(stage + 1).map_or(to_reorder, |next| next[group]);
            worker(&mut b, plan, address_space, stages[stage][group], to);
        }
    }
    let (again, out) = (b.label_here(), b.label());
    to_reorder.take(&mut b, out);
    b.op(Op::Done).jump(again);
    b.here(out);
    b.threads(1, 0);
    b.build()
}

/// Hands items to the groups in turn.
fn fragment(b: &mut Builder, left: u32, to: &[Queue]) {
    let (again, out) = (b.label_here(), b.label());
    for queue in to {
        // So that time passes: nothing against the 2.3 ms of the other stages.
        b.claim(left, out).op(Op::Stamp).op(Op::Compute(Span::Fixed(US)));
        queue.put(b);
    }
    b.jump(again);
    b.here(out);
    for queue in to {
        queue.close(b);
    }
    b.threads(1, 0);
}

/// A thread of a parallel stage. The counter is its own.
fn worker(b: &mut Builder, plan: &Plan, address_space: u32, from: Queue, to: Queue) {
    let (ops, computes, held) = plan.granularity();
    let todo = b.counter(0);
    let (again, out) = (b.label_here(), b.label());
    from.take(b, out);
    b.op(Op::Add(todo, ops));
    let (next, done) = (b.label_here(), b.label());
    b.claim(todo, done).op(Op::Compute(Span::Exponential { mean: computes }));
    b.op(Op::Lock(address_space))
        .op(Op::Compute(Span::Fixed(held)))
        .op(Op::Shootdown)
        .op(Op::Unlock(address_space))
        .jump(next);
    b.here(done);
    to.put(b);
    b.jump(again);
    b.here(out);
    to.close(b);
    b.threads(1, 0);
}
