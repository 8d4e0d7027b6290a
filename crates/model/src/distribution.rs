//! A log-linear histogram with a fixed layout that a BPF program can fill.
//!
//! Eight buckets an octave: a value is known to within 12.5 %. The index arithmetic is this project's own because the
//! BPF side (crates/observe/src/bpf/gleaner.bpf.c, `bucket_index`) has to do the very same in C; the test below
//! checks quantiles against the `hdrhistogram` crate.

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// log2 of the buckets per octave.
pub const SUB_BUCKET_BITS: u32 = 3;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
/// Buckets in all: every `u64` has one.
const BUCKETS: usize = ((64 - SUB_BUCKET_BITS as usize) + 1) << SUB_BUCKET_BITS;

/// The bucket of `value`. Values below 8 have buckets of their own; above, eight per octave.
pub fn bucket_index(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return usize::try_from(value).unwrap_or(0);
    }
    let octave = value.ilog2();
    let shift = octave - SUB_BUCKET_BITS;
    let sub = usize::try_from((value >> shift) & (SUB_BUCKETS - 1)).unwrap_or(0);
    ((shift as usize + 1) << SUB_BUCKET_BITS) + sub
}

/// The smallest value in bucket `index`.
pub fn bucket_low(index: usize) -> u64 {
    let sub = index as u64 & (SUB_BUCKETS - 1);
    match index >> SUB_BUCKET_BITS {
        0 => sub,
        octave => (SUB_BUCKETS + sub) << (octave - 1),
    }
}

/// The largest value in bucket `index`.
pub fn bucket_high(index: usize) -> u64 {
    if index + 1 >= BUCKETS { u64::MAX } else { bucket_low(index + 1) - 1 }
}

/// How often each duration occurred: a log-linear histogram with an exact count and sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Counts by [`bucket_index`]; as long as the highest bucket in use needs.
    counts: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Distribution {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// From bucket counts by [`bucket_index`] and the exact sum of the values. Buckets past the last valid one are
    /// ignored.
    pub fn from_buckets(counts: impl IntoIterator<Item = u64>, sum: Nanos) -> Self {
        let mut counts: Vec<u64> = counts.into_iter().take(BUCKETS).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        let count = counts.iter().sum();
        Self { counts, count, sum: sum.0 }
    }

    /// Adds one value.
    pub fn record(&mut self, value: Nanos) {
        let index = bucket_index(value.0);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value.0);
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

    /// The buckets in use: the middle of each, and how many values are in it.
    pub fn cells(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(index, count)| (Nanos(u64::midpoint(bucket_low(index), bucket_high(index))), *count))
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact sum of the values.
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// The exact mean, `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// How many whole `part`s the values hold together, each value taken by itself; to what a bucket's ends (12.5 %
    /// apart) differ by.
    pub fn whole_parts(&self, part: Nanos) -> f64 {
        let part = part.0.max(1);
        let ends = |index: usize| (bucket_low(index) / part + bucket_high(index) / part) as f64 / 2.0;
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(i, count)| *count as f64 * ends(i)).sum()
    }

    /// The value below or at which a share `q` (0 to 1, clamped) of the values lies, to the bucket's upper end
    /// (at most 12.5 % high); `None` when empty.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(Nanos(bucket_high(index)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_whole_range() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket_high(index) + 1, bucket_low(index + 1));
        }
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_high(BUCKETS - 1), u64::MAX);
    }

    proptest! {
        #[test]
        fn every_value_lies_in_its_bucket(value: u64) {
            let index = bucket_index(value);
            prop_assert!(bucket_low(index) <= value && value <= bucket_high(index));
        }

        #[test]
        fn quantiles_agree_with_hdrhistogram(
            values in proptest::collection::vec(1u64..10_000_000_000, 1..300),
            q in 0.0..1.0f64,
        ) {
            let mut ours = Distribution::new();
            let mut reference = hdrhistogram::Histogram::<u64>::new(3).unwrap();
            for value in &values {
                ours.record(Nanos(*value));
                reference.record(*value).unwrap();
            }
            let (got, want) = (ours.quantile(q).unwrap().as_f64(), reference.value_at_quantile(q) as f64);
            prop_assert!((got - want).abs() <= 0.13 * want + 1.0, "{got} against {want}");
            prop_assert_eq!(ours.sum(), Nanos(values.iter().sum()));
        }

        #[test]
        fn merging_is_recording_both(
            a in proptest::collection::vec(0u64..1_000_000, 0..50),
            b in proptest::collection::vec(0u64..1_000_000, 0..50),
        ) {
            let of = |values: &[u64]| values.iter().fold(Distribution::new(), |mut d, v| { d.record(Nanos(*v)); d });
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
