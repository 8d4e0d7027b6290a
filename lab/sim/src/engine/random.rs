//! Random numbers, a stream of its own for each thread: what one thread draws does not change with what others do, so
//! two policies meet the same work.

use super::Time;
use fastrand::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Random(Rng);

impl Random {
    /// The stream number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut of_seed = Rng::with_seed(seed ^ stream.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self(Rng::with_seed(of_seed.u64(..)))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.0.u64(..limit) }
    }

    /// Exponentially distributed, to the nearest nanosecond.
    pub(crate) fn exponential(&mut self, mean: Time) -> Time {
        // 1 - u is never 0.
        let drawn = -(1.0 - self.0.f64()).ln() * mean as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ns = drawn.round() as u64;
        ns
    }
}
