//! Concurrency: how many threads of a group run or wait to run at once, and for how long how many.

use crate::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Time by how many threads of a group were runnable: on a vCPU, or waiting for one. Who wakes another is still on its
/// vCPU then, so threads that take turns are two for a moment at each hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// Time with none, one, two, and so on; the last with so many or more.
    pub times: [Nanos; Concurrency::COUNTS],
}

impl Concurrency {
    /// None to four, and five or more.
    pub const COUNTS: usize = 6;

    /// The time that it is about.
    pub fn total(&self) -> Nanos {
        self.times.iter().copied().sum()
    }

    /// The share of the time in which at least so many were runnable, 0 to 1; `None` where there was no time, or so
    /// many are not told apart.
    pub fn at_least(&self, threads: usize) -> Option<f64> {
        let total = self.total();
        let time: Nanos = self.times.get(threads..).filter(|times| !times.is_empty())?.iter().copied().sum();
        (total > Nanos::ZERO).then(|| time.share_of(total))
    }

    /// How many were runnable on average: at least so many, because "five or more" counts as five.
    pub fn mean(&self) -> Option<f64> {
        (1..Self::COUNTS).map(|threads| self.at_least(threads)).sum()
    }
}

impl AddAssign for Concurrency {
    fn add_assign(&mut self, other: Self) {
        self.times.iter_mut().zip(other.times).for_each(|(time, more)| *time += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_the_mean_are_of_the_time_that_was_seen() {
        let mut concurrency = Concurrency { times: [10, 60, 20, 10, 0, 0].map(Nanos) };
        let found: Vec<Option<f64>> = [0, 1, 2, 5, 6].map(|threads| concurrency.at_least(threads)).to_vec();
        assert_eq!(found, [Some(1.0), Some(0.9), Some(0.3), Some(0.0), None]);
        assert!((concurrency.mean().unwrap() - 1.3).abs() < 1e-9);
        concurrency += Concurrency { times: [0, 0, 0, 0, 0, 100].map(Nanos) };
        assert_eq!((concurrency.total(), concurrency.at_least(5)), (Nanos(200), Some(0.5)));
        assert_eq!((Concurrency::default().at_least(1), Concurrency::default().mean()), (None, None));
    }
}
