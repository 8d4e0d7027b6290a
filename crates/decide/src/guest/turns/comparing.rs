//! A trial that goes on: blocks on one vCPU and on several, in turn, and what each pair of them says.

use super::evidence::{self, Block, Compared};
use gleaner_model::Window;
use serde::{Deserialize, Serialize};

/// Whether a block is where the first one was. Each two of them are a pair, and a drift of the load cancels
/// (Thue-Morse).
const AS_AT_FIRST: [bool; 8] = [true, false, false, true, false, true, true, false];
/// So many pairs make a trial, where none is clear before.
pub(super) const PAIRS: usize = AS_AT_FIRST.len() / 2;

/// A block that has not counted enough after so many windows never will.
const BLOCK_WINDOWS_MAX: u32 = 25;

/// A trial that goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Comparing {
    /// What was known when it began: whether on one vCPU, and how many CPUs were used.
    packed_at_first: bool,
    pub(super) cpus: f64,
    pub(super) blocks: Vec<Block>,
    /// The block that goes on, and of how many windows it is.
    open: Option<Block>,
    windows: u32,
    /// Threads that were moved take a moment to arrive, and idle vCPUs to poll for long again.
    settling: bool,
}

impl Comparing {
    /// The last window before it is in its first block.
    pub(super) fn begun(window: &Window, packed: bool, cpus: f64) -> Self {
        let mut new =
            Self { packed_at_first: packed, cpus, blocks: Vec::new(), open: None, windows: 0, settling: false };
        new.add(window);
        new.settling = new.is_packed() != packed;
        new
    }

    fn is_packed_in(&self, block: usize) -> bool {
        AS_AT_FIRST[block % AS_AT_FIRST.len()] == self.packed_at_first
    }

    /// Whether the block that goes on is on one vCPU.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed_in(self.blocks.len())
    }

    /// Adds a window; `Some(true)`: the block is over, `Some(false)`: it never will be.
    pub(super) fn add(&mut self, window: &Window) -> Option<bool> {
        if std::mem::take(&mut self.settling) {
            return None;
        }
        let block = Block::of(window);
        let block = self.open.take().map_or(block.clone(), |open| open.and(&block));
        self.windows += 1;
        if block.tells() {
            let was_packed = self.is_packed();
            self.blocks.push(block);
            self.windows = 0;
            self.settling = was_packed != self.is_packed();
            return Some(true);
        }
        self.open = Some(block);
        (self.windows >= BLOCK_WINDOWS_MAX).then_some(false)
    }

    /// Whether each block has another beside it.
    pub(super) fn is_whole(&self) -> bool {
        self.blocks.len().is_multiple_of(2)
    }

    /// What each whole pair says.
    pub(super) fn pairs(&self) -> Vec<Compared> {
        let pairs = self.blocks.chunks_exact(2).enumerate();
        let pairs: Vec<(&Block, &Block)> = pairs
            .map(|(n, pair)| if self.is_packed_in(2 * n) { (&pair[0], &pair[1]) } else { (&pair[1], &pair[0]) })
            .collect();
        // The kernel runs threads on one vCPU at times where it need not: one pair that shows a lock speaks for all.
        let locks = pairs.iter().flat_map(|(packed, apart)| packed.locks_beside(apart)).collect();
        pairs.iter().map(|(packed, apart)| evidence::compare(packed, apart, &locks)).collect()
    }

    /// The last block on one vCPU, or on all.
    pub(super) fn last(&self, packed: bool) -> Option<&Block> {
        (0..self.blocks.len()).rev().find(|n| self.is_packed_in(*n) == packed).map(|n| &self.blocks[n])
    }
}
