//! Re-reference interval prediction (Jaleel et al., ISCA'10) with two bits and hit priority.
//!
//! A line's value predicts how soon it is used again: 0 soon, 3 distant. A hit makes it 0. The victim is the first way
//! with 3; where there is none, all values grow by one until there is. SRRIP inserts with 2, BRRIP with 3 and one in 32
//! with 2.

use super::duel::{Duel, Side};
use super::recency::Coin;
use super::replacement::Replacement;
use crate::geometry::GeometryError;
use crate::line::{ContextId, Line};

/// The line will be used again in the distant future.
const DISTANT: u8 = 3;
/// ... after a long interval.
const LONG: u8 = 2;

/// The first empty way, else the first whose value is 3, after ageing all as far as that takes.
#[inline]
fn victim(ways: &mut [Line]) -> usize {
    let mut oldest = 0;
    for (way, line) in ways.iter().enumerate() {
        if !line.is_valid() {
            return way;
        }
        oldest = oldest.max(line.rrpv());
    }
    if oldest < DISTANT {
        let older_by = DISTANT - oldest;
        for line in &mut *ways {
            line.set_rrpv(line.rrpv() + older_by);
        }
    }
    ways.iter().position(|line| line.rrpv() == DISTANT).unwrap_or(0)
}

/// The verbs that both share.
macro_rules! by_prediction {
    () => {
        #[inline]
        fn on_hit(&mut self, ways: &mut [Line], way: usize) {
            ways[way].set_rrpv(0);
        }

        #[inline]
        fn victim(&mut self, ways: &mut [Line]) -> usize {
            victim(ways)
        }

        #[inline]
        fn on_invalidate(&mut self, ways: &mut [Line], way: usize) {
            ways[way] = Line::INVALID;
        }
    };
}

/// Static RRIP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Srrip;

impl Replacement for Srrip {
    by_prediction!();

    #[inline]
    fn on_fill(&mut self, _set: usize, ways: &mut [Line], way: usize, _context: ContextId) {
        ways[way].set_rrpv(LONG);
    }
}

/// Dynamic RRIP: SRRIP or BRRIP, whichever misses less in its leader sets.
#[derive(Clone, Debug)]
pub struct Drrip {
    duel: Duel,
    coin: Coin,
}

impl Drrip {
    /// For a cache with so many sets.
    pub fn new(sets: usize, seed: u64) -> Result<Self, GeometryError> {
        Ok(Self { duel: Duel::new(sets)?, coin: Coin::new(seed) })
    }

    /// What followers use.
    pub fn winner(&self) -> Side {
        self.duel.winner()
    }
}

impl Replacement for Drrip {
    by_prediction!();

    #[inline]
    fn on_miss(&mut self, set: usize) {
        self.duel.missed(set);
    }

    #[inline]
    fn on_fill(&mut self, set: usize, ways: &mut [Line], way: usize, _context: ContextId) {
        let long = self.duel.side(set) == Side::First || self.coin.exception();
        ways[way].set_rrpv(if long { LONG } else { DISTANT });
    }
}
