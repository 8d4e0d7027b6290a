//! Insertion that depends on whose line it is: fixed for each context, or found by time sampling (MICRO'14, section
//! IV-B).

use super::recency::{on_a_stack, promote};
use super::replacement::Replacement;
use crate::insertion::{Insertion, InsertionSampler, Quantum};
use crate::line::{ContextId, Line};

const CONTEXTS: usize = 256;

/// A fixed insertion position for each context.
#[derive(Clone, Debug)]
pub struct PerContext {
    at_lru: Box<[bool; CONTEXTS]>,
}

impl PerContext {
    /// By context number; those beyond the list insert at MRU.
    pub fn new(insertions: &[Insertion]) -> Self {
        let mut at_lru = Box::new([false; CONTEXTS]);
        for (at_lru, insertion) in at_lru.iter_mut().zip(insertions) {
            *at_lru = *insertion == Insertion::Lru;
        }
        Self { at_lru }
    }
}

impl Replacement for PerContext {
    on_a_stack!();

    #[inline]
    fn on_fill(&mut self, _set: usize, ways: &mut [Line], way: usize, context: ContextId) {
        if !self.at_lru[usize::from(context.0)] {
            promote(ways, way);
        }
    }
}

/// The paper's context preservation: each context's insertion follows its own [`InsertionSampler`].
#[derive(Clone, Debug)]
pub struct DipTime {
    samplers: Vec<InsertionSampler>,
    current: PerContext,
}

impl Default for DipTime {
    /// Every context starts with its first sample.
    fn default() -> Self {
        Self { samplers: vec![InsertionSampler::default(); CONTEXTS], current: PerContext::new(&[]) }
    }
}

impl DipTime {
    /// Where a context's new lines go in its next quantum.
    pub fn insertion(&self, context: ContextId) -> Insertion {
        self.samplers[usize::from(context.0)].insertion()
    }
}

impl Replacement for DipTime {
    on_a_stack!();

    #[inline]
    fn on_fill(&mut self, set: usize, ways: &mut [Line], way: usize, context: ContextId) {
        self.current.on_fill(set, ways, way, context);
    }

    fn quantum_started(&mut self, context: ContextId) {
        self.current.at_lru[usize::from(context.0)] = self.insertion(context) == Insertion::Lru;
    }

    fn quantum_ended(&mut self, context: ContextId, quantum: Quantum) {
        self.samplers[usize::from(context.0)].quantum_ended(quantum);
    }
}
