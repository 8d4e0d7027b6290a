//! The interval of the centre of symmetric values: every way to flip their signs counted. Why so, see the crate's head.

use crate::{EXTENSION_AT_FIVE, FEWEST, median, sorted};

/// How often an interval may miss the truth. Under 5 %, so that what is measured in some thousand trials stays below it
/// too.
pub const FALSE_VERDICTS: f64 = 0.04;

/// A deviation counts in full up to this many median deviations; what is beyond counts as much as one of that size
/// (Huber). At 1.5 one outlier in ten values leaves the interval where the other nine would have it.
const CLIP: f64 = 1.5;

/// Steps in which deviations are counted: whole numbers, so that 2^n sums can be counted in a table.
const LEVELS: usize = 24;

/// How closely an end of the interval is looked for; the values are logarithms of ratios. And the limit of the search.
const CLOSE: f64 = 1e-6;
const HALVINGS: usize = 60;

/// The interval; `None` for fewer than [`FEWEST`] values.
pub(crate) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let ascending = sorted(values);
    if n == FEWEST {
        let (low, high) = (ascending[0], ascending[n - 1]);
        return Some((low - EXTENSION_AT_FIVE * (high - low), high + EXTENSION_AT_FIVE * (high - low)));
    }
    let mirrored: Vec<f64> = ascending.iter().rev().map(|value| -value).collect();
    Some((-upper_end(&mirrored), upper_end(&ascending)))
}

/// The largest centre that is not refuted. `ascending` has six values or more: beyond the last of them every centre is.
fn upper_end(ascending: &[f64]) -> f64 {
    let mut flips = Flips::default();
    let last = ascending.len() - 1;
    let Some(held) = (0..=last).rev().find(|i| !flips.refute(ascending, ascending[*i])) else {
        return ascending[last];
    };
    if held == last {
        return ascending[last];
    }
    let (mut held, mut refuted) = (ascending[held], ascending[held + 1]);
    for _ in 0..HALVINGS {
        if refuted - held < CLOSE {
            break;
        }
        let centre = f64::midpoint(held, refuted);
        if flips.refute(ascending, centre) { refuted = centre } else { held = centre }
    }
    refuted
}

/// Counts sign flips; keeps its tables from centre to centre.
#[derive(Default)]
struct Flips {
    scores: Vec<(usize, bool)>,
    shares: Vec<f64>,
    next: Vec<f64>,
}

impl Flips {
    /// Whether values so one-sided about `centre` are too rare among all flips of their signs.
    fn refute(&mut self, values: &[f64], centre: f64) -> bool {
        self.score(values, centre);
        let total: usize = self.scores.iter().map(|(score, _)| score).sum();
        let above: usize = self.scores.iter().filter(|(_, above)| *above).map(|(score, _)| score).sum();
        let observed = above.abs_diff(total - above);
        self.count(total);
        let as_one_sided = |(above, share): (usize, &f64)| {
            if above.abs_diff(total - above) >= observed { *share } else { 0.0 }
        };
        self.shares.iter().enumerate().map(as_one_sided).sum::<f64>() <= FALSE_VERDICTS
    }

    /// Each value's deviation in whole steps, and its side. Only sizes decide about the scale, so that it is the same
    /// for all flips.
    fn score(&mut self, values: &[f64], centre: f64) {
        let sizes: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
        let clip = CLIP * median(&sizes).unwrap_or(0.0);
        let score = |size: f64| {
            let part = if clip > 0.0 { (size / clip).min(1.0) } else { f64::from(u8::from(size > 0.0)) };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to LEVELS")]
            let level = (part * LEVELS as f64).round() as usize;
            level
        };
        self.scores.clear();
        self.scores.extend(values.iter().zip(sizes).map(|(value, size)| (score(size), *value > centre)));
    }

    /// The share of the 2^n flips in which the scores above the centre add up to 0, 1, 2 and so on.
    fn count(&mut self, total: usize) {
        let empty = |shares: &mut Vec<f64>| {
            shares.clear();
            shares.resize(total + 1, 0.0);
        };
        empty(&mut self.shares);
        empty(&mut self.next);
        self.shares[0] = 1.0;
        let mut reached = 0;
        for (score, _) in &self.scores {
            let (below, above) = self.next[..=reached + score].split_at_mut(*score);
            // Sums without this score, and sums with it.
            below.fill(0.0);
            above.copy_from_slice(&self.shares[..=reached]);
            self.next.iter_mut().zip(&self.shares[..=reached]).for_each(|(with, without)| *with += without);
            reached += score;
            self.next[..=reached].iter_mut().for_each(|share| *share *= 0.5);
            std::mem::swap(&mut self.shares, &mut self.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every flip made, one after another.
    fn refuted_by_hand(values: &[f64], centre: f64) -> bool {
        let mut flips = Flips::default();
        flips.score(values, centre);
        let sum = |above: &dyn Fn(usize) -> bool| {
            let signed =
                |(i, (score, _)): (usize, &(usize, bool))| if above(i) { *score as f64 } else { -(*score as f64) };
            flips.scores.iter().enumerate().map(signed).sum::<f64>().abs()
        };
        let observed = sum(&|i| flips.scores[i].1);
        let all = 1_usize << values.len();
        let as_one_sided = (0..all).filter(|flip| sum(&|i| flip >> i & 1 == 1) >= observed).count();
        as_one_sided as f64 / all as f64 <= FALSE_VERDICTS
    }

    #[test]
    fn the_table_counts_every_flip() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut refuted = 0;
        for _ in 0..300 {
            let values: Vec<f64> = (0..random.usize(5..12)).map(|_| random.f64().powi(3) - 0.2).collect();
            let centre = random.f64() * 0.5 - 0.2;
            let by_hand = refuted_by_hand(&values, centre);
            assert_eq!(Flips::default().refute(&values, centre), by_hand, "{values:?} about {centre}");
            refuted += usize::from(by_hand);
        }
        assert!((30..270).contains(&refuted), "one-sided cases: {refuted}");
    }

    #[test]
    fn an_outlier_moves_the_interval_by_little() {
        let calm = [0.01, -0.02, 0.03, 0.0, -0.01, 0.02, 0.01, -0.03, 0.02, 0.0];
        let (low, high) = interval(&calm).unwrap();
        for far in [0.5, 50.0, 1e9] {
            let mut wild = calm;
            wild[3] = far;
            let (wild_low, wild_high) = interval(&wild).unwrap();
            assert!(
                (low - wild_low).abs() < 0.02 && (high - wild_high).abs() < 0.035,
                "{low} {high}: {wild_low} {wild_high}"
            );
        }
    }

    #[test]
    fn six_values_reach_from_the_smallest_to_the_largest() {
        assert_eq!(interval(&[3.0, 1.0, 2.0, 6.0, 4.0, 5.0]), Some((1.0, 6.0)));
        assert_eq!(interval(&[7.0; 6]), Some((7.0, 7.0)));
    }

    #[test]
    fn the_interval_moves_and_stretches_with_the_values() {
        let values = [0.1, 0.7, -0.4, 0.3, 0.9, 0.2, -0.1, 0.5];
        let (low, high) = interval(&values).unwrap();
        let moved: Vec<f64> = values.iter().map(|value| 10.0 - 2.0 * value).collect();
        let (moved_low, moved_high) = interval(&moved).unwrap();
        assert!((moved_low - (10.0 - 2.0 * high)).abs() < 1e-3 && (moved_high - (10.0 - 2.0 * low)).abs() < 1e-3);
    }
}
