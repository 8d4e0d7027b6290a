//! An LRU stack of any depth in logarithmic time: "which line is so deep".
//!
//! Lines stand in slots in the order of their last use; a Fenwick tree counts the taken slots. When the slots are used
//! up, the lines move together (or the tree grows with them), so memory follows the number of lines, not of uses.

#![allow(clippy::cast_possible_truncation, reason = "2^32 lines would need more memory than there is")]

/// A line's place. Places change when [`RecencyTree::push`] moves lines together.
pub(crate) type Slot = u32;

const EMPTY: u64 = u64::MAX;
const SLOTS_MIN: usize = 1024;

/// The stack.
pub(crate) struct RecencyTree {
    /// Fenwick tree: `counts[i]` sums the slots (i - lowbit(i), i], numbered from 1.
    counts: Vec<u32>,
    lines: Vec<u64>,
    next: usize,
    live: usize,
}

impl RecencyTree {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; SLOTS_MIN + 1], lines: vec![EMPTY; SLOTS_MIN], next: 0, live: 0 }
    }

    /// Lines on the stack.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Puts a line on top.
    pub(crate) fn push(&mut self, line: u64) {
        if self.next == self.lines.len() {
            self.compact();
        }
        let slot = self.next;
        self.next += 1;
        self.live += 1;
        self.lines[slot] = line;
        self.add(slot, 1);
    }

    /// Takes out the line in a slot.
    pub(crate) fn remove(&mut self, slot: Slot) -> u64 {
        let slot = slot as usize;
        let line = std::mem::replace(&mut self.lines[slot], EMPTY);
        debug_assert_ne!(line, EMPTY);
        self.live -= 1;
        self.add(slot, u32::MAX);
        line
    }

    /// The slot of the line that is `depth` deep; `depth` must be below [`Self::len`].
    pub(crate) fn at_depth(&self, depth: usize) -> Slot {
        // The (live - depth)th taken slot from the bottom.
        let mut rank = self.live - depth;
        let mut at = 0;
        let mut step = self.lines.len().next_power_of_two();
        while step > 0 {
            if at + step < self.counts.len() && (self.counts[at + step] as usize) < rank {
                at += step;
                rank -= self.counts[at] as usize;
            }
            step >>= 1;
        }
        at as Slot
    }

    fn add(&mut self, slot: usize, by: u32) {
        let mut at = slot + 1;
        while at < self.counts.len() {
            self.counts[at] = self.counts[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    fn compact(&mut self) {
        self.lines.retain(|line| *line != EMPTY);
        self.next = self.live;
        let slots = (2 * self.live).max(SLOTS_MIN);
        self.lines.resize(slots, EMPTY);
        self.counts.clear();
        self.counts.resize(slots + 1, 0);
        for slot in 0..self.live {
            self.counts[slot + 1] = 1;
        }
        for at in 1..=slots {
            let above = at + (at & at.wrapping_neg());
            if above <= slots {
                self.counts[above] += self.counts[at];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_list() {
        let mut chance = fastrand::Rng::with_seed(3);
        let mut tree = RecencyTree::new();
        let mut list: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            let line = chance.u64(..700);
            if let Some(depth) = list.iter().position(|other| *other == line) {
                assert_eq!(tree.remove(tree.at_depth(depth)), line);
                list.remove(depth);
            }
            tree.push(line);
            list.insert(0, line);
            assert_eq!(tree.len(), list.len());
        }
    }
}
