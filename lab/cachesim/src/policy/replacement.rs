//! What a replacement policy decides, of which a cache has one.

use crate::insertion::Quantum;
use crate::line::{ContextId, Line};

/// What one replacement policy decides. `ways` is one set; `context` is the one on whose behalf things happen.
pub trait Replacement {
    /// A demand access hit `way`.
    fn on_hit(&mut self, ways: &mut [Line], way: usize);

    /// A demand access missed in `set`. Before the fill, and also where the set still has room.
    fn on_miss(&mut self, _set: usize) {}

    /// The way to fill: an empty one, or the line to evict.
    fn victim(&mut self, ways: &mut [Line]) -> usize;

    /// A new line is in `way`, the one `victim` named.
    fn on_fill(&mut self, set: usize, ways: &mut [Line], way: usize, context: ContextId);

    /// The line in `way` is taken out, for another reason than replacement.
    fn on_invalidate(&mut self, ways: &mut [Line], way: usize);

    /// `context` gets a core.
    fn quantum_started(&mut self, _context: ContextId) {}

    /// `context` gives its core back.
    fn quantum_ended(&mut self, _context: ContextId, _quantum: Quantum) {}
}
