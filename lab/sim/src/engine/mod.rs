//! Time and what happens next: a queue of timers with stable tie-breaking, and random numbers that belong to somebody.

mod bits;
mod random;
mod timers;

pub(crate) use bits::{BitSet, next_in_word};
pub(crate) use random::Random;
pub use timers::Timers;

/// Nanoseconds since the simulation began.
pub type Time = u64;

/// A mean of lengths, the latest of which counts an eighth, as the kernel keeps them (`update_avg`; the menu governor's
/// `DECAY`).
pub(crate) const fn decaying_mean(mean: Time, length: Time) -> Time {
    mean - mean / 8 + length / 8
}

/// Later than anything.
pub(crate) const NEVER: Time = Time::MAX;
