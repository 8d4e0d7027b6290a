//! The paper's benchmarks as workload models: the structure of each program, and how often it synchronizes.
//!
//! PARSEC's counts are Table 1 of its report (Bienia et al., TR-811-08: instructions, locks, barriers and conditions of
//! 8 threads with `simlarge`); SPLASH-2's are Table 1 of Woo et al. (ISCA 1995). Instructions become time by dedup,
//! whose 37.1 thousand million for 184 MB are 23.5 s for the 672 MB of the native input (Gleaner, Table 1): 5.77 an ns.
//! Where native input makes phases longer than `simlarge` does, the factor is given.

use super::dedup;
use super::machine::{CORES, MS, US};
use super::streamcluster;
use crate::Time;
use crate::program::catalogue::{self, Plan};
use crate::program::{Span, Workload};
use crate::reproduce::calibration::Calibration;

/// Which suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    Parsec,
    Splash,
}

/// How its threads meet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Structure {
    Dedup,
    /// Phases of all threads between barriers that spin for a while.
    SpinBarrier,
    /// One of the built-in programs, with so many threads.
    Program(&'static str, u32),
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Benchmark {
    pub(super) name: &'static str,
    pub(super) suite: Suite,
    structure: Structure,
    /// Mean computation between two synchronization points; drawn exponentially where threads do not share work
    /// equally.
    granularity: Time,
    exponential: bool,
    /// Where that is from.
    pub(super) source: &'static str,
}

const fn of(
    name: &'static str,
    suite: Suite,
    program: &'static str,
    threads: u32,
    granularity: Time,
    exponential: bool,
    source: &'static str,
) -> Benchmark {
    Benchmark { name, suite, structure: Structure::Program(program, threads), granularity, exponential, source }
}

use Suite::{Parsec, Splash};

/// Those of PARSEC that TR-811-08 has, and those of SPLASH-2X that the paper's text names.
pub(super) fn all(calibration: &Calibration) -> Vec<Benchmark> {
    let mut all = PARSEC.to_vec();
    let us = |us: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below a second")]
        let time = (us * US as f64) as Time;
        time
    };
    let fitted = "SPLASH-2: tasks in queues under pthread mutexes; granularity fitted to Figure 5 without Gleaner";
    all.push(of("cholesky", Splash, "locks", CORES, us(calibration.cholesky.task_us), true, fitted));
    all.push(of("volrend", Splash, "locks", CORES, us(calibration.volrend.task_us), true, fitted));
    all.extend(SPLASH);
    all
}

const PARSEC: [Benchmark; 12] = [
    of("blackscholes", Parsec, "independent", CORES, 10 * MS, false, "8 barriers in all: never waits"),
    of(
        "bodytrack",
        Parsec,
        "fork-join-16",
        CORES,
        600 * US,
        true,
        "2,042 conditions of 8 threads in 14.03 G instructions: a region every 9.5 ms of work, in 16 parts",
    ),
    of(
        "canneal",
        Parsec,
        "barrier",
        CORES,
        620 * US,
        false,
        "a barrier after each of 128 temperature steps of 15,000 moves (native has as many a step); 7.33 G instructions",
    ),
    Benchmark {
        name: "dedup",
        suite: Parsec,
        structure: Structure::Dedup,
        granularity: 0,
        exponential: true,
        source: "see dedup.rs; its work fitted to Table 1, native on 1 core",
    },
    of(
        "facesim",
        Parsec,
        "fork-join-16",
        CORES,
        830 * US,
        true,
        "3,137 conditions of 8 threads in 29.90 G instructions, the same frame in native: a region every 13.2 ms of work, in 16 parts",
    ),
    of(
        "ferret",
        Parsec,
        "pipeline",
        CORES,
        4 * MS,
        true,
        "256 queries in 23.97 G instructions through 4 parallel stages of 16 threads",
    ),
    of(
        "fluidanimate",
        Parsec,
        "barrier",
        CORES,
        6 * MS,
        false,
        "9 phases a frame (AdvanceFrameMT), 5 frames of 300,000 particles in 14.06 G instructions; native has 500,000",
    ),
    of("freqmine", Parsec, "independent", CORES, 10 * MS, false, "OpenMP loops: hardly waits"),
    Benchmark {
        name: "streamcluster",
        suite: Parsec,
        structure: Structure::SpinBarrier,
        granularity: streamcluster::PHASE,
        exponential: false,
        source: "129,600 barriers of 8 threads in 22.12 G instructions for 16,384 points a block; native has 200,000",
    },
    of("swaptions", Parsec, "independent", CORES, 10 * MS, false, "no synchronization"),
    of(
        "vips",
        Parsec,
        "fork-join-16",
        CORES,
        425 * US,
        true,
        "6,361 conditions of 8 threads in 31.21 G instructions, native in the same tiles: a region every 6.8 ms of work",
    ),
    of(
        "x264",
        Parsec,
        "pipeline",
        CORES,
        48 * MS,
        true,
        "1,056 conditions in 32.43 G instructions for 640x360; native has 9 times as many pixels a frame",
    ),
];

const SPLASH: [Benchmark; 3] = [
    of(
        "lu_ncb",
        Splash,
        "barrier",
        CORES,
        20 * MS,
        false,
        "66 barriers in 494 M instructions for 512x512; native has 8096x8096, and work between barriers grows with the square",
    ),
    of(
        "water_nsquared",
        Splash,
        "barrier",
        CORES,
        10 * MS,
        false,
        "9 barriers in 461 M instructions for 512 molecules; native has 32,768 (10 ms: no source, counts as calibrated)",
    ),
    of(
        "water_spatial",
        Splash,
        "barrier",
        CORES,
        10 * MS,
        false,
        "9 barriers in 435 M instructions for 512 molecules; native has 100,000s (10 ms: no source, counts as calibrated)",
    ),
];

impl Benchmark {
    /// Its threads, without end.
    pub(super) fn workload(&self, calibration: &Calibration) -> Workload {
        let mean = self.granularity;
        match self.structure {
            Structure::Dedup => dedup::workload(&dedup::Plan { calibration: calibration.dedup, items: None }),
            Structure::SpinBarrier => streamcluster::workload(CORES, mean),
            Structure::Program(name, threads) => {
                let granularity = if self.exponential { Span::Exponential { mean } } else { Span::Fixed(mean) };
                let plan = Plan { threads, items: None, granularity };
                match name {
                    "fork-join-16" => super::forkjoin::workload(&plan),
                    "locks" => super::locks::workload(&plan),
                    _ => catalogue::by_name(name).map(|program| (program.build)(&plan)).unwrap_or_default(),
                }
            }
        }
    }

    /// Whether its granularity was fitted to a row of these benchmarks, or has no source. (dedup's was fitted to Table
    /// 1.)
    pub(super) fn is_fitted(&self) -> bool {
        matches!(self.name, "cholesky" | "volrend" | "water_nsquared" | "water_spatial")
    }
}
