//! One set-associative, write-back, write-allocate cache.
//!
//! It knows nothing of the levels around it: [`Cache::access`] says hit or miss, [`Cache::fill`] brings a line in and
//! hands out the one that had to go, and whoever calls decides where that goes. Addresses are line numbers (address /
//! line length).
//!
//! A set's lines stand in the order of its recency stack, most recently used first, and empty ways stand last. So the
//! stack costs no memory of its own: a hit moves a line to the front, an insertion at LRU leaves it at the end.

use crate::geometry::Geometry;
use crate::line::{ContextId, Line};
use crate::policy::Policy;

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

#[derive(Clone, Debug)]
pub struct Cache {
    geometry: Geometry,
    ways: usize,
    set_mask: u64,
    lines: Vec<Line>,
    policy: Policy,
    fills: u64,
    evictions: u64,
}

impl Cache {
    /// An empty cache.
    pub fn new(geometry: Geometry, policy: Policy) -> Self {
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

    /// Where new lines go, to tell it about quanta.
    pub fn policy_mut(&mut self) -> &mut Policy {
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
        let way = ways.iter().position(|line| line.is(number))?;
        let before = ways[way];
        ways[way].set_used();
        if write {
            ways[way].set_dirty();
        }
        promote(ways, way);
        Some(before)
    }

    /// Brings in a line that is not there; returns the line that had to go.
    #[inline]
    pub fn fill(&mut self, number: u64, context: ContextId, why: Fill) -> Option<Line> {
        let set = self.set_of(number);
        let ways = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        debug_assert!(!ways.iter().any(|line| line.is(number)), "{number:x} is there already");
        let way = bottom(ways);
        let evicted = ways[way];
        let mut line = Line::new(number, context);
        match why {
            Fill::Clean => {}
            Fill::Dirty => line.set_dirty(),
            Fill::Prefetch => line.set_prefetched(),
        }
        ways[way] = line;
        if !self.policy.inserts_at_lru(context) {
            promote(ways, way);
        }
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
            promote(ways, way);
        }
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

    /// Lines that had to go so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}

/// A used line goes to the top of the stack.
#[inline]
fn promote(ways: &mut [Line], way: usize) {
    // By hand: `rotate_right` and `copy_within` call out to routines for long slices, even for the commonest case of
    // all, a line that is at the top already.
    let mut carried = ways[way];
    for place in &mut ways[..=way] {
        std::mem::swap(place, &mut carried);
    }
}

/// The first empty way, else the bottom of the stack.
#[inline]
fn bottom(ways: &[Line]) -> usize {
    let last = ways.len() - 1;
    if ways[last].is_valid() { last } else { ways.iter().position(|line| !line.is_valid()).unwrap_or(last) }
}
