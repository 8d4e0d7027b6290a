//! A hold-off that doubles while its cause keeps coming back, and starts small again after a quiet time.

use gleaner_model::Nanos;
use serde::{Deserialize, Serialize};

/// Doubling hold-off between `min` and `max`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Backoff {
    min: Nanos,
    max: Nanos,
    /// The last hold-off; `None` before the first and after a quiet time.
    length: Option<Nanos>,
    until: Nanos,
    /// It starts small again after this many times the last hold-off.
    quiet_times: u64,
}

impl Backoff {
    pub(super) fn new(min: Nanos, max: Nanos, quiet_times: u64) -> Self {
        Self { min, max, length: None, until: Nanos::ZERO, quiet_times }
    }

    /// Holds off from `now`. It doubles unless it has been quiet, from `quiet_since` to `quiet_until`, for longer than
    /// `quiet_times` the last hold-off. Returns how long it holds.
    pub(super) fn trigger(&mut self, now: Nanos, quiet_since: Nanos, quiet_until: Nanos) -> Nanos {
        self.forget_after_quiet(quiet_since, quiet_until);
        let length = self.length.map_or(self.min, |last| last.times(2).min(self.max));
        self.length = Some(length);
        self.until = now + length;
        length
    }

    /// Holds off until then, and does not double for it.
    pub(super) fn hold(&mut self, until: Nanos) {
        self.until = until;
    }

    /// Starts small again if it has been quiet for longer than `quiet_times` the last hold-off.
    pub(super) fn forget_after_quiet(&mut self, quiet_since: Nanos, quiet_until: Nanos) {
        if self.length.is_some_and(|last| quiet_until - quiet_since > last.times(self.quiet_times)) {
            self.length = None;
        }
    }

    /// Starts small again.
    pub(super) fn reset(&mut self) {
        self.length = None;
    }

    /// As if there had been none.
    pub(super) fn forget(&mut self) {
        (self.length, self.until) = (None, Nanos::ZERO);
    }

    /// When the last hold-off ends or ended; 0 if there was none.
    pub(super) fn until(&self) -> Nanos {
        self.until
    }

    /// What is left of the hold-off, zero when it is over.
    pub(super) fn remaining(&self, now: Nanos) -> Nanos {
        self.until - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_its_limit_and_starts_small_after_a_quiet_time() {
        let s = Nanos::from_secs;
        let mut backoff = Backoff::new(s(1), s(5), 1);
        // (comes back at, quiet since, holds for)
        for (now, quiet_since, expected) in [(0, 0, 1), (1, 1, 2), (4, 3, 4), (9, 8, 5), (14, 14, 5), (25, 19, 1)] {
            assert_eq!(backoff.trigger(s(now), s(quiet_since), s(now)), s(expected), "at {now} s");
            assert_eq!(backoff.remaining(s(now)), s(expected));
            assert_eq!(backoff.remaining(s(now + expected)), Nanos::ZERO);
        }
    }
}
