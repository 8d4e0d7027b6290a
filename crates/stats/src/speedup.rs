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

/// A difference smaller than this, as a ratio, is none that anybody would act on.
pub const SMALL: f64 = 1.1;

impl Speedup {
    /// How many pairs would tell, if median and noise stay: the interval shrinks with their square root until it leaves
    /// 1 out, or all beyond [`SMALL`]. `None` where the verdict stands, or there is no interval.
    pub fn pairs_to_tell(&self) -> Option<u64> {
        let (low, high) = self.ci95?;
        let small = SMALL.ln();
        let (low, high) = (low.ln(), high.ln());
        if self.verdict() != Verdict::NoDifference || (low >= -small && high <= small) {
            return None;
        }
        let distance = self.median.ln().abs();
        let enough = distance.max(small - distance);
        let half = (high - low) / 2.0;
        Some(rounded_up(self.pairs as f64 * (half / enough).powi(2)).max(self.pairs as u64 + 1))
    }
}

/// To two digits: it is an estimate.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and the cast saturates")]
fn rounded_up(value: f64) -> u64 {
    let unit = 10f64.powi((value.max(1.0).log10().floor() as i32 - 1).max(0));
    ((value / unit).ceil() * unit) as u64
}

/// ln(first/second) of each pair of times; `None` where one is not above 0, or not finite. Where more is better, hand
/// in (second, first).
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
    fn verdicts_have_names_and_one_is_on_neither_side() {
        let names = [Verdict::Helps, Verdict::Hurts, Verdict::NoDifference].map(Verdict::name);
        assert_eq!(names, ["helps", "hurts", "no difference"]);
        let of = |ci95| Speedup { median: 1.0, ci95, pairs: 9 }.verdict().name();
        for (ci95, name) in [
            (Some((1.0, 1.2)), "no difference"),
            (Some((0.9, 1.0)), "no difference"),
            (Some((1.01, 1.2)), "helps"),
            (Some((0.9, 0.99)), "hurts"),
            (None, "no difference"),
        ] {
            assert_eq!(of(ci95), name, "{ci95:?}");
        }
    }

    #[test]
    fn a_wide_interval_says_how_many_pairs_would_tell() {
        let with = |median, low, high| Speedup { median, ci95: Some((low, high)), pairs: 10 }.pairs_to_tell();
        for (median, low, high, pairs) in [
            // Half as wide in logarithms as 0.603, it would leave 1 out at 0.9 with 330 pairs.
            (0.9, 0.47, 1.57, Some(330)),
            // At a median of 1 it takes to 10 % each way.
            (1.0, 0.8, 1.25, Some(55)),
            (1.3, 0.98, 1.7, Some(12)),
            // It tells: nothing beyond 10 %, or one side of 1.
            (1.02, 0.97, 1.05, None),
            (1.3, 1.1, 1.5, None),
            (0.7, 0.5, 0.9, None),
        ] {
            assert_eq!(with(median, low, high), pairs, "{median} ({low} to {high})");
        }
        assert_eq!(Speedup { median: 1.0, ci95: None, pairs: 4 }.pairs_to_tell(), None);
    }

    /// Noise alone: with the pairs that it asks for, an interval is nearly always narrow enough.
    #[test]
    fn the_pairs_that_would_tell_do_tell() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut drawn = |pairs: u64| {
            let mut ratio = || (0.4 * (random.f64() + random.f64() + random.f64() - 1.5)).exp();
            of(&(0..pairs).map(|_| ratio()).collect::<Vec<_>>())
        };
        let (mut asked, mut told) = (0, 0);
        for _ in 0..60 {
            if let Some(pairs) = drawn(10).pairs_to_tell().filter(|pairs| *pairs <= 1_000) {
                asked += 1;
                told += u32::from(drawn(pairs).pairs_to_tell().is_none());
            }
        }
        assert!(asked >= 30 && told * 3 >= asked, "{told} of {asked}");
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
