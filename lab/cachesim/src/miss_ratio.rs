//! A trace's miss-ratio curve in one pass: what share of its accesses a fully associative LRU cache misses, for every
//! size at once.
//!
//! An access hits in all caches larger than its stack distance and misses in all others (Mattson et al., 1970), so a
//! histogram of distances is the whole curve. Exact, that costs a logarithm per access and memory for every line of the
//! trace; sampled by lines (SHARDS, Waldspurger et al., FAST'15) it follows only lines whose hash is below a threshold,
//! and scales distances and counts up. With a bound on the lines followed, memory does not depend on the trace at all.

use crate::recency_tree::{RecencyTree, Slot};
use std::collections::{BinaryHeap, HashMap};

/// Which lines are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// All: exact.
    Exact,
    /// As many as this, at least 1; the rate falls as more come. FAST'15 finds 8,192 enough.
    Lines(usize),
}

/// Hashes are below this; the rate is threshold / modulus (FAST'15 uses 2^24, too).
const MODULUS: u64 = 1 << 24;
/// Distances are exact below twice this, and to one in this many above.
const STEPS: u64 = 1 << 12;

/// Collects distances.
pub struct MissRatio {
    tree: RecencyTree,
    slots: HashMap<u64, Slot>,
    threshold: u64,
    lines_max: usize,
    /// Followed lines by hash, largest first; empty unless their number is bounded.
    by_hash: BinaryHeap<(u64, u64)>,
    /// Accesses by bucket of their distance.
    histogram: Vec<f64>,
    first_uses: f64,
    accesses: u64,
}

/// Spreads line numbers evenly (the finaliser of `SplitMix64`).
fn hash(line: u64) -> u64 {
    let mixed = (line ^ (line >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % MODULUS
}

/// A distance's bucket: the distance itself below twice [`STEPS`], then so many to each doubling.
#[allow(clippy::cast_possible_truncation, reason = "below 2^18")]
fn bucket(distance: u64) -> usize {
    let shift = (distance / (2 * STEPS)).checked_ilog2().map_or(0, |log| log + 1);
    (u64::from(shift) * STEPS + (distance >> shift)) as usize
}

impl MissRatio {
    /// Nothing seen yet.
    pub fn new(sampling: Sampling) -> Self {
        let lines_max = match sampling {
            Sampling::Exact => usize::MAX,
            Sampling::Lines(lines) => lines.max(1),
        };
        Self {
            tree: RecencyTree::new(),
            slots: HashMap::new(),
            threshold: MODULUS,
            lines_max,
            by_hash: BinaryHeap::new(),
            histogram: Vec::new(),
            first_uses: 0.0,
            accesses: 0,
        }
    }

    /// An access to a line (address / line length).
    pub fn access(&mut self, line: u64) {
        self.accesses += 1;
        let hash = hash(line);
        if hash >= self.threshold {
            return;
        }
        let scale = MODULUS as f64 / self.threshold as f64;
        if let Some(slot) = self.slots.get(&line) {
            let depth = self.tree.depth(*slot);
            self.tree.remove(*slot);
            self.count(depth, scale);
        } else {
            self.first_uses += scale;
            if self.lines_max < usize::MAX {
                self.by_hash.push((hash, line));
            }
        }
        let slots = &mut self.slots;
        self.tree.push(line, |line, slot| {
            slots.insert(line, slot);
        });
        if self.slots.len() > self.lines_max {
            self.lower_the_rate();
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    fn count(&mut self, depth: usize, scale: f64) {
        let bucket = bucket((depth as f64 * scale).round() as u64);
        if bucket >= self.histogram.len() {
            self.histogram.resize(bucket + 1, 0.0);
        }
        self.histogram[bucket] += scale;
    }

    /// Forgets the lines with the largest hash, and all that share it.
    fn lower_the_rate(&mut self) {
        let Some(&(largest, _)) = self.by_hash.peek() else { return };
        self.threshold = largest.max(1);
        while let Some(&(hash, line)) = self.by_hash.peek()
            && hash >= self.threshold
        {
            self.by_hash.pop();
            if let Some(slot) = self.slots.remove(&line) {
                self.tree.remove(slot);
            }
        }
    }

    /// Accesses seen.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Different lines in the trace, estimated where sampled.
    pub fn distinct_lines(&self) -> f64 {
        self.slots.len() as f64 * MODULUS as f64 / self.threshold as f64
    }

    /// Lines that are followed at present.
    pub fn followed_lines(&self) -> usize {
        self.slots.len()
    }

    /// Share of the accesses that miss in a cache of each of these numbers of lines, first uses included; `None` before
    /// the first access. Sizes below 8,192 lines, and multiples of a 4,096th of their power of two, are met exactly.
    pub fn curve(&self, capacities_lines: &[u64]) -> Option<Vec<f64>> {
        if self.accesses == 0 {
            return None;
        }
        let total = self.accesses as f64;
        // By chance too many or too few accesses are sampled, those of a few hot lines above all: the difference
        // belongs to the shortest distances (SHARDS-adj), so the total is the true one.
        let missed = |capacity: u64| {
            let beyond: f64 = self.histogram.iter().skip(bucket(capacity)).sum::<f64>() + self.first_uses;
            let missed = if capacity == 0 { total } else { beyond };
            (missed / total).clamp(0.0, 1.0)
        };
        Some(capacities_lines.iter().map(|capacity| missed(*capacity)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_below_and_fine_above_and_never_fall() {
        for distance in 0..2 * STEPS {
            assert_eq!(bucket(distance), usize::try_from(distance).unwrap());
        }
        let mut last = 0;
        for distance in 0..(1 << 20) {
            let bucket = bucket(distance);
            assert!(bucket == last || bucket == last + 1, "{distance}");
            last = bucket;
        }
        assert!(bucket(u64::MAX) < 1 << 18);
    }
}
