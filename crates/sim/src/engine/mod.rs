//! Time and what happens next: a queue of timers with stable tie-breaking, and random numbers that belong to somebody.

mod bits;
mod random;
mod timers;

pub(crate) use bits::{BitSet, next_in_word};
pub(crate) use random::Random;
pub use timers::Timers;

/// Nanoseconds since the simulation began.
pub type Time = u64;

/// Later than anything.
pub(crate) const NEVER: Time = Time::MAX;
