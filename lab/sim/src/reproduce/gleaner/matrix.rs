//! Every benchmark under every setting, in parallel: rates of work once things have settled.

use super::benchmarks::{Benchmark, Suite};
use super::machine::{CORES, Neighbour, S, Setting, beginnings, config, counted, freqsleep, matmul, run};
use super::streamcluster;
use crate::program::Workload;
use crate::reproduce::calibration::Calibration;
use crate::reproduce::result::{Extent, ReproduceError};
use crate::{SimResult, Time};
use rayon::prelude::*;

/// How fast things went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// The benchmark's items a second.
    pub(super) app: f64,
    /// The neighbour's.
    pub(super) neighbour: f64,
    /// Idle periods of all vCPUs a second.
    pub(super) idle: f64,
}

/// A benchmark's results.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) benchmark: Benchmark,
    rates: Vec<(Setting, Rates)>,
}

impl Measured {
    pub(super) fn rates(&self, setting: Setting) -> Rates {
        self.rates.iter().find(|(of, _)| *of == setting).map(|(_, rates)| *rates).unwrap_or_default()
    }

    /// Run time under `one` relative to `other`.
    pub(super) fn slowdown(&self, one: Setting, other: Setting) -> f64 {
        self.rates(other).app / self.rates(one).app
    }

    /// Mean gain of benchmark and neighbour with Gleaner: the paper's weighted speedup.
    pub(super) fn throughput(&self, neighbour: Neighbour) -> f64 {
        let [off, on] = [false, true].map(|gleaner| self.rates(Setting::Shared { gleaner, neighbour }));
        f64::midpoint(on.app / off.app, on.neighbour / off.neighbour)
    }

    pub(super) fn is_of(&self, suite: Suite) -> bool {
        self.benchmark.suite == suite
    }
}

pub(super) fn neighbour(of: Neighbour) -> Workload {
    match of {
        Neighbour::Matmul => matmul(CORES),
        Neighbour::Freqsleep => freqsleep(CORES),
        Neighbour::Streamcluster => streamcluster::workload(CORES, streamcluster::PHASE),
    }
}

/// Means over beginnings.
fn rates(
    benchmark: &Benchmark,
    setting: Setting,
    calibration: &Calibration,
    extent: &Extent,
) -> Result<Rates, ReproduceError> {
    let mut mean = Rates::default();
    let all = beginnings(setting, extent);
    for extent in &all {
        let one = rates_of(benchmark, setting, calibration, extent)?;
        let share = 1.0 / all.len() as f64;
        mean.app += one.app * share;
        mean.neighbour += one.neighbour * share;
        mean.idle += one.idle * share;
    }
    Ok(mean)
}

fn rates_of(
    benchmark: &Benchmark,
    setting: Setting,
    calibration: &Calibration,
    extent: &Extent,
) -> Result<Rates, ReproduceError> {
    let (from, to) = counted(extent.smoke, setting.gleaner());
    let until = |end: Time| -> Result<SimResult, ReproduceError> {
        let workload = benchmark.workload(calibration);
        let other = if let Setting::Shared { neighbour: of, .. } = setting { vec![neighbour(of)] } else { Vec::new() };
        let mut config = config(setting, CORES, workload, other, extent.seed);
        config.end = end;
        run(&benchmark.name, config)
    };
    let count = |result: &SimResult| {
        let items = |n: usize| result.vms.get(n).map_or(0.0, |vm| vm.totals.items as f64);
        let idle = result.vms[0].sum(|vcpu| vcpu.idle_entries) as f64;
        [items(0), items(1), idle]
    };
    // The same simulation to two ends: what the second has more happened in between.
    let before = count(&until(from)?);
    let after = count(&until(to)?);
    let seconds = (to - from) as f64 / S as f64;
    let [app, neighbour, idle] = [0, 1, 2].map(|n| (after[n] - before[n]) / seconds);
    Ok(Rates { app, neighbour, idle })
}

/// All of them, in the order given.
pub(super) fn measure(
    benchmarks: &[Benchmark],
    settings: &[Setting],
    calibration: &Calibration,
    extent: &Extent,
) -> Result<Vec<Measured>, ReproduceError> {
    let plan: Vec<(usize, Setting)> =
        (0..benchmarks.len()).flat_map(|n| settings.iter().map(move |setting| (n, *setting))).collect();
    let rates: Result<Vec<Rates>, ReproduceError> =
        plan.par_iter().map(|(n, setting)| rates(&benchmarks[*n], *setting, calibration, extent)).collect();
    let mut rates = rates?.into_iter();
    let mut all = Vec::new();
    for benchmark in benchmarks {
        let rates = settings.iter().copied().zip(rates.by_ref()).collect();
        all.push(Measured { benchmark: benchmark.clone(), rates });
    }
    Ok(all)
}
