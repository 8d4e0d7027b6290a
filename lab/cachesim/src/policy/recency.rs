//! Policies on a recency stack: LRU replacement, differing only in where a new line is put.
//!
//! A set's lines stand in the order of the stack, most recently used first; empty ways stand last.

use super::replacement::Replacement;
use crate::line::{ContextId, Line};

/// A used line goes to the top of the stack.
#[inline]
pub(super) fn promote(ways: &mut [Line], way: usize) {
    // By hand: `rotate_right` and `copy_within` call out to routines for long slices, even for the commonest case of
    // all, a line that is at the top already.
    let mut carried = ways[way];
    for place in &mut ways[..=way] {
        std::mem::swap(place, &mut carried);
    }
}

/// The first empty way, else the bottom of the stack.
#[inline]
pub(super) fn bottom(ways: &[Line]) -> usize {
    let last = ways.len() - 1;
    if ways[last].is_valid() { last } else { ways.iter().position(|line| !line.is_valid()).unwrap_or(last) }
}

/// Takes a line out and closes the gap: empty ways stay last.
#[inline]
pub(super) fn remove(ways: &mut [Line], way: usize) {
    let last = ways.len() - 1;
    ways.copy_within(way + 1.., way);
    ways[last] = Line::INVALID;
}

/// The verbs that all recency policies share.
macro_rules! on_a_stack {
    () => {
        #[inline]
        fn on_hit(&mut self, ways: &mut [Line], way: usize) {
            $crate::policy::recency::promote(ways, way);
        }

        #[inline]
        fn victim(&mut self, ways: &mut [Line]) -> usize {
            $crate::policy::recency::bottom(ways)
        }

        #[inline]
        fn on_invalidate(&mut self, ways: &mut [Line], way: usize) {
            $crate::policy::recency::remove(ways, way);
        }
    };
}
pub(super) use on_a_stack;

/// Plain LRU: new lines at the MRU position.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Replacement for Lru {
    on_a_stack!();

    #[inline]
    fn on_fill(&mut self, _set: usize, ways: &mut [Line], way: usize, _context: ContextId) {
        promote(ways, way);
    }
}

/// LRU insertion policy: new lines at the LRU position (ISCA'07, section 3.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Lip;

impl Replacement for Lip {
    on_a_stack!();

    #[inline]
    fn on_fill(&mut self, _set: usize, _ways: &mut [Line], _way: usize, _context: ContextId) {}
}

/// One in so many of BIP's and BRRIP's fills is an exception (epsilon = 1/32 in both papers).
pub const BIMODAL_ONE_IN: u32 = 32;

/// A biased coin. Not a counter: accesses in steps of a power of two would meet every 32nd fill in the same few sets.
#[derive(Clone, Debug)]
pub(super) struct Coin(fastrand::Rng);

impl Coin {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Once in [`BIMODAL_ONE_IN`] times, by chance.
    #[inline]
    pub(super) fn exception(&mut self) -> bool {
        self.0.u32(..BIMODAL_ONE_IN) == 0
    }
}

/// Bimodal insertion policy: LIP, but one in 32 new lines at the MRU position, so that a changed working set gets in
/// (ISCA'07, section 3.2).
#[derive(Clone, Debug)]
pub struct Bip {
    coin: Coin,
}

impl Bip {
    /// The same seed makes the same choices.
    pub fn new(seed: u64) -> Self {
        Self { coin: Coin::new(seed) }
    }
}

impl Replacement for Bip {
    on_a_stack!();

    #[inline]
    fn on_fill(&mut self, _set: usize, ways: &mut [Line], way: usize, _context: ContextId) {
        if self.coin.exception() {
            promote(ways, way);
        }
    }
}
