//! How many threads of a program ran or waited to run at once, as results say it.

use crate::text::percent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Shares of the time in which so many were runnable: on a vCPU, or waiting for one. Null without BPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concurrency {
    pub none_ratio: Option<f64>,
    pub one_ratio: Option<f64>,
    pub two_ratio: Option<f64>,
    pub three_ratio: Option<f64>,
    pub four_ratio: Option<f64>,
    /// Five or more.
    pub more_ratio: Option<f64>,
    /// How many there were on average at least. Without BPF it is what CPU time and waits for a vCPU say.
    pub threads_mean_min: f64,
}

impl Concurrency {
    /// Of what an observer counted, where it did, and of what the CPU time says.
    pub fn of(counted: Option<&gleaner_model::Concurrency>, by_cpu_time: f64) -> Self {
        let exactly = |threads: usize| {
            let counted = counted?;
            Some(counted.at_least(threads)? - counted.at_least(threads + 1).unwrap_or(0.0))
        };
        Self {
            none_ratio: exactly(0),
            one_ratio: exactly(1),
            two_ratio: exactly(2),
            three_ratio: exactly(3),
            four_ratio: exactly(4),
            more_ratio: exactly(5),
            threads_mean_min: counted.and_then(gleaner_model::Concurrency::mean).unwrap_or(by_cpu_time),
        }
    }
}

/// What follows "runnable at once: ".
impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(none), Some(one), Some(two)) = (self.none_ratio, self.one_ratio, self.two_ratio) else {
            return write!(f, "{:.2} on average at least", self.threads_mean_min);
        };
        let more: f64 = [self.three_ratio, self.four_ratio, self.more_ratio].into_iter().flatten().sum();
        let [none, one, two, more] = [none, one, two, more].map(percent);
        write!(f, "none {none}, one {one}, two {two}, more {more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::Nanos;

    #[test]
    fn what_was_counted_is_told_and_else_what_is_certain() {
        let counted = gleaner_model::Concurrency { times: [310, 640, 30, 10, 0, 10].map(Nanos) };
        let told = Concurrency::of(Some(&counted), 9.0);
        assert_eq!(told.to_string(), "none 31.0 %, one 64.0 %, two 3.0 %, more 2.0 %");
        assert!((told.threads_mean_min - 0.78).abs() < 1e-9 && told.more_ratio == Some(0.01), "{told:?}");
        let bound = Concurrency::of(None, 1.3);
        assert_eq!(bound.to_string(), "1.30 on average at least");
    }
}
