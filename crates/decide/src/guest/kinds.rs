//! For what kinds of program a trial has said no, by granularity: a program that has started up is another one, and
//! need not wait until the same is tried again.

use serde::{Deserialize, Serialize};

/// A program whose switches take so many times, or so small a part of, the CPU time is of another kind.
const ANOTHER: f64 = 4.0;
/// Once so many have lost, time alone decides.
const KINDS_MAX: usize = 4;

/// Granularities (CPU time a switch, in one unit) at which a trial was lost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LostKinds(Vec<f64>);

impl LostKinds {
    /// A trial was lost at this granularity.
    pub(super) fn remember(&mut self, granularity: f64) {
        if self.0.len() < KINDS_MAX && granularity.is_finite() {
            self.0.push(granularity);
        }
    }

    /// Whether one was lost, and none at a granularity like this.
    pub(super) fn is_another(&self, granularity: f64) -> bool {
        let differs = |lost: &f64| (granularity / lost).max(lost / granularity) >= ANOTHER;
        !self.0.is_empty() && self.0.len() < KINDS_MAX && self.0.iter().all(differs)
    }

    /// Nothing is known of the program any more.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_is_one_that_has_not_lost_and_four_are_enough() {
        let mut lost = LostKinds::default();
        assert!(!lost.is_another(1.0), "nothing was tried");
        lost.remember(10.0);
        assert_eq!([2.0, 3.0, 30.0, 50.0].map(|granularity| lost.is_another(granularity)), [true, false, false, true]);
        lost.remember(2.0);
        assert!(!lost.is_another(2.0) && lost.is_another(100.0));
        lost.remember(100.0);
        lost.remember(1_000.0);
        assert!(!lost.is_another(1e6));
        lost.forget();
        lost.remember(1.0);
        assert!(lost.is_another(1e6));
    }
}
