//! How a program uses caches of every size, from its trace alone: what `gleaner-lab cache classify` is decided by.
//!
//! One pass over the trace gives the miss-ratio curve ([`miss_ratio`](crate::miss_ratio), sampled: memory does not
//! depend on the trace). An LRU cache misses what lies beyond its size, so the same curve says how many accesses get
//! through the second level and how many of those through the last one. Caches are taken to be fully associative, and
//! to hold instructions and data.
//!
//! A trace begins in empty caches, and its first uses would count against every size. So only what comes after a
//! warm-up counts, the first quarter to half of the trace: memory used there is no news later, while a program that
//! goes on to new memory keeps missing.

use crate::miss_ratio::{MissRatio, Sampling};
use crate::trace::{Trace, TraceError};

/// Line length, bytes.
pub const LINE_BYTES: u64 = 64;
/// Lines followed: twice what FAST'15 finds enough.
const SAMPLED_LINES: usize = 1 << 14;
/// A trace's first snapshot; the next ones follow at twice the accesses each.
const FIRST_SNAPSHOT: u64 = 1 << 10;

/// Accesses and instructions up to some moment, and misses for each size.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    accesses: u64,
    instructions: u64,
    misses: Vec<f64>,
}

/// What a trace showed after its warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Accesses in the whole trace.
    pub accesses: u64,
    /// Instructions in the whole trace.
    pub instructions: u64,
    /// Accesses before counting began.
    pub warmup_accesses: u64,
    /// Accesses that count, per 1,000 instructions.
    pub accesses_pki: f64,
    /// Misses per 1,000 instructions of a cache of each size asked for, in their order.
    pub misses_pki: Vec<f64>,
    /// Different memory that the whole trace touches, bytes, estimated.
    pub footprint_bytes: u64,
}

/// Reads a trace, at most `accesses_max` of its accesses; `None` where there are too few to say anything. `progress` is
/// told how many were read, and says whether to go on.
pub fn profile(
    trace: &mut dyn Trace,
    sizes_bytes: &[u64],
    accesses_max: u64,
    mut progress: impl FnMut(u64) -> bool,
) -> Result<Option<Profile>, TraceError> {
    let lines: Vec<u64> = sizes_bytes.iter().map(|size| size / LINE_BYTES).collect();
    let mut curve = MissRatio::new(Sampling::Lines(SAMPLED_LINES));
    let mut instructions = 0;
    let mut snapshots: [Snapshot; 2] = Default::default();
    let mut next_snapshot = FIRST_SNAPSHOT;
    let mut batch = Vec::new();
    loop {
        batch.clear();
        trace.fill(&mut batch)?;
        if !progress(curve.accesses()) {
            return Ok(between(&snapshots[0], &snapshot(&curve, instructions, &lines), &curve));
        }
        for record in &batch {
            if curve.accesses() == next_snapshot {
                snapshots.rotate_left(1);
                snapshots[1] = snapshot(&curve, instructions, &lines);
                next_snapshot *= 2;
            }
            if curve.accesses() == accesses_max {
                break;
            }
            instructions += u64::from(record.instructions);
            curve.access(record.address / LINE_BYTES);
        }
        if batch.is_empty() || curve.accesses() == accesses_max {
            return Ok(between(&snapshots[0], &snapshot(&curve, instructions, &lines), &curve));
        }
    }
}

fn snapshot(curve: &MissRatio, instructions: u64, lines: &[u64]) -> Snapshot {
    let accesses = curve.accesses();
    let ratios = curve.curve(lines).unwrap_or_else(|| vec![0.0; lines.len()]);
    Snapshot { accesses, instructions, misses: ratios.into_iter().map(|ratio| ratio * accesses as f64).collect() }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and is never negative")]
fn between(from: &Snapshot, to: &Snapshot, curve: &MissRatio) -> Option<Profile> {
    let instructions = to.instructions - from.instructions;
    if from.accesses == 0 || instructions == 0 {
        return None;
    }
    let pki = |count: f64| count * 1000.0 / instructions as f64;
    // By sampling, a larger cache may seem to miss a little more than a smaller one, or fewer than none.
    let mut least = (to.accesses - from.accesses) as f64;
    let misses = to.misses.iter().zip(&from.misses).map(|(to, from)| {
        least = least.min((to - from).max(0.0));
        pki(least)
    });
    Some(Profile {
        accesses: to.accesses,
        instructions: to.instructions,
        warmup_accesses: from.accesses,
        misses_pki: misses.collect(),
        accesses_pki: pki((to.accesses - from.accesses) as f64),
        footprint_bytes: (curve.distinct_lines() * LINE_BYTES as f64) as u64,
    })
}

/// Sizes for a curve: every power of two from 4 KiB to `largest_bytes` and beyond it twice more, and `extra` among
/// them, ascending.
pub fn curve_sizes(largest_bytes: u64, extra: &[u64]) -> Vec<u64> {
    let last = largest_bytes.saturating_mul(4);
    let powers = (12..=40).map(|bits| 1_u64 << bits).take_while(|size| *size <= last);
    let mut sizes: Vec<u64> = powers.chain(extra.iter().copied()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::synthetic::{Profile as Shape, Synthetic};
    use crate::trace::{Kind, Record, Records};

    const SIZES: [u64; 2] = [256 << 10, 2 << 20];

    fn of(shape: Shape, accesses: u64) -> Profile {
        let mut trace = Synthetic::new(shape, 0, 1, accesses).unwrap();
        profile(&mut trace, &SIZES, u64::MAX, |_| true).unwrap().unwrap()
    }

    #[test]
    fn made_up_programs_miss_what_their_distances_say() {
        // 300 accesses per 1,000 instructions; of the friendly one's a twentieth lies beyond the L2, of the thrashing
        // one's 8 % beyond all.
        let cpu = of(Shape::cpu_bound(), 1_000_000);
        assert!(cpu.misses_pki[0] < 0.3 && (299.0..301.0).contains(&cpu.accesses_pki), "{cpu:?}");
        let friendly = of(Shape::cache_friendly(), 8_000_000);
        assert!((14.0..17.0).contains(&friendly.misses_pki[0]) && friendly.misses_pki[1] < 0.3, "{friendly:?}");
        let thrashing = of(Shape::thrashing(), 4_000_000);
        assert!(thrashing.misses_pki.iter().all(|misses| (22.0..26.0).contains(misses)), "{thrashing:?}");
        assert!(thrashing.footprint_bytes.abs_diff(8 << 20) < 1 << 20, "{thrashing:?}");
    }

    #[test]
    fn first_uses_count_only_after_the_warm_up() {
        let lines = |count: u64| (0..4096_u64).map(move |at| at % count);
        let read = |line: u64| Record { address: line * 64, instructions: 1, kind: Kind::Read };
        let run = |count| profile(&mut Records(lines(count).map(read)), &SIZES, u64::MAX, |_| true).unwrap().unwrap();
        assert_eq!((run(1000).misses_pki[1], run(1000).warmup_accesses), (0.0, 1024));
        assert!((run(4096).misses_pki[1] - 1000.0).abs() < 1.0, "new memory all the time");
    }

    #[test]
    fn too_little_says_nothing_and_a_limit_is_kept() {
        let mut short = Synthetic::new(Shape::cpu_bound(), 0, 1, 1000).unwrap();
        assert_eq!(profile(&mut short, &SIZES, u64::MAX, |_| true).unwrap(), None);
        let mut endless = Synthetic::new(Shape::cpu_bound(), 0, 1, u64::MAX).unwrap();
        assert_eq!(profile(&mut endless, &SIZES, 50_000, |_| true).unwrap().unwrap().accesses, 50_000);
        let stopped = profile(&mut endless, &SIZES, u64::MAX, |read| read < 100_000).unwrap().unwrap();
        assert!((100_000..200_000).contains(&stopped.accesses), "{stopped:?}");
    }

    #[test]
    fn curves_reach_beyond_the_last_level() {
        let sizes = curve_sizes(2 << 20, &[256 << 10, 3 << 20]);
        assert_eq!((sizes[0], *sizes.last().unwrap(), sizes.contains(&(3 << 20))), (4096, 8 << 20, true));
        assert!(sizes.is_sorted() && sizes.len() == 13, "{sizes:?}");
    }
}
