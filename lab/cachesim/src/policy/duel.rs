//! Set dueling: a few sets always use one policy, as many always use the other, and a saturating counter of their
//! misses tells all the rest which to follow (ISCA'07, section 4).
//!
//! Leaders are found by *complement-select* (section 4.3): the index's upper bits name one of 32 constituencies, and in
//! each constituency the set whose lower bits equal that number leads for the first policy, the one whose lower bits
//! equal its complement for the second. Where the paper's 1024 sets have five bits of either, other sizes have more or
//! fewer lower bits: more are zero for the first and one for the second leader, fewer are compared as far as they go.

use super::recency::{Coin, on_a_stack, promote};
use super::replacement::Replacement;
use crate::geometry::GeometryError;
use crate::line::{ContextId, Line};

/// Leader sets for each of the two policies.
pub const LEADERS: usize = 32;
/// Bits of the policy selector.
pub const PSEL_BITS: u32 = 10;

/// Which policy a set is to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The policy that is right for most programs: LRU, SRRIP.
    First,
    /// The one for programs that thrash: BIP, BRRIP.
    Second,
}

/// Leader sets and the selector.
#[derive(Clone, Debug)]
pub struct Duel {
    offset_bits: u32,
    selector: u32,
}

impl Duel {
    /// For a cache with so many sets, a power of two: at least 128, so that not more than half of them lead.
    pub fn new(sets: usize) -> Result<Self, GeometryError> {
        if !sets.is_power_of_two() || sets < 4 * LEADERS {
            return Err(GeometryError::new(
                format!("set dueling in {sets} sets"),
                format!("{LEADERS} leader sets for each policy would be more than half of them"),
                format!("give a cache of at least {} sets, or a policy without dueling", 4 * LEADERS),
            ));
        }
        Ok(Self { offset_bits: (sets / LEADERS).trailing_zeros(), selector: 1 << (PSEL_BITS - 1) })
    }

    /// Whom a leader set leads for; `None` for a follower.
    #[inline]
    pub fn leader(&self, set: usize) -> Option<Side> {
        let offsets = (1_usize << self.offset_bits) - 1;
        let constituency = set >> self.offset_bits;
        let offset = set & offsets;
        // A leader's offset bits above those compared are zero (first) or one (second): one leader per constituency.
        let first = constituency & offsets;
        if offset == first {
            Some(Side::First)
        } else if offset == !first & offsets {
            Some(Side::Second)
        } else {
            None
        }
    }

    /// A demand miss: a leader's miss speaks against its policy.
    #[inline]
    pub fn missed(&mut self, set: usize) {
        match self.leader(set) {
            Some(Side::First) => self.selector = (self.selector + 1).min((1 << PSEL_BITS) - 1),
            Some(Side::Second) => self.selector = self.selector.saturating_sub(1),
            None => {}
        }
    }

    /// The policy that a set is to use.
    #[inline]
    pub fn side(&self, set: usize) -> Side {
        self.leader(set).unwrap_or_else(|| self.winner())
    }

    /// What followers use: the selector's top bit.
    #[inline]
    pub fn winner(&self) -> Side {
        if self.selector >> (PSEL_BITS - 1) == 0 { Side::First } else { Side::Second }
    }
}

/// Dynamic insertion policy by set dueling: LRU or BIP, whichever misses less (ISCA'07).
#[derive(Clone, Debug)]
pub struct DipDuel {
    duel: Duel,
    coin: Coin,
}

impl DipDuel {
    /// For a cache with so many sets.
    pub fn new(sets: usize, seed: u64) -> Result<Self, GeometryError> {
        Ok(Self { duel: Duel::new(sets)?, coin: Coin::new(seed) })
    }

    /// What followers use.
    pub fn winner(&self) -> Side {
        self.duel.winner()
    }
}

impl Replacement for DipDuel {
    on_a_stack!();

    #[inline]
    fn on_miss(&mut self, set: usize) {
        self.duel.missed(set);
    }

    #[inline]
    fn on_fill(&mut self, set: usize, ways: &mut [Line], way: usize, _context: ContextId) {
        if self.duel.side(set) == Side::First || self.coin.exception() {
            promote(ways, way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constituency_has_one_leader_for_each_side() {
        for sets in [128, 256, 512, 1024, 2048, 8192, 65536] {
            let duel = Duel::new(sets).unwrap();
            for constituency in 0..LEADERS {
                let size = sets / LEADERS;
                let leads =
                    |side| (0..size).filter(|offset| duel.leader(constituency * size + offset) == Some(side)).count();
                assert_eq!((leads(Side::First), leads(Side::Second)), (1, 1), "{sets} sets, {constituency}");
            }
        }
    }

    #[test]
    fn the_papers_own_leaders() {
        // ISCA'07, section 4.3: with 1024 sets and 32 leaders, LRU leads in sets 0, 33, 66, .. 1023 and BIP in the
        // multiples of 31.
        let duel = Duel::new(1024).unwrap();
        for set in 0..1024 {
            let expected = match set {
                _ if set % 33 == 0 => Some(Side::First),
                _ if set > 0 && set % 31 == 0 && set <= 31 * 32 => Some(Side::Second),
                _ => None,
            };
            assert_eq!(duel.leader(set), expected, "set {set}");
        }
    }

    #[test]
    fn the_selector_saturates_and_turns_at_its_middle() {
        let mut duel = Duel::new(1024).unwrap();
        assert_eq!(duel.winner(), Side::Second, "512 has its top bit set");
        duel.missed(31);
        assert_eq!(duel.winner(), Side::First);
        duel.missed(1);
        assert_eq!(duel.winner(), Side::First, "a follower's miss says nothing");
        (0..5000).for_each(|_| duel.missed(31));
        (0..511).for_each(|_| duel.missed(0));
        assert_eq!(duel.winner(), Side::First);
        duel.missed(0);
        assert_eq!(duel.winner(), Side::Second);
        (0..5000).for_each(|_| duel.missed(0));
        (0..511).for_each(|_| duel.missed(31));
        assert_eq!(duel.winner(), Side::Second);
        duel.missed(31);
        assert_eq!(duel.winner(), Side::First);
    }

    #[test]
    fn small_caches_are_refused() {
        let said = Duel::new(64).unwrap_err().to_string();
        assert!(said.contains("set dueling in 64 sets") && said.contains("at least 128 sets"), "{said}");
    }
}
