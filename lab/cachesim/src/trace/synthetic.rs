//! Accesses made up from a stack-distance profile.
//!
//! The *stack distance* of an access is the number of different lines used since the last use of its line: a fully
//! associative LRU cache of n lines hits if and only if it is below n. So a profile of stack distances says what any
//! size of cache makes of a program, and the paper's three types (MICRO'14, section IV-B) are three profiles: distances
//! within the L2, within the L3, beyond every cache.

use super::{BATCH, Kind, Record, Trace, TraceError};
use crate::recency_tree::RecencyTree;

/// Line length that profiles are counted in, bytes.
pub const LINE_BYTES: u64 = 64;
/// A footprint beyond this, 64 GiB, would need tens of gigabytes of memory here.
pub const FOOTPRINT_LINES_MAX: u64 = 1 << 30;

/// Some of a program's accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Share of the accesses, against the other bands' sum. Above 0.
    pub weight: f64,
    /// Smallest stack distance, lines.
    pub from_lines: u64,
    /// Largest, this one included. All between are equally likely.
    pub to_lines: u64,
}

/// How a made-up program uses memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its stack distances.
    pub bands: Vec<Band>,
    /// Different lines it uses in all, 1 to [`FOOTPRINT_LINES_MAX`]. A distance beyond the lines used so far means a
    /// new line, or, when all are used, the one used longest ago.
    pub footprint_lines: u64,
    /// Loads and stores per instruction, 0.001 to 1.
    pub accesses_per_instruction: f64,
    /// Share of stores among them, 0 to 1.
    pub store_ratio: f64,
}

/// A profile that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("synthetic trace: {0}")]
pub struct ProfileError(String);

impl Profile {
    /// The working set fits the L2 of Table V (4,096 lines): sjeng, namd.
    pub fn cpu_bound() -> Self {
        Self::of(&[(0.94, 0, 63), (0.04, 64, 511), (0.02, 512, 2999)], 3_000)
    }

    /// The working set fits the L3 (32,768 lines) and not the L2: bzip2, gcc, xalancbmk.
    pub fn cache_friendly() -> Self {
        Self::of(&[(0.90, 0, 63), (0.05, 64, 3_999), (0.05, 4_000, 23_999)], 24_000)
    }

    /// The working set, 8 MB used in a circle, fits no cache: libquantum.
    pub fn thrashing() -> Self {
        Self::of(&[(0.92, 0, 15), (0.08, 131_071, 131_071)], 131_072)
    }

    fn of(bands: &[(f64, u64, u64)], footprint_lines: u64) -> Self {
        let band = |(weight, from_lines, to_lines): &(f64, u64, u64)| Band {
            weight: *weight,
            from_lines: *from_lines,
            to_lines: *to_lines,
        };
        let bands = bands.iter().map(band).collect();
        Self { bands, footprint_lines, accesses_per_instruction: 0.3, store_ratio: 0.25 }
    }

    fn validate(&self) -> Result<(), ProfileError> {
        let wrong = |what: String| Err(ProfileError(what));
        if self.bands.is_empty() {
            return wrong("no band of stack distances; give at least one".to_owned());
        }
        for band in &self.bands {
            if !(band.weight.is_finite() && band.weight > 0.0) {
                return wrong(format!("a band's weight is {}; give a number above 0", band.weight));
            }
            if band.from_lines > band.to_lines || band.to_lines > FOOTPRINT_LINES_MAX {
                return wrong(format!(
                    "a band from {} to {} lines; give the smaller first, at most {FOOTPRINT_LINES_MAX}",
                    band.from_lines, band.to_lines
                ));
            }
        }
        if !(1..=FOOTPRINT_LINES_MAX).contains(&self.footprint_lines) {
            let lines = self.footprint_lines;
            return wrong(format!("a footprint of {lines} lines; give 1 to {FOOTPRINT_LINES_MAX}"));
        }
        if !(0.001..=1.0).contains(&self.accesses_per_instruction) {
            let ratio = self.accesses_per_instruction;
            return wrong(format!("{ratio} accesses per instruction; give 0.001 to 1"));
        }
        if !(0.0..=1.0).contains(&self.store_ratio) {
            return wrong(format!("a share of stores of {}; give 0 to 1", self.store_ratio));
        }
        Ok(())
    }
}

/// The top of the stack is a plain list: most distances are short.
const NEAR_LINES: usize = 64;

/// An endless, or limited, stream with a [`Profile`]. The same seed makes the same stream.
pub struct Synthetic {
    profile: Profile,
    /// Sums of the bands' weights, up to 1.
    cumulative: Vec<f64>,
    chance: fastrand::Rng,
    near: Vec<u64>,
    far: RecencyTree,
    lines: u64,
    base_address: u64,
    /// Instructions owed, in parts of one.
    owed_instructions: f64,
    records_left: u64,
}

impl Synthetic {
    /// `records` accesses from `base_address` upwards; `u64::MAX` for an endless stream.
    pub fn new(profile: Profile, base_address: u64, seed: u64, records: u64) -> Result<Self, ProfileError> {
        profile.validate()?;
        let total: f64 = profile.bands.iter().map(|band| band.weight).sum();
        let mut sum = 0.0;
        let cumulative = profile.bands.iter().map(|band| {
            sum += band.weight / total;
            sum
        });
        Ok(Self {
            cumulative: cumulative.collect(),
            profile,
            chance: fastrand::Rng::with_seed(seed),
            near: Vec::with_capacity(NEAR_LINES + 1),
            far: RecencyTree::new(),
            lines: 0,
            base_address,
            owed_instructions: 0.0,
            records_left: records,
        })
    }

    fn distance(&mut self) -> u64 {
        let point = self.chance.f64();
        let found = self.cumulative.iter().position(|sum| point < *sum);
        let band = self.profile.bands[found.unwrap_or(self.cumulative.len() - 1)];
        self.chance.u64(band.from_lines..=band.to_lines)
    }

    /// Takes the line at that depth from the stack, or a new one.
    #[allow(clippy::cast_possible_truncation, reason = "below 2^30")]
    fn take(&mut self, distance: u64) -> u64 {
        let depth = distance as usize;
        if depth < self.near.len() {
            return self.near.remove(depth);
        }
        let depth = depth - self.near.len();
        if depth >= self.far.len() && self.lines < self.profile.footprint_lines {
            self.lines += 1;
            return self.lines - 1;
        }
        if self.far.len() == 0 {
            return self.near.pop().unwrap_or(0);
        }
        let slot = self.far.at_depth(depth.min(self.far.len() - 1));
        self.far.remove(slot)
    }

    fn next_line(&mut self) -> u64 {
        let distance = self.distance();
        let line = self.take(distance);
        self.near.insert(0, line);
        if self.near.len() > NEAR_LINES
            && let Some(sinks) = self.near.pop()
        {
            self.far.push(sinks);
        }
        line
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1000, never negative")]
    fn next_record(&mut self) -> Record {
        let line = self.next_line();
        self.owed_instructions += 1.0 / self.profile.accesses_per_instruction;
        let instructions = self.owed_instructions as u32;
        self.owed_instructions -= f64::from(instructions);
        let kind = if self.chance.f64() < self.profile.store_ratio { Kind::Write } else { Kind::Read };
        Record { address: self.base_address.wrapping_add(line * LINE_BYTES), instructions, kind }
    }
}

impl Trace for Synthetic {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let count = self.records_left.min(BATCH as u64);
        self.records_left -= count;
        batch.extend((0..count).map(|_| self.next_record()));
        Ok(())
    }
}
