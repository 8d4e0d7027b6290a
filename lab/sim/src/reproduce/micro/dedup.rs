//! dedup with four threads a stage: what Compress does with the address space is as counted
//! ([`memory`](crate::reproduce::memory)), under Linux 3.5's semaphore, which comes to writers in turn.

use super::kernel::Kernel;
use super::queue::Queue;
use crate::engine::Time;
use crate::program::{Builder, Op, Span, Writers};
use crate::reproduce::memory::{PARTS_OF_4, USES_OF_4, computes};

const STAGES: usize = 3;

/// Fragment, three stages of so many threads, Reorder; an item of 128 KiB is so much computation in all.
pub(super) fn write(b: &mut Builder, kernel: &Kernel, threads: u32, item: Time) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, some milliseconds")]
    let part = |part: f64| (item as f64 * part) as Time;
    let parts = PARTS_OF_4;
    let address_space = b.rwsem(Writers::InTurn);
    let queues: Vec<Queue> = (0..=STAGES).map(|_| Queue::new(b)).collect();
    // main reads the input once in a run; here there is no end, and Fragment reads as it goes.
    Kernel::thread(b, |b, _| {
        b.op(Op::Compute(Span::Fixed(part(parts.read + parts.fragment))));
        queues[0].put(b, kernel);
    });
    for stage in 0..STAGES {
        for _ in 0..threads {
            let kernel = kernel.of_thread(b);
            Kernel::thread(b, |b, _| {
                queues[stage].take(b, &kernel);
                match stage {
                    0 => computes(b, part(parts.refine)),
                    1 => computes(b, part(parts.deduplicate)),
                    _ => USES_OF_4.compress(b, address_space, part(parts.compress)),
                }
                queues[stage + 1].put(b, &kernel);
            });
        }
    }
    Kernel::thread(b, |b, _| {
        queues[STAGES].take(b, kernel);
        computes(b, part(parts.reorder));
        kernel.done(b);
    });
}
