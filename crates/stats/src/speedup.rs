//! What a series of pairs says about two modes.

use crate::{median, sign_flips};

/// How much better the second mode is than the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// Median of the pairs' ratios, first/second: above 1 the second is better.
    pub median: f64,
    /// 95 % interval; it holds `median`. `None` for fewer than [`crate::FEWEST`] pairs.
    pub ci95: Option<(f64, f64)>,
    /// Pairs that it rests on.
    pub pairs: usize,
}

/// What may be said about the second mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is above 1.
    Helps,
    /// The whole interval is below 1.
    Hurts,
    /// Neither, or there is no interval.
    NoDifference,
}

impl Verdict {
    /// The word for it in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::Hurts => "hurts",
            Self::NoDifference => "no difference",
        }
    }
}

impl Speedup {
    /// What the interval says, and nothing else does.
    pub fn verdict(&self) -> Verdict {
        match self.ci95 {
            Some((low, _)) if low > 1.0 => Verdict::Helps,
            Some((_, high)) if high < 1.0 => Verdict::Hurts,
            _ => Verdict::NoDifference,
        }
    }
}

/// ln(first/second) of each pair (first, second) of times; `None` where one is not above 0, or not finite.
///
/// Where more is better, hand in (second, first): then above 1 still means that the second mode is better.
pub fn paired_log_ratios(pairs: &[(f64, f64)]) -> Vec<Option<f64>> {
    let usable = |value: f64| value > 0.0 && value.is_finite();
    // A difference of logarithms: its negative is exactly that of the pair turned round.
    pairs.iter().map(|(a, b)| (usable(*a) && usable(*b)).then(|| a.ln() - b.ln())).collect()
}

/// The speedup that pairs of (first, second) show; pairs without a ratio are left out. `None` when no pair has one.
pub fn speedup(pairs: &[(f64, f64)]) -> Option<Speedup> {
    let logs: Vec<f64> = paired_log_ratios(pairs).into_iter().flatten().collect();
    let ratios: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
    let median = median(&ratios)?;
    let ci95 = sign_flips::interval(&logs).map(|(low, high)| (low.exp().min(median), high.exp().max(median)));
    Some(Speedup { median, ci95, pairs: logs.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Speedup {
        speedup(&ratios.iter().map(|ratio| (*ratio, 1.0)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_verdict_is_the_intervals() {
        for (ratios, verdict) in [
            (&[1.2, 1.3, 1.25, 1.22, 1.21, 1.24][..], Verdict::Helps),
            (&[0.8, 0.7, 0.75, 0.72, 0.71, 0.74], Verdict::Hurts),
            (&[1.2, 0.7, 1.25, 0.9, 1.1, 1.0], Verdict::NoDifference),
            // Four pairs, however clear.
            (&[2.0, 2.1, 2.0, 2.1], Verdict::NoDifference),
            // Five are enough where they agree, and not where they just do not contradict.
            (&[1.20, 1.21, 1.22, 1.20, 1.21], Verdict::Helps),
            (&[1.001, 1.21, 1.02, 1.05, 1.1], Verdict::NoDifference),
            (&[1.0; 20], Verdict::NoDifference),
        ] {
            let speedup = of(ratios);
            assert_eq!(speedup.verdict(), verdict, "{ratios:?}: {speedup:?}");
        }
    }

    #[test]
    fn the_interval_holds_the_median_whatever_the_ratios_are() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..2_000 {
            let ratios: Vec<f64> = (0..random.usize(5..40)).map(|_| (random.f64() * 6.0 - 3.0).exp().powi(3)).collect();
            let speedup = of(&ratios);
            let (low, high) = speedup.ci95.unwrap();
            assert!(low <= speedup.median && speedup.median <= high, "round {round}: {speedup:?}");
        }
    }

    #[test]
    fn turning_the_pairs_round_turns_the_interval_round() {
        let pairs = [(3.0, 2.0), (5.0, 4.0), (1.0, 1.1), (9.0, 7.0), (2.0, 2.1), (8.0, 3.0), (4.0, 4.0)];
        let turned: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let ((low, high), (turned_low, turned_high)) =
            (speedup(&pairs).unwrap().ci95.unwrap(), speedup(&turned).unwrap().ci95.unwrap());
        assert!((low * turned_high - 1.0).abs() < 1e-12 && (high * turned_low - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_has_no_ratio_is_left_out() {
        let pairs = [(0.0, 1.0), (1.0, f64::INFINITY), (f64::NAN, 1.0), (-1.0, 1.0), (2.0, 1.0)];
        let found = speedup(&pairs).unwrap();
        assert_eq!((found.pairs, found.ci95), (1, None));
        assert!((found.median - 2.0).abs() < 1e-12, "{found:?}");
        assert_eq!(speedup(&pairs[..4]), None);
    }
}
