//! What threads do with the last-level cache of the machine that the test plays, and what its counters say of it.
//!
//! Each reading of a thread's counters is an interval of its life, so nothing depends on how fast the machine is. What
//! it misses depends on the ways that its group may fill *at that moment*, as on a real processor: who judges by these
//! counters and then moves the thread sees in the next interval what became of it.

use std::collections::BTreeMap;

/// Instructions of one interval.
const INSTRUCTIONS: u64 = 100_000_000;

/// What a thread does with the last level, per 1,000 instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// Accesses that reach it.
    pub accesses: u64,
    /// Misses with the whole cache, or nearly.
    pub misses_whole: u64,
    /// Misses with next to nothing of it: a quarter of the ways or fewer that nobody who thrashes may fill as well.
    pub misses_minimal: u64,
}

#[allow(dead_code, reason = "only tests that count use them")]
impl Nature {
    pub const CPU_BOUND: Self = Self { accesses: 0, misses_whole: 0, misses_minimal: 0 };
    pub const FRIENDLY: Self = Self { accesses: 20, misses_whole: 2, misses_minimal: 18 };
    pub const THRASHING: Self = Self { accesses: 30, misses_whole: 28, misses_minimal: 30 };
}

impl Nature {
    fn thrashes(&self) -> bool {
        self.misses_whole * 2 > self.accesses
    }
}

/// Every thread that plays.
#[derive(Debug, Default)]
pub struct Load {
    pub natures: BTreeMap<i32, Nature>,
    counters: BTreeMap<i32, [u64; 4]>,
}

impl Load {
    /// A thread's counters as they stand; `None` for one that cannot be counted.
    pub fn counters(&self, tid: i32) -> Option<String> {
        self.natures.get(&tid)?;
        let [instructions, cycles, accesses, misses] = self.counters.get(&tid).copied().unwrap_or_default();
        Some(format!("{instructions} {cycles} {accesses} {misses}\n"))
    }

    /// One interval of a thread, while every thread may fill the ways of its mask.
    pub fn run(&mut self, tid: i32, masks: &BTreeMap<i32, u64>, all: u64) {
        let Some(nature) = self.natures.get(&tid) else { return };
        let mask = masks.get(&tid).copied().unwrap_or(all);
        let thrashing = self.natures.iter().filter(|(other, nature)| **other != tid && nature.thrashes());
        let spoilt = thrashing.filter_map(|(other, _)| masks.get(other)).fold(0, |ways, theirs| ways | theirs);
        let few = (mask & !spoilt).count_ones() * 4 <= all.count_ones();
        let misses = if few { nature.misses_minimal } else { nature.misses_whole };
        let per_1000 = INSTRUCTIONS / 1000;
        let counters = self.counters.entry(tid).or_default();
        let more = [INSTRUCTIONS, INSTRUCTIONS, per_1000 * nature.accesses, per_1000 * misses];
        counters.iter_mut().zip(more).for_each(|(counter, more)| *counter += more);
    }
}
