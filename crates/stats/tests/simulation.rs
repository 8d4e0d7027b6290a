//! What the interval of a speedup promises, by simulation: false verdicts, power, cover.
//!
//! Every rate comes from [`TRIALS`] series with fixed seeds, over the whole way of `gleaner ab`: random order within
//! pairs, run times, speedup, verdict. `cargo nextest run -p gleaner-stats simulation --no-capture` prints the table of
//! docs/results.md.

use fastrand::Rng;
use gleaner_stats::{Verdict, interval_of_median, orders, speedup};
use std::f64::consts::TAU;

const TRIALS: u64 = 2_000;

fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos()
}

/// How run times scatter around 1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// Symmetric.
    Normal(f64),
    /// Uniform: no tails at all.
    Uniform(f64),
    /// Right-skewed.
    LogNormal(f64),
    /// A floor, and an exponential tail above it.
    ExponentialTail(f64),
    /// Calm, and one run in ten takes three times as long.
    Outliers(f64),
    /// Two levels: a run is lucky with its placement, or not.
    TwoLevels(f64),
    /// A machine that drifts: a random walk that both modes meet, and small noise.
    RandomWalk(f64),
    /// A machine that slows down steadily, from run to run.
    Trend(f64),
    /// A metric told in few steps, such as whole milliseconds.
    Steps(f64),
}

const NOISES: [Noise; 12] = [
    Noise::Normal(0.02),
    Noise::Normal(0.2),
    Noise::Uniform(0.05),
    Noise::LogNormal(0.05),
    Noise::LogNormal(0.8),
    Noise::ExponentialTail(0.05),
    Noise::ExponentialTail(1.0),
    Noise::Outliers(0.02),
    Noise::TwoLevels(0.01),
    Noise::RandomWalk(0.05),
    Noise::Trend(0.05),
    Noise::Steps(0.2),
];

/// Run times of `runs` runs one after another.
fn times(noise: Noise, runs: usize, random: &mut Rng) -> Vec<f64> {
    let mut walk = 0.0;
    (0..runs)
        .map(|run| match noise {
            Noise::Normal(sd) => (1.0 + sd * normal(random)).max(0.01),
            Noise::Uniform(width) => 1.0 + width * random.f64(),
            Noise::LogNormal(sd) => (sd * normal(random)).exp(),
            Noise::ExponentialTail(mean) => 1.0 - mean * (1.0 - random.f64()).ln(),
            Noise::Outliers(sd) => (1.0 + sd * normal(random)).max(0.01) * if random.f64() < 0.1 { 3.0 } else { 1.0 },
            Noise::TwoLevels(sd) => (1.0 + sd * normal(random)) * if random.bool() { 1.3 } else { 1.0 },
            Noise::RandomWalk(step) => {
                walk += step * normal(random);
                (walk + 0.01 * normal(random)).exp()
            }
            Noise::Trend(step) => (step * run as f64 + 0.005 * normal(random)).exp(),
            Noise::Steps(sd) => (5.0 * (1.0 + sd * normal(random))).round().max(1.0),
        })
        .collect()
}

/// One comparison of `pairs` pairs, in which the second mode is `gain` times as fast.
fn compared(noise: Noise, pairs: usize, gain: f64, seed: u64) -> gleaner_stats::Speedup {
    let mut random = Rng::with_seed(seed);
    let orders = orders(pairs, random.u64(..));
    let times = times(noise, 2 * pairs, &mut random);
    let pair = |(two, second_first): (&[f64], &bool)| {
        let (first, second) = if *second_first { (two[1], two[0]) } else { (two[0], two[1]) };
        (first, second / gain)
    };
    let pairs: Vec<(f64, f64)> = times.chunks_exact(2).zip(&orders).map(pair).collect();
    speedup(&pairs).expect("every pair has a ratio")
}

/// The share of trials for which it holds.
fn rate(noise: Noise, pairs: usize, gain: f64, holds: impl Fn(&gleaner_stats::Speedup) -> bool) -> f64 {
    let seed = |trial| trial * 1_000_003 + pairs as u64;
    (0..TRIALS).filter(|trial| holds(&compared(noise, pairs, gain, seed(*trial)))).count() as f64 / TRIALS as f64
}

#[test]
fn simulation_of_false_verdicts() {
    println!("false verdicts in {TRIALS} trials of identical modes, by pairs");
    let mut wrong = Vec::new();
    for noise in NOISES {
        let rates = [5, 6, 7, 8, 10, 20].map(|pairs| {
            let found = rate(noise, pairs, 1.0, |speedup| speedup.verdict() != Verdict::NoDifference);
            if found > 0.05 {
                wrong.push(format!("{noise:?}, {pairs} pairs: {found}"));
            }
            format!("{:>2}: {:.1} %", pairs, 100.0 * found)
        });
        println!("  {:<22} {}", format!("{noise:?}"), rates.join("  "));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test above can fail: the interval that it warns of does.
#[test]
fn simulation_of_the_percentile_bootstrap_that_is_not_used() {
    let verdicts = |pairs: usize| {
        let different = (0..TRIALS).filter(|trial| {
            let mut random = Rng::with_seed(*trial);
            let ratios: Vec<f64> = (0..pairs).map(|_| normal(&mut random)).collect();
            let mut medians: Vec<f64> = (0..1_000)
                .map(|_| {
                    let drawn: Vec<f64> = (0..pairs).map(|_| ratios[random.usize(..pairs)]).collect();
                    gleaner_stats::median(&drawn).expect("not empty")
                })
                .collect();
            medians.sort_by(f64::total_cmp);
            medians[25] > 0.0 || medians[974] < 0.0
        });
        different.count() as f64 / TRIALS as f64
    };
    let found = [5, 7].map(verdicts);
    println!("percentile bootstrap of the median: false verdicts at 5 and 7 pairs: {found:?}");
    assert!(found[1] > 0.08, "{found:?}");
}

#[test]
fn simulation_of_power() {
    println!("verdicts `helps` in {TRIALS} trials, by pairs");
    let helps = |noise, pairs, gain| rate(noise, pairs, gain, |speedup| speedup.verdict() == Verdict::Helps);
    for gain in [1.02, 1.03, 1.05, 1.1] {
        for noise in [Noise::Normal(0.02), Noise::LogNormal(0.02), Noise::ExponentialTail(0.02), Noise::Outliers(0.02)]
        {
            let rates = [5, 6, 10, 20].map(|pairs| format!("{pairs:>2}: {:.1} %", 100.0 * helps(noise, pairs, gain)));
            println!("  {gain} {:<22} {}", format!("{noise:?}"), rates.join("  "));
        }
    }
    for noise in [Noise::Normal(0.02), Noise::LogNormal(0.02), Noise::ExponentialTail(0.02)] {
        let found = helps(noise, 10, 1.05);
        assert!(found >= 0.8, "{noise:?}: {found}");
    }
    let hurts = rate(Noise::Normal(0.02), 10, 1.0 / 1.05, |speedup| speedup.verdict() == Verdict::Hurts);
    assert!(hurts >= 0.8, "{hurts}");
}

#[test]
fn simulation_of_cover() {
    println!("intervals that hold the true speedup of 1.3 in {TRIALS} trials, by pairs");
    for noise in NOISES {
        // Steps of one in five are not multiplied by 1.3 and still symmetric about it.
        if noise == Noise::Steps(0.2) {
            continue;
        }
        let holds =
            |speedup: &gleaner_stats::Speedup| speedup.ci95.is_some_and(|(low, high)| low <= 1.3 && 1.3 <= high);
        let rates = [5, 10, 20].map(|pairs| rate(noise, pairs, 1.3, holds));
        println!("  {:<22} {rates:?}", format!("{noise:?}"));
        assert!(rates.iter().all(|rate| *rate >= 0.95), "{noise:?}: {rates:?}");
    }
}

#[test]
fn simulation_of_the_interval_of_a_median() {
    for n in [5, 6, 7, 10, 20] {
        let holds = |seed: &u64| {
            let mut random = Rng::with_seed(*seed);
            let values: Vec<f64> = (0..n).map(|_| (0.8 * normal(&mut random)).exp()).collect();
            interval_of_median(&values).is_some_and(|(low, high)| low <= 1.0 && 1.0 <= high)
        };
        let found = (0..TRIALS).filter(holds).count() as f64 / TRIALS as f64;
        println!("interval of a median of {n} log-normal values: holds it in {:.1} %", 100.0 * found);
        assert!(found >= 0.95, "{n}: {found}");
    }
}
