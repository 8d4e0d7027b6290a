//! dedup (PARSEC 3.0, pkgs/kernels/dedup/src/encoder.c): Fragment -> FragmentRefine -> Deduplicate -> Compress ->
//! Reorder.
//!
//! | what | value | from |
//! | --- | --- | --- |
//! | threads | 1 + 3 * 16 + 1 on any number of cores | encoder.c; the paper runs `-n 16` |
//! | items between stages | 20 chunks (`ITEM_PER_INSERT`, `CHUNK_ANCHOR_PER_INSERT`) | dedupdef.h |
//! | room in a queue | 1024 * 1024 chunks (`QUEUE_SIZE`) | dedupdef.h |
//! | queues of a stage | one for each four threads (`MAX_THREADS_PER_QUEUE`) | encoder.c |
//! | chunks | 672 MB (native input) of 4 KB (`RabinMask` 0xfff) | PARSEC, rabin.c |
//! | each stage's part of the work, page faults, madvise, mprotect | [`memory`](crate::reproduce::memory) | counted |
//! | work | calibrated | Gleaner, Table 1, native on 1 core |
//!
//! "The problematic blocking synchronization may arise in the guest OS code" (section 1): it is at the address space's
//! semaphore.

use super::machine::{S, Time, US};
use crate::program::catalogue::{Queue, hand_on};
use crate::program::{Builder, Op, Span, Workload, Writers};
use crate::reproduce::calibration::Dedup;
use crate::reproduce::memory::{PARTS_OF_16, USES_OF_16, computes};

const CHUNKS: f64 = 672.0 * 1024.0 / 4.0;
const CHUNKS_PER_ITEM: f64 = 20.0;
const ROOM: u32 = 1024 * 1024 / 20;
const THREADS: u32 = 16;
const THREADS_PER_QUEUE: u32 = 4;

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
    /// How long an item computes in a stage with that part of the work.
    fn computes(&self, part: f64) -> Time {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below a second")]
        let time = (self.calibration.work_s * S as f64 / ITEMS * part) as Time;
        time
    }
}

/// Writes it.
pub(super) fn workload(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let groups = THREADS / THREADS_PER_QUEUE;
    let address_space = b.rwsem(Writers::Steal);
    let left = b.counter(plan.items.and_then(|items| i64::try_from(items).ok()).unwrap_or(i64::MAX));
    // Each a mutex with two condition variables (queue.c).
    let queues = |b: &mut Builder, producers| (0..groups).map(|_| Queue::new(b, ROOM, producers)).collect::<Vec<_>>();
    let stages = [queues(&mut b, 1), queues(&mut b, THREADS_PER_QUEUE), queues(&mut b, THREADS_PER_QUEUE)];
    let to_reorder = Queue::new(&mut b, ROOM, THREADS);
    // Before Fragment does anything, main has read the input.
    b.op(Op::Compute(Span::Fixed(plan.computes(PARTS_OF_16.read) * plan.items.unwrap_or(0))));
    fragment(&mut b, left, &stages[0], plan.computes(PARTS_OF_16.fragment));
    let [refines, deduplicates, compresses] =
        [PARTS_OF_16.refine, PARTS_OF_16.deduplicate, PARTS_OF_16.compress].map(|part| plan.computes(part));
    for stage in 0..stages.len() {
        for thread in 0..THREADS {
            let group = (thread / THREADS_PER_QUEUE) as usize;
            let to = stages.get(stage + 1).map_or(to_reorder, |next| next[group]);
            hand_on(&mut b, stages[stage][group], to, |b| match stage {
                0 => computes(b, refines),
                1 => computes(b, deduplicates),
                _ => USES_OF_16.compress(b, address_space, compresses),
            });
            b.threads(1, 0);
        }
    }
    let reorders = plan.computes(PARTS_OF_16.reorder);
    b.repeat(|b, out| {
        to_reorder.take(b, out);
        computes(b, reorders);
        b.op(Op::Done);
    });
    b.threads(1, 0);
    b.build()
}

/// Hands items to the groups in turn.
fn fragment(b: &mut Builder, left: u32, to: &[Queue], computes: Time) {
    b.repeat(|b, out| {
        for queue in to {
            b.claim(left, out).op(Op::Stamp).op(Op::Compute(Span::Fixed(computes.max(US))));
            queue.put(b);
        }
    });
    for queue in to {
        queue.close(b);
    }
    b.threads(1, 0);
}
