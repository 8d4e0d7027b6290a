//! The paper's benchmarks as workload models: the structure of each program, and how often it synchronizes.
//!
//! PARSEC's counts are Table 1 of its report (Bienia et al., TR-811-08: instructions, locks, barriers and conditions of
//! 8 threads with `simlarge`); SPLASH-2's are Table 1 of Woo et al. (ISCA 1995). Instructions become time by dedup,
//! whose 37.1 thousand million for 184 MB are 23.5 s for the 672 MB of the native input (Gleaner, Table 1): 5.77 an ns.
//! Where native input makes phases longer than `simlarge` does, the factor is given.

use super::machine::{CORES, US};
use super::{dedup, forkjoin, locks, streamcluster};
use crate::Time;
use crate::program::catalogue::{self, Plan};
use crate::program::{Span, Workload};
use crate::reproduce::calibration::Calibration;
use crate::reproduce::result::ReproduceError;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Suite {
    Parsec,
    Splash,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Benchmark {
    pub(super) name: String,
    pub(super) suite: Suite,
    /// One of the built-in programs, or of this folder's.
    program: String,
    #[serde(default)]
    granularity_us: u64,
    #[serde(default)]
    drawn: bool,
    #[serde(default)]
    pub(super) fitted: bool,
    pub(super) source: String,
}

#[derive(Deserialize)]
struct File {
    benchmark: Vec<Benchmark>,
}

/// All of them.
pub(super) fn all() -> Result<Vec<Benchmark>, ReproduceError> {
    let file: Result<File, _> = toml::from_str(include_str!("benchmarks.toml"));
    file.map(|file| file.benchmark).map_err(|error| ReproduceError::Data("benchmarks.toml", error.to_string()))
}

impl Benchmark {
    fn granularity(&self, calibration: &Calibration) -> Time {
        let fitted = match self.name.as_str() {
            "cholesky" => calibration.cholesky.task_us,
            "volrend" => calibration.volrend.task_us,
            _ => return self.granularity_us * US,
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below a second")]
        let time = (fitted * US as f64) as Time;
        time
    }

    /// Its threads, without end.
    pub(super) fn workload(&self, calibration: &Calibration) -> Workload {
        let mean = self.granularity(calibration);
        let granularity = if self.drawn { Span::Exponential { mean } } else { Span::Fixed(mean) };
        let plan = Plan { threads: CORES, items: None, granularity };
        match self.program.as_str() {
            "dedup" => dedup::workload(&dedup::Plan { calibration: calibration.dedup, items: None }),
            "spin-barrier" => streamcluster::workload(CORES, mean),
            "fork-join-16" => forkjoin::workload(&plan),
            "locks" => locks::workload(&plan),
            name => catalogue::by_name(name).map(|program| (program.build)(&plan)).unwrap_or_default(),
        }
    }
}
