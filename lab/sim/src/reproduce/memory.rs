//! dedup's memory, as both papers' reproductions have it: its stages' parts of the CPU time, and how often they use the
//! address space, by threads a stage. Counted in a program with its structure, with what glibc has got since 2.15
//! turned off (experiments/simulator/dedup-stages.sh at commit 840a7e86).
//!
//! Compress takes its memory from arenas that grow and shrink with each chunk (zlib wants 256 KB and gives them back).
//! What shrinks is given back by madvise, what grows is faulted in page by page; both read the address space's
//! semaphore, and madvise interrupts every other vCPU that has the address space while it does (arch/x86/mm/tlb.c,
//! `flush_tlb_mm_range`). What grows beyond what it ever was, for chunks that Reorder has not written yet, takes
//! mprotect, a writer: everybody leaves the semaphore for it, and is woken after it. Left out are main's faults, one a
//! chunk before there are other threads, and Fragment's, one a chunk, too.

use crate::Time;
use crate::program::{Builder, Op, Span};

/// How long the semaphore is held, but for the shootdown: as the shortest kernel lock (micro-sliced paper, Table I,
/// solo).
const HELD: Time = 1_200;

/// Parts of the CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Before anything else, main reads the input.
    pub read: f64,
    pub fragment: f64,
    pub refine: f64,
    pub deduplicate: f64,
    pub compress: f64,
    pub reorder: f64,
}

/// How often Compress uses the address space: this, so many times for an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    pub mprotect: u32,
    pub madvise: u32,
    pub faults: u32,
    pub times: i64,
}

/// With 16 threads a stage, on two CPUs; Compress's is what is left to 1 (0.885 was measured).
pub(super) const PARTS_OF_16: Parts =
    Parts { read: 0.011, fragment: 0.010, refine: 0.038, deduplicate: 0.018, compress: 0.883, reorder: 0.040 };
/// With 4.
pub(super) const PARTS_OF_4: Parts =
    Parts { read: 0.023, fragment: 0.021, refine: 0.070, deduplicate: 0.034, compress: 0.771, reorder: 0.081 };

/// With 16 threads a stage: 0.578, 2.62 and 21.1 a chunk, here for an item of 20 chunks.
pub(super) const USES_OF_16: Uses = Uses { mprotect: 2, madvise: 9, faults: 70, times: 6 };
/// With 4: 0.115, 0.423 and 3.43 a chunk, here for an item of 32.
pub(super) const USES_OF_4: Uses = Uses { mprotect: 2, madvise: 7, faults: 55, times: 2 };

impl Uses {
    fn all(&self) -> u32 {
        self.mprotect + self.madvise + self.faults
    }

    /// Compresses an item's chunks in `compute` with the semaphore `address_space`.
    pub(super) fn compress(&self, b: &mut Builder, address_space: u32, compute: Time) {
        let todo = b.counter(0);
        let uses = u64::from(self.all()) * self.times.unsigned_abs();
        let mean = (compute / uses).saturating_sub(HELD);
        let before = |b: &mut Builder, lock: Op| {
            b.op(Op::Compute(Span::Exponential { mean })).op(lock).op(Op::Compute(Span::Fixed(HELD)));
        };
        debug_assert!(self.mprotect.max(self.madvise) <= self.faults, "at most one of each after a fault");
        let (next, done) = (b.label(), b.label());
        b.op(Op::Add(todo, self.times));
        b.here(next);
        b.claim(todo, done);
        for n in 0..self.faults {
            // The rarer ones are spread evenly among the faults.
            let is_due = |of: u32| (n + 1) * of / self.faults > n * of / self.faults;
            before(b, Op::ReadLock(address_space));
            b.op(Op::ReadUnlock(address_space));
            if is_due(self.madvise) {
                before(b, Op::ReadLock(address_space));
                b.op(Op::Shootdown).op(Op::ReadUnlock(address_space));
            }
            if is_due(self.mprotect) {
                before(b, Op::WriteLock(address_space));
                b.op(Op::WriteUnlock(address_space));
            }
        }
        b.jump(next);
        b.here(done);
    }
}

/// A stage's computation for an item.
pub(super) fn computes(b: &mut Builder, mean: Time) {
    b.op(Op::Compute(Span::Exponential { mean }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, HostConfig, Scheduler, VmConfig};
    use crate::program::Writers;
    use crate::{Costs, Simulation};

    #[test]
    fn an_item_has_as_many_uses_as_its_chunks_had() {
        for (uses, chunks, counted) in
            [(USES_OF_16, 20.0, [0.578, 2.62, 21.1]), (USES_OF_4, 32.0, [0.115, 0.423, 3.43])]
        {
            for (n, a_chunk) in [uses.mprotect, uses.madvise, uses.faults].into_iter().zip(counted) {
                let (here, there) = (f64::from(n) * uses.times as f64, a_chunk * chunks);
                assert!((here / there - 1.0).abs() < 0.1, "{here} for {there}: {uses:?}");
            }
        }
    }

    #[test]
    fn an_item_takes_its_time() {
        let mut b = Builder::new();
        let sem = b.rwsem(Writers::Steal);
        USES_OF_16.compress(&mut b, sem, 2_000_000);
        b.threads(1, 0);
        let work = b.build();
        let count = |wanted: fn(&Op) -> bool| work.programs[0].iter().filter(|op| wanted(op)).count();
        assert_eq!(count(|op| matches!(op, Op::Shootdown)), 9);
        assert_eq!(count(|op| matches!(op, Op::WriteLock(_))), 2);
        assert_eq!(count(|op| matches!(op, Op::ReadLock(_))), 79);
        let config =
            Config::new(HostConfig::new(1, Scheduler::Dedicated), vec![VmConfig::new("vm", 1, Costs::FREE, work)]);
        let took = Simulation::new(config).and_then(Simulation::run).unwrap().0.end_ns;
        // 486 exponential times, and as many fixed ones: the sum is within 20 % of what was asked for, more than four
        // standard deviations.
        assert!((1_600_000..2_400_000).contains(&took), "{took} ns");
    }

    #[test]
    fn parts_are_parts_of_a_whole() {
        for parts in [PARTS_OF_4, PARTS_OF_16] {
            let Parts { read, fragment, refine, deduplicate, compress, reorder } = parts;
            let whole = read + fragment + refine + deduplicate + compress + reorder;
            assert!((whole - 1.0).abs() < 0.001, "{whole}");
        }
    }
}
