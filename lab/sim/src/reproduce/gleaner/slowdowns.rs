//! Figures 1, 2, 5 and 7: the benchmarks of PARSEC and SPLASH-2X, alone and beside another virtual machine.

use super::benchmarks::{self, Suite};
use super::machine::{Neighbour, Setting};
use super::matrix::{Measured, measure};
use crate::reproduce::calibration::Calibration;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;

const NATIVE: Setting = Setting::Native;
const ALONE: Setting = Setting::Dedicated { gleaner: false };
const ALONE_ON: Setting = Setting::Dedicated { gleaner: true };
const MATMUL: Setting = shared(Neighbour::Matmul, false);
const MATMUL_ON: Setting = shared(Neighbour::Matmul, true);
const FREQSLEEP: Setting = shared(Neighbour::Freqsleep, false);
const FREQSLEEP_ON: Setting = shared(Neighbour::Freqsleep, true);

const fn shared(neighbour: Neighbour, gleaner: bool) -> Setting {
    Setting::Shared { gleaner, neighbour }
}

/// All benchmarks under some settings, and the figures made of them.
struct Results {
    measured: Vec<Measured>,
    parameters: Vec<(String, String)>,
    found: Found,
}

impl Results {
    fn of(settings: &[Setting], extent: &Extent) -> Result<Self, ReproduceError> {
        let calibration = Calibration::read()?;
        let all = benchmarks::all()?;
        let mut found = Found::default();
        found.list("benchmarks", all.iter().map(|one| one.name.as_str()));
        found.list("fitted", all.iter().filter(|one| one.fitted).map(|one| one.name.as_str()));
        let mut parameters = [
            ("machine", "16 pCPUs, VMs of 16 vCPUs, 16 threads; KVM costs of Table 2; PLE".to_owned()),
            ("host, shared", "CFS of Linux 3.9, a group for each VM".to_owned()),
            ("calibration", format!("{calibration:?}")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        parameters.extend(all.iter().map(|one| (one.name.clone(), one.source.clone())));
        Ok(Self { measured: measure(&all, settings, &calibration, extent)?, parameters, found })
    }

    /// A figure of each benchmark, under its name and this.
    fn put(&mut self, what: &str, of: impl Fn(&Measured) -> f64) {
        for one in &self.measured {
            self.found.put(format!("{} {what}", one.benchmark.name), of(one));
        }
    }

    fn mean(&self, suite: Option<Suite>, of: impl Fn(&Measured) -> f64) -> f64 {
        let of_suite = self.measured.iter().filter(|one| suite.is_none_or(|suite| one.is_of(suite)));
        let values: Vec<f64> = of_suite.map(of).collect();
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Spearman's rank correlation of two figures over all benchmarks.
    fn correlation(&self, x: impl Fn(&Measured) -> f64, y: impl Fn(&Measured) -> f64) -> f64 {
        let (x, y): (Vec<f64>, Vec<f64>) = self.measured.iter().map(|one| (x(one), y(one))).unzip();
        let (x, y) = (ranks(&x), ranks(&y));
        let mean = f64::midpoint(x.len() as f64, 1.0);
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
        product(&x, &y) / (product(&x, &x) * product(&y, &y)).sqrt()
    }

    fn finish(self, id: &str) -> Reproduced {
        reproduced(id, self.parameters, &self.found)
    }
}

/// Ranks from 1; equal values share theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: &f64| values.iter().filter(|other| *other < value).count() as f64;
    let equal = |value: &f64| values.iter().filter(|other| other.total_cmp(value).is_eq()).count() as f64;
    values.iter().map(|value| below(value) + f64::midpoint(equal(value), 1.0)).collect()
}

fn idle(one: &Measured) -> f64 {
    one.rates(ALONE).idle
}

pub(super) fn fig1(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let mut results = Results::of(&[NATIVE, ALONE, MATMUL, FREQSLEEP], extent)?;
    let slowdown = |setting| move |one: &Measured| one.slowdown(setting, NATIVE);
    for (name, setting) in [("alone", ALONE), ("beside matmul", MATMUL), ("beside freqsleep", FREQSLEEP)] {
        results.put(name, slowdown(setting));
        results.found.put(format!("idle with {name}"), results.correlation(idle, slowdown(setting)));
    }
    results.put("idle", idle);
    let worse = results.mean(None, slowdown(MATMUL)) / results.mean(None, slowdown(ALONE));
    results.found.put("worse", worse);
    Ok(results.finish("gleaner:fig1"))
}

pub(super) fn fig2(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let mut results = Results::of(&[NATIVE, ALONE, MATMUL, FREQSLEEP], extent)?;
    let variation = |one: &Measured| (one.slowdown(MATMUL, NATIVE) - one.slowdown(FREQSLEEP, NATIVE)).abs();
    results.put("variation", variation);
    results.put("idle", idle);
    results.found.put("idle with variation", results.correlation(idle, variation));
    Ok(results.finish("gleaner:fig2"))
}

pub(super) fn fig5(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let mut results = Results::of(&[NATIVE, ALONE, ALONE_ON], extent)?;
    let off = |one: &Measured| one.slowdown(ALONE, NATIVE);
    let on = |one: &Measured| one.slowdown(ALONE_ON, NATIVE);
    let gain = |one: &Measured| one.slowdown(ALONE_ON, ALONE);
    results.put("off", off);
    results.put("on", on);
    results.put("gain", gain);
    results.put("change", |one| (gain(one) - 1.0).abs());
    results.found.put("PARSEC off", results.mean(Some(Suite::Parsec), off));
    results.found.put("PARSEC on", results.mean(Some(Suite::Parsec), on));
    Ok(results.finish("gleaner:fig5"))
}

pub(super) fn fig7(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let mut results = Results::of(&[MATMUL, MATMUL_ON, FREQSLEEP, FREQSLEEP_ON], extent)?;
    let speedup = |one: &Measured| one.slowdown(MATMUL, MATMUL_ON);
    let throughput = |one: &Measured| one.throughput(Neighbour::Matmul);
    let off = |one: &Measured| one.slowdown(MATMUL, FREQSLEEP);
    let on = |one: &Measured| one.slowdown(MATMUL_ON, FREQSLEEP_ON);
    results.put("speedup", speedup);
    results.put("throughput", throughput);
    results.put("off", off);
    results.put("on", on);
    results.found.put("all speedup", results.mean(None, speedup));
    results.found.put("all throughput", results.mean(None, throughput));
    results.found.put("all off", results.mean(None, off));
    results.found.put("all on, inverse", results.mean(None, |one| 1.0 / on(one)));
    Ok(results.finish("gleaner:fig7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_begin_at_one_and_are_shared() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
    }
}
