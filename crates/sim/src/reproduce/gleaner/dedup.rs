//! dedup (PARSEC 3.0, pkgs/kernels/dedup/src/encoder.c): Fragment -> FragmentRefine -> Deduplicate -> Compress -> Reorder.
//!
//! | what | value | from |
//! | --- | --- | --- |
//! | threads | 1 + 3 * 16 + 1 on any number of cores | encoder.c; the paper runs `-n 16` |
//! | items between stages | 20 chunks (`ITEM_PER_INSERT`, `CHUNK_ANCHOR_PER_INSERT`) | dedupdef.h |
//! | room in a queue | 1024 * 1024 chunks (`QUEUE_SIZE`) | dedupdef.h |
//! | queues of a stage | one for each four threads (`MAX_THREADS_PER_QUEUE`) | encoder.c |
//! | chunks | 672 MB (native input) of 4 KB (`RabinMask` 0xfff) | PARSEC, rabin.c |
//! | each stage's part of the work; page faults, madvise and mprotect of a chunk | [`PARTS`], [`OF_A_GROUP`] | counted: experiments/simulator/dedup-stages.sh |
//! | semaphore held | 1.2 us, the shortest of kernel locks, and the shootdown | micro-slice paper, Table I, solo |
//! | work | calibrated | Gleaner, Table 1, native on 1 core |
//!
//! "The problematic blocking synchronization may arise in the guest OS code" (section 1): Compress takes its memory from arenas that grow and shrink with each chunk (zlib wants 256 KB and
//! gives them back). What shrinks is given back by madvise, what grows is faulted in page by page; both read the address space's semaphore, and madvise interrupts every other vCPU that has the
//! address space while it does (arch/x86/mm/tlb.c, `flush_tlb_mm_range`). What grows beyond what it ever was, for the chunks that Reorder has not written yet, takes mprotect, a writer, for which
//! everybody has to leave the semaphore, and who is woken again after it ([`Op::ReadLock`]).

use super::machine::{S, Time, US};
use crate::program::{Builder, Label, Op, Span, Test, Workload};
use crate::reproduce::calibration::Dedup;

const CHUNKS: f64 = 672.0 * 1024.0 / 4.0;
const CHUNKS_PER_ITEM: f64 = 20.0;
const ROOM: u32 = 1024 * 1024 / 20;
const STAGES: usize = 3;
const THREADS: u32 = 16;
const THREADS_PER_QUEUE: u32 = 4;
const HELD: Time = 1_200;

/// Parts of the CPU time: main reads the input, Fragment, FragmentRefine, Deduplicate, Compress, Reorder.
const PARTS: [f64; 6] = [0.012, 0.011, 0.034, 0.016, 0.875, 0.052];
/// mprotect, madvise, faults of 3.3 chunks; an item has six times as many. Counted, of 20 chunks: 12.2, 54.6 and 481.
const OF_A_GROUP: [u32; 3] = [2, 9, 80];
const GROUPS_OF_AN_ITEM: i64 = 6;

/// Items of the whole native input.
pub(super) const ITEMS: f64 = CHUNKS / CHUNKS_PER_ITEM;

/// How it is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) calibration: Dedup,
    /// Items to do; `None`: without end.
    pub(super) items: Option<u64>,
}

impl Plan {
    /// How long an item computes in each part.
    fn parts(&self) -> [Time; 6] {
        let item_ns = self.calibration.work_s * S as f64 / ITEMS;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below a second")]
        PARTS.map(|part| (item_ns * part) as Time)
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
    let address_space = b.rwsem();
    let left = b.counter(plan.items.and_then(|items| i64::try_from(items).ok()).unwrap_or(i64::MAX));
    let queues = |b: &mut Builder, producers| (0..groups).map(|_| Queue::new(b, producers)).collect::<Vec<_>>();
    let stages = [queues(&mut b, 1), queues(&mut b, THREADS_PER_QUEUE), queues(&mut b, THREADS_PER_QUEUE)];
    let to_reorder = Queue::new(&mut b, THREADS);
    let [read, fragments, refines, deduplicates, compresses, reorders] = plan.parts();
    b.op(Op::Compute(Span::Fixed(read * plan.items.unwrap_or(0))));
    fragment(&mut b, left, &stages[0], fragments);
    for stage in 0..STAGES {
        for thread in 0..THREADS {
            let group = (thread / THREADS_PER_QUEUE) as usize;
            let to = stages.get(stage + 1).map_or(to_reorder, |next| next[group]);
            worker(&mut b, stages[stage][group], to, |b| match stage {
                0 => _ = b.op(Op::Compute(Span::Exponential { mean: refines })),
                1 => _ = b.op(Op::Compute(Span::Exponential { mean: deduplicates })),
                _ => compress(b, address_space, compresses),
            });
        }
    }
    let (again, out) = (b.label_here(), b.label());
    to_reorder.take(&mut b, out);
    b.op(Op::Compute(Span::Exponential { mean: reorders })).op(Op::Done).jump(again);
    b.here(out);
    b.threads(1, 0);
    b.build()
}

/// Hands items to the groups in turn.
fn fragment(b: &mut Builder, left: u32, to: &[Queue], computes: Time) {
    let (again, out) = (b.label_here(), b.label());
    for queue in to {
        b.claim(left, out).op(Op::Stamp).op(Op::Compute(Span::Fixed(computes.max(US))));
        queue.put(b);
    }
    b.jump(again);
    b.here(out);
    for queue in to {
        queue.close(b);
    }
    b.threads(1, 0);
}

/// A thread of a parallel stage.
fn worker(b: &mut Builder, from: Queue, to: Queue, item: impl FnOnce(&mut Builder)) {
    let (again, out) = (b.label_here(), b.label());
    from.take(b, out);
    item(b);
    to.put(b);
    b.jump(again);
    b.here(out);
    to.close(b);
    b.threads(1, 0);
}

/// Compresses an item's chunks. The counter is the thread's own.
fn compress(b: &mut Builder, address_space: u32, item: Time) {
    let [writers, releases, faults] = OF_A_GROUP;
    let todo = b.counter(0);
    let ops = u64::from(writers + releases + faults) * GROUPS_OF_AN_ITEM.unsigned_abs();
    let mean = (item / ops).saturating_sub(HELD);
    b.op(Op::Add(todo, GROUPS_OF_AN_ITEM));
    let (next, done) = (b.label_here(), b.label());
    b.claim(todo, done);
    let lasts = |b: &mut Builder| _ = b.op(Op::Compute(Span::Fixed(HELD)));
    for n in 0..faults {
        // The rarer ones are spread evenly among the faults.
        let comes = |of: u32| (n + 1) * of / faults > n * of / faults;
        b.op(Op::Compute(Span::Exponential { mean })).op(Op::ReadLock(address_space));
        lasts(b);
        b.op(Op::ReadUnlock(address_space));
        if comes(releases) {
            b.op(Op::Compute(Span::Exponential { mean })).op(Op::ReadLock(address_space));
            lasts(b);
            b.op(Op::Shootdown).op(Op::ReadUnlock(address_space));
        }
        if comes(writers) {
            b.op(Op::Compute(Span::Exponential { mean })).op(Op::WriteLock(address_space));
            lasts(b);
            b.op(Op::WriteUnlock(address_space));
        }
    }
    b.jump(next);
    b.here(done);
}
