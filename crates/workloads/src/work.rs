//! The computation, the numbers from a seed, and the checksum.
//!
//! Work is counted in turns of one loop, never in time: a loop that ran until a clock says so would do less where more
//! is stolen, and an A/B comparison of it would compare nothing. [`ITERATIONS_PER_US`] says how many turns count as a
//! microsecond; it is a constant, taken once on one machine, so a granularity of `20us` is the same work in every run
//! everywhere, and is 20 us of time on machines like that one.

use std::hint::black_box;

/// Turns of the loop (a multiplication, a shift, an exclusive or) that count as one microsecond of computation, as
/// taken on the project's test machine (docs/research.md).
pub const ITERATIONS_PER_US: u64 = 500;

/// So many turns of the loop on `value`; the result depends on every one of them.
#[inline(never)]
pub fn compute(value: u64, iterations: u64) -> u64 {
    let mut value = black_box(value) | 1;
    for _ in 0..iterations {
        value = (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    black_box(value)
}

/// A number that looks random and depends on all of both (the finalizer of splitmix64, by Sebastiano Vigna).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Combines the items' results so that their order does not matter and each of them does: a sum of mixed numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds one item's result.
    pub(crate) fn add(&mut self, item: u64, result: u64) {
        self.0 = self.0.wrapping_add(mix(result, item));
    }

    /// Adds what another thread has.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_counts() {
        let results: Vec<u64> = (0..50).map(|iterations| compute(7, iterations)).collect();
        let mut distinct = results.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), results.len());
        assert_ne!(compute(7, 50), compute(9, 50));
    }

    #[test]
    fn order_does_not_matter_and_each_item_does() {
        let of = |items: &[(u64, u64)]| {
            let mut sum = Checksum::default();
            for (item, result) in items {
                sum.add(*item, *result);
            }
            sum.value()
        };
        let whole = of(&[(0, 5), (1, 5), (2, 7)]);
        assert_eq!(of(&[(2, 7), (0, 5), (1, 5)]), whole);
        for other in [&[(0, 5), (1, 5)][..], &[(0, 5), (1, 7), (2, 5)], &[(0, 5), (1, 5), (2, 7), (2, 7)]] {
            assert_ne!(of(other), whole);
        }
    }
}
