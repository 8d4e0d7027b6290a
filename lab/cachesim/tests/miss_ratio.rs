//! Miss-ratio curves against caches of every size, simulated one by one.

use fastrand::Rng;
use gleaner_cachesim::cache::{Cache, Fill};
use gleaner_cachesim::miss_ratio::{MissRatio, Sampling};
use gleaner_cachesim::policy::recency::Lru;
use gleaner_cachesim::trace::Trace;
use gleaner_cachesim::trace::synthetic::{Profile, Synthetic};
use gleaner_cachesim::{ContextId, Geometry};
use proptest::prelude::*;

fn curve(sampling: Sampling, lines: &[u64], capacities: &[u64]) -> Vec<f64> {
    let mut collected = MissRatio::new(sampling);
    for line in lines {
        collected.access(*line);
    }
    collected.curve(capacities).unwrap()
}

/// Miss ratio of a list that is kept in order of use.
fn naive(lines: &[u64], capacity: usize) -> f64 {
    let mut stack: Vec<u64> = Vec::new();
    let mut misses = 0_u32;
    for line in lines {
        if let Some(at) = stack.iter().position(|other| other == line) {
            stack.remove(at);
        } else {
            misses += 1;
        }
        stack.insert(0, *line);
        stack.truncate(capacity);
    }
    f64::from(misses) / lines.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn the_exact_curve_is_that_of_every_cache(seed in any::<u64>(), footprint in 1_u64..400, length in 1_usize..4000) {
        let mut chance = Rng::with_seed(seed);
        let lines: Vec<u64> = (0..length).map(|_| {
            let reach = chance.u64(1..=footprint);
            chance.u64(..reach)
        }).collect();
        let capacities = [0, 1, 2, 3, 10, 50, 100, 200, 399, 400, 5000];
        let found = curve(Sampling::Exact, &lines, &capacities);
        for (capacity, found) in capacities.into_iter().zip(found) {
            prop_assert!((found - naive(&lines, usize::try_from(capacity).unwrap())).abs() < 1e-12, "{}", capacity);
        }
    }
}

fn friendly() -> Vec<u64> {
    let mut trace = Synthetic::new(Profile::cache_friendly(), 0, 3, 1_000_000).unwrap();
    let mut records = Vec::new();
    while records.len() < 1_000_000 {
        trace.fill(&mut records).unwrap();
    }
    records.iter().map(|record| record.address / 64).collect()
}

#[test]
fn large_caches_agree_with_the_simulator() {
    let lines = friendly();
    let capacities = [64, 2048, 4096, 8192, 16_384, 32_768];
    let found = curve(Sampling::Exact, &lines, &capacities);
    // One set of 64 ways is as large as a fully associative cache gets here; larger ones have hashed sets, nearly so.
    for (capacity, found) in capacities.into_iter().zip(&found) {
        let ways = u32::try_from(capacity.min(64)).unwrap();
        let mut cache = Cache::new(Geometry::new(capacity * 64, ways, 64).unwrap(), Lru);
        let mut misses = 0_u32;
        for line in &lines {
            let number = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 18;
            if !cache.access(number, false) {
                misses += 1;
                cache.fill(number, ContextId(0), Fill::Clean);
            }
        }
        let simulated = f64::from(misses) / lines.len() as f64;
        let allowed = if capacity == 64 { 1e-12 } else { 0.01 };
        assert!((simulated - found).abs() <= allowed, "{capacity} lines: {simulated} {found}");
    }
}

#[test]
fn sampling_is_close_and_bounded() {
    let lines = friendly();
    let capacities = [512, 4096, 8192, 16_384, 32_768];
    let exact = curve(Sampling::Exact, &lines, &capacities);
    let found = curve(Sampling::Lines(2_000), &lines, &capacities);
    for ((found, exact), capacity) in found.iter().zip(&exact).zip(capacities) {
        assert!((found - exact).abs() < 0.02, "{capacity} lines: {found} {exact}");
    }
    let mut bounded = MissRatio::new(Sampling::Lines(500));
    for line in &lines {
        bounded.access(*line);
        assert!(bounded.followed_lines() <= 500);
    }
    let distinct = bounded.distinct_lines();
    assert!((20_000.0..28_000.0).contains(&distinct), "{distinct} of 24,000");
}

#[test]
fn nothing_seen_is_no_curve() {
    assert_eq!(MissRatio::new(Sampling::Exact).curve(&[1]), None);
}
