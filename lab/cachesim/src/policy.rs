//! Where a new line goes in its set's recency stack: at the top, or at the bottom where it is the next to go.
//!
//! | policy | new lines | from |
//! | --- | --- | --- |
//! | [`PolicyKind::Lru`] | at the top | |
//! | [`PolicyKind::PerContext`] | at the top or the bottom, fixed for each context | MICRO'14, SIP-best's parts |
//! | [`PolicyKind::DipTime`] | at the top or the bottom, by time sampling of each context | MICRO'14, section IV-B |

use crate::insertion::{Insertion, InsertionSampler, Quantum};
use crate::line::ContextId;

const CONTEXTS: usize = 256;

/// A policy by name.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyKind {
    /// Plain LRU.
    Lru,
    /// The MICRO'14 paper's insertion by time sampling.
    DipTime,
    /// A fixed insertion for each context, by its number; contexts beyond the list insert at the top.
    PerContext(Vec<Insertion>),
}

/// Where each context's new lines go now.
#[derive(Clone, Debug)]
pub struct Policy {
    at_lru: Box<[bool; CONTEXTS]>,
    /// Of each context; none unless by time sampling.
    samplers: Vec<InsertionSampler>,
}

impl Policy {
    /// A policy's state for one cache. By time sampling, every context starts with its first sample.
    pub fn new(kind: &PolicyKind) -> Self {
        let mut at_lru = Box::new([false; CONTEXTS]);
        if let PolicyKind::PerContext(insertions) = kind {
            for (at_lru, insertion) in at_lru.iter_mut().zip(insertions) {
                *at_lru = *insertion == Insertion::Lru;
            }
        }
        let sampled = if *kind == PolicyKind::DipTime { CONTEXTS } else { 0 };
        Self { at_lru, samplers: vec![InsertionSampler::default(); sampled] }
    }

    /// Whether this context's new lines go to the bottom.
    #[inline]
    pub fn inserts_at_lru(&self, context: ContextId) -> bool {
        self.at_lru[usize::from(context.0)]
    }

    /// `context` gets a core.
    pub fn quantum_started(&mut self, context: ContextId) {
        let index = usize::from(context.0);
        if let Some(sampler) = self.samplers.get(index) {
            self.at_lru[index] = sampler.insertion() == Insertion::Lru;
        }
    }

    /// `context` gives its core back.
    pub fn quantum_ended(&mut self, context: ContextId, quantum: Quantum) {
        if let Some(sampler) = self.samplers.get_mut(usize::from(context.0)) {
            sampler.quantum_ended(quantum);
        }
    }
}
