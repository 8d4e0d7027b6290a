//! Lengths of run intervals, to 3 %: finer than [`gleaner_model::Distribution`], because a promise of "within 10 % of
//! the slice" cannot be checked with buckets of 12.5 %.
//!
//! The layout is that of `run_intervals.bpf.c`: units of 256 ns, 32 buckets an octave, cut at 2^34 ns (17 s).

use gleaner_model::{Distribution, Nanos};

const UNIT_BITS: u32 = 8;
const SUB_BUCKET_BITS: u32 = 5;
pub(super) const BUCKETS: usize = 704;

/// How often each length occurred, with an exact count and sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalDistribution {
    /// By bucket; as long as the highest in use needs.
    counts: Vec<u64>,
    count: u64,
    sum: u64,
}

/// The smallest value in a bucket.
fn low(index: usize) -> u64 {
    let sub = index as u64 & ((1 << SUB_BUCKET_BITS) - 1);
    let units = match index >> SUB_BUCKET_BITS {
        0 => sub,
        octave => ((1 << SUB_BUCKET_BITS) + sub) << (octave - 1),
    };
    units << UNIT_BITS
}

impl IntervalDistribution {
    /// From bucket counts in the layout of the BPF program.
    pub(super) fn from_buckets(counts: impl Iterator<Item = u64>, sum: u64) -> Self {
        let mut counts: Vec<u64> = counts.take(BUCKETS).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        Self { count: counts.iter().sum(), counts, sum }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many intervals.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact sum of their lengths.
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// The exact mean, `None` when empty.
    pub fn mean(&self) -> Option<Nanos> {
        self.sum.checked_div(self.count).map(Nanos)
    }

    /// The length below which a share `q` (0 to 1, clamped) lies: the middle of its bucket, so at most 1.6 % off;
    /// `None` when empty.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Nanos(u64::midpoint(low(index), low(index + 1))))
    }

    /// The share of the intervals' time that lies in intervals shorter than `limit`, by the buckets' middles; `None`
    /// when empty.
    pub fn share_below(&self, limit: Nanos) -> Option<f64> {
        let below: u64 = (0..self.counts.len()).filter(|index| low(index + 1) <= limit.0).map(|i| self.counts[i]).sum();
        (self.count > 0).then(|| below as f64 / self.count as f64)
    }

    /// The same in the model's coarser buckets, for policies that read those; its sum is that of the buckets' middles.
    pub fn coarse(&self) -> Distribution {
        let mut coarse = Vec::new();
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bucket = gleaner_model::bucket_index(u64::midpoint(low(index), low(index + 1)));
            if coarse.len() <= bucket {
                coarse.resize(bucket + 1, 0);
            }
            coarse[bucket] += count;
        }
        Distribution::from_buckets(coarse, Nanos(self.sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[(usize, u64)], sum: u64) -> IntervalDistribution {
        let counts = (0..BUCKETS).map(|index| buckets.iter().find(|(at, _)| *at == index).map_or(0, |(_, n)| *n));
        IntervalDistribution::from_buckets(counts, sum)
    }

    /// The bucket of a value, as the BPF program has it.
    fn bucket(value: u64) -> usize {
        (0..BUCKETS - 1).find(|index| low(index + 1) > value).unwrap_or(BUCKETS - 1)
    }

    #[test]
    fn buckets_rise_and_are_fine_enough() {
        for index in 64..BUCKETS {
            let (from, to) = (low(index), low(index + 1));
            assert!(to > from && (to - from) as f64 / from as f64 <= 0.032, "{index}");
        }
        assert_eq!(low(BUCKETS), 1 << 34);
    }

    #[test]
    fn quantiles_are_near_the_values() {
        let ms = 1_000_000;
        let mixed = of(&[(bucket(ms), 90), (bucket(4 * ms), 10)], 130 * ms);
        for (q, wanted) in [(0.5, ms), (0.9, ms), (0.91, 4 * ms), (1.0, 4 * ms)] {
            let got = mixed.quantile(q).unwrap().as_f64();
            assert!((got / wanted as f64 - 1.0).abs() < 0.02, "{q}: {got}");
        }
        assert_eq!((mixed.count(), mixed.mean()), (100, Some(Nanos(1_300_000))));
        assert!((mixed.share_below(Nanos(2 * ms)).unwrap() - 0.9).abs() < 1e-9);
        assert_eq!(mixed.coarse().count(), 100);
        assert_eq!(IntervalDistribution::default().quantile(0.5), None);
    }

    #[test]
    fn merging_adds() {
        let mut one = of(&[(3, 2)], 1_000);
        one.merge(&of(&[(700, 1)], 5_000));
        assert_eq!((one.count(), one.sum()), (3, Nanos(6_000)));
        assert!(one.quantile(1.0).unwrap() > Nanos::from_secs(10));
    }
}
