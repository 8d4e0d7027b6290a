//! How long requests took.

use gleaner_model::Nanos;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longer ones count as this: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Latencies of many requests, in constant memory and to three digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 to an hour with three digits is a histogram"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(Nanos::from(latency).0.max(1));
    }

    /// Adds what another thread has.
    pub(crate) fn merge(into: &mut Option<Self>, other: Option<Self>) {
        match (into.as_mut(), other) {
            // Both have the same bounds: it cannot fail.
            (Some(sum), Some(other)) => drop(sum.0.add(other.0)),
            (None, Some(other)) => *into = Some(other),
            (_, None) => {}
        }
    }

    /// `None` where nothing was recorded: there is no median of nothing.
    pub(crate) fn summary(&self) -> Option<LatencySummary> {
        let at = |quantile| Nanos(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| LatencySummary {
            n: self.0.len(),
            mean_ns: self.0.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Nanos(self.0.max()),
        })
    }
}

/// A distribution of latencies; quantiles to three digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencySummary {
    /// Requests.
    pub n: u64,
    /// Mean, in nanoseconds.
    pub mean_ns: f64,
    /// Median.
    pub p50: Nanos,
    pub p90: Nanos,
    pub p99: Nanos,
    pub p999: Nanos,
    pub max: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_numbers() {
        let mut all = None;
        for half in 0..2u64 {
            let mut latencies = Latencies::default();
            (1..=500).for_each(|n| latencies.record(Duration::from_micros(half * 500 + n)));
            Latencies::merge(&mut all, Some(latencies));
        }
        let summary = all.unwrap().summary().unwrap();
        assert_eq!(Latencies::default().summary(), None);
        let near = |found: Nanos, us: f64| (found.0 as f64 / (us * 1e3) - 1.0).abs() < 2e-3;
        assert_eq!(summary.n, 1_000);
        assert!(near(summary.p50, 500.0) && near(summary.p90, 900.0) && near(summary.p99, 990.0), "{summary:?}");
        assert!(near(summary.p999, 999.0) && near(summary.max, 1_000.0), "{summary:?}");
        assert!((summary.mean_ns / 500_500.0 - 1.0).abs() < 2e-3, "{summary:?}");
    }
}
