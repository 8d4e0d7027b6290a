//! One set-associative, write-back, write-allocate cache.
//!
//! It knows nothing of the levels around it: [`Cache::access`] says hit or miss, [`Cache::fill`] brings a line in and
//! hands out the one that had to go, and whoever calls decides where that goes. Addresses are line numbers (address /
//! line length).

use crate::geometry::Geometry;
use crate::line::{ContextId, Line};
use crate::policy::Replacement;

/// Why a line is brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A load or an instruction fetch missed.
    Clean,
    /// A store missed, or the level above writes back a line that is not here.
    Dirty,
    /// Nobody asked for it yet.
    Prefetch,
}

/// A cache with the replacement policy `P`.
#[derive(Clone, Debug)]
pub struct Cache<P> {
    geometry: Geometry,
    ways: usize,
    set_mask: u64,
    lines: Vec<Line>,
    policy: P,
    fills: u64,
    evictions: u64,
}

impl<P: Replacement> Cache<P> {
    /// An empty cache.
    pub fn new(geometry: Geometry, policy: P) -> Self {
        Self {
            geometry,
            ways: geometry.ways(),
            set_mask: geometry.sets() as u64 - 1,
            lines: vec![Line::INVALID; geometry.lines()],
            policy,
            fills: 0,
            evictions: 0,
        }
    }

    /// Its shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Its replacement policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Its replacement policy, to tell it about quanta.
    pub fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked to the number of sets, which is a usize")]
    fn set_of(&self, number: u64) -> usize {
        (number & self.set_mask) as usize
    }

    #[inline]
    fn set(&mut self, set: usize) -> &mut [Line] {
        &mut self.lines[set * self.ways..(set + 1) * self.ways]
    }

    /// A demand access. True if it hit; a miss fills nothing. A store that hits makes the line dirty.
    #[inline]
    pub fn access(&mut self, number: u64, write: bool) -> bool {
        self.access_line(number, write).is_some()
    }

    /// As [`Self::access`]; a hit returns the line as it was before.
    #[inline]
    pub fn access_line(&mut self, number: u64, write: bool) -> Option<Line> {
        let set = self.set_of(number);
        let ways = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        let Some(way) = ways.iter().position(|line| line.is(number)) else {
            self.policy.on_miss(set);
            return None;
        };
        let before = ways[way];
        ways[way].set_used();
        if write {
            ways[way].set_dirty();
        }
        self.policy.on_hit(ways, way);
        Some(before)
    }

    /// Brings in a line that is not there; returns the line that had to go.
    #[inline]
    pub fn fill(&mut self, number: u64, context: ContextId, why: Fill) -> Option<Line> {
        let set = self.set_of(number);
        let ways = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        debug_assert!(!ways.iter().any(|line| line.is(number)), "{number:x} is there already");
        let way = self.policy.victim(ways);
        let evicted = ways[way];
        let mut line = Line::new(number, context);
        match why {
            Fill::Clean => {}
            Fill::Dirty => line.set_dirty(),
            Fill::Prefetch => line.set_prefetched(),
        }
        ways[way] = line;
        self.policy.on_fill(set, ways, way, context);
        self.fills += 1;
        self.evictions += u64::from(evicted.is_valid());
        evicted.is_valid().then_some(evicted)
    }

    /// The level above writes a line back: dirty from now on, but not used, so its place in the recency stack stays.
    /// False if it is not here.
    #[inline]
    pub fn write_back(&mut self, number: u64) -> bool {
        let set = self.set_of(number);
        let found = self.set(set).iter_mut().find(|line| line.is(number));
        found.map(Line::set_dirty).is_some()
    }

    /// Moves a line up as a hit would, without a use being counted. Nothing if it is not here.
    pub fn promote(&mut self, number: u64) {
        let set = self.set_of(number);
        let ways = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        if let Some(way) = ways.iter().position(|line| line.is(number)) {
            self.policy.on_hit(ways, way);
        }
    }

    /// Takes a line out, if it is here.
    #[inline]
    pub fn invalidate(&mut self, number: u64) -> Option<Line> {
        let set = self.set_of(number);
        let ways = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        let way = ways.iter().position(|line| line.is(number))?;
        let line = ways[way];
        self.policy.on_invalidate(ways, way);
        self.evictions += 1;
        Some(line)
    }

    /// Whether a line is here. Changes nothing.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        let set = self.set_of(number);
        self.lines[set * self.ways..(set + 1) * self.ways].iter().any(|line| line.is(number))
    }

    /// Every line that is here.
    pub fn resident(&self) -> impl Iterator<Item = Line> + '_ {
        self.lines.iter().copied().filter(|line| line.is_valid())
    }

    /// Lines brought in so far.
    pub fn fills(&self) -> u64 {
        self.fills
    }

    /// Lines that had to go so far, by replacement and otherwise.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}
