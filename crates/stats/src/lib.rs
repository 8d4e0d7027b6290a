//! Statistics of interleaved pairs: medians, intervals, verdicts. Pure: chance is a seed, and intervals need none.
//!
//! # The problem
//!
//! Ten pairs of runs are few, their noise is skewed, drifts, and throws outliers, and a tool that says "helps" of a
//! mode that does nothing, one time in ten, is worse than none. The usual percentile bootstrap of the median does that:
//! drawn from five pairs it calls 5.5 % of identical modes different, from seven 12.8 %, because resampling seven
//! values spans too few of them.
//!
//! # The interval of a speedup
//!
//! ```text
//!   run times -> log ratio of each pair -> all 2^n ways to flip their signs -> interval of the ratio
//! ```
//!
//! The order within a pair is drawn at random, so under identical modes a pair's log ratio is as likely as its
//! negative, whatever the noise is, drift included. So the resamples are sign flips (a wild bootstrap), and none needs
//! to be drawn: all 2^n are counted. The interval holds every speedup about which the log ratios are not more one-sided
//! than all but 4 % of their flips. It keeps its promise for every symmetric noise. One-sided is measured by deviations
//! that are clipped at 1.5 median deviations (Huber's score): nearly as sharp as a t interval where the noise is
//! normal, and an outlier counts no more than a common deviation does.
//!
//! Three things widen it, all to the safe side:
//!
//! - At most [`FALSE_VERDICTS`] (4 %) of verdicts may be false, not 5 %.
//! - Five pairs have only 32 flips: from the smallest to the largest ratio is a 93.75 % interval. There it is extended
//!   at each end by [`EXTENSION_AT_FIVE`] of its length. Below five pairs there is no interval.
//! - It always reaches to the median ratio, which is what is reported.
//!
//! `tests/simulation.rs` measures it; its figures are in `docs/results.md`.

mod interval;
mod order;
mod sign_flips;
mod speedup;

pub use interval::{EXTENSION_AT_FIVE, FEWEST, interval_of_median};
pub use order::{orders, rounds};
pub use sign_flips::FALSE_VERDICTS;
pub use speedup::{SMALL, Speedup, Verdict, paired_log_ratios, speedup};

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The mean, and the standard deviation of a sample; no deviation of a single value. `None` of nothing.
pub fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (!values.is_empty()).then(|| (mean, (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())))
}

/// Which values lie far from the others: a modified z-score over 3.5 (Iglewicz and Hoaglin, 1993), by the mean
/// deviation where the MAD is 0. To be shown, not to be left out.
pub fn outliers(values: &[f64]) -> Vec<bool> {
    let Some(centre) = median(values) else { return Vec::new() };
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let mad = median(&deviations).unwrap_or(0.0);
    let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
    let scale = if mad > 0.0 { mad / 0.6745 } else { mean * 1.2533 };
    deviations.iter().map(|deviation| scale > 0.0 && deviation / scale > 3.5).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, expected) in [
            (&[][..], None),
            (&[3.0][..], Some(3.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 2.0, 9.0], Some(3.0)),
        ] {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    #[test]
    fn means_and_deviations() {
        assert_eq!(mean_and_deviation(&[]), None);
        assert_eq!(mean_and_deviation(&[3.0]), Some((3.0, None)));
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), Some((4.0, Some(2.0))));
    }

    #[test]
    fn what_is_far_from_the_others_is_marked() {
        let marked = |values: &[f64]| (0..).zip(outliers(values)).filter(|(_, far)| *far).map(|(i, _)| i).collect();
        let cases: [(&[f64], Vec<usize>); 5] = [
            (&[], vec![]),
            (&[1.0, 1.0, 1.0], vec![]),
            (&[1.00, 1.02, 0.99, 3.0, 1.01], vec![3]),
            (&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], vec![8]),
            (&[1.0, 1.1, 1.2, 1.3, 1.4], vec![]),
        ];
        for (values, expected) in cases {
            let found: Vec<usize> = marked(values);
            assert_eq!(found, expected, "{values:?}");
        }
    }
}
