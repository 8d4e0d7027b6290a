//! The interval of a median, for values of any distribution.

use crate::sorted;

/// Fewer values than this have no interval.
pub const FEWEST: usize = 5;

/// How far the interval of five values reaches beyond the smallest and the largest, in parts of the distance between
/// them. Chosen by simulation.
pub const EXTENSION_AT_FIVE: f64 = 0.15;

/// An interval that holds the median in 95 % of cases or more, by the sign test; `None` for fewer than [`FEWEST`]
/// values. Five values reach 93.75 % only: there it is extended as that of a speedup is.
pub fn interval_of_median(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let sorted = sorted(values);
    let beyond = values_beyond(n);
    let (low, high) = (sorted[beyond], sorted[n - 1 - beyond]);
    let extension = if n == FEWEST { EXTENSION_AT_FIVE * (high - low) } else { 0.0 };
    Some((low - extension, high + extension))
}

/// How many values may lie beyond each end.
fn values_beyond(n: usize) -> usize {
    // Logarithms: 2^-n is no number for a few thousand values.
    let mut log_share = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for heads in 0..n / 2 {
        below += log_share.exp();
        if below > 0.025 {
            return heads.saturating_sub(1).min(heads);
        }
        log_share += ((n - heads) as f64).ln() - (heads as f64 + 1.0).ln();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks of the published tables of the sign test: the k-th smallest and largest of n.
    #[test]
    fn the_ends_are_those_of_the_sign_test() {
        for (n, rank) in [(6, 1), (7, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (30, 10), (100, 40)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let expected = (f64::from(rank), f64::from(n + 1 - rank));
            assert_eq!(interval_of_median(&values), Some(expected), "{n}");
        }
    }

    #[test]
    fn few_values_have_no_interval_and_five_a_wider_one() {
        assert_eq!(interval_of_median(&[1.0, 2.0, 3.0, 4.0]), None);
        let (low, high) = interval_of_median(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(low < 1.0 && high > 5.0, "{low} {high}");
    }
}
