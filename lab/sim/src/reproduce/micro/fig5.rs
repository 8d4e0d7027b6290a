//! Figure 5: every two PARSEC programs beside each other, with shorter slices.
//!
//! Aggregate throughput is the weighted speedup (Snavely and Tullsen, ASPLOS 2000): the sum of both programs' rates,
//! each relative to its own alone. Its improvement is relative to the one with Xen's slice, so 1 is as good as 30 ms. A
//! program's figure is its mean over the twelve others.

use super::bed::{Bed, MS, S, US, XEN_SLICE};
use super::common::{falls, parameters, rises};
use super::parsec::{PARSEC, Program};
use crate::engine::Time;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;
use rayon::prelude::*;

/// Beside 30 ms.
const SLICES: [(&str, Time); 4] = [("10 ms", 10 * MS), ("5 ms", 5 * MS), ("1 ms", MS), ("0.1 ms", 100 * US)];
const ONE_MS: usize = 2;
const TENTH_MS: usize = 3;

/// Of two programs, with what each does alone: the improvement with each of [`SLICES`].
fn pair(programs: [(&str, f64); 2], bed: Bed) -> Result<[f64; 4], ReproduceError> {
    let speedup = |slice| -> Result<f64, ReproduceError> {
        let rates = Bed { slice, ..bed }.rates(|| programs.map(|(name, _)| Program::vm(name)).into())?;
        Ok(rates.iter().zip(programs).map(|(rate, (_, alone))| rate / alone).sum())
    };
    let default = speedup(XEN_SLICE)?;
    let mut improvement = [0.0; 4];
    for (improvement, (_, slice)) in improvement.iter_mut().zip(SLICES) {
        *improvement = speedup(slice)? / default;
    }
    Ok(improvement)
}

/// Each program's mean over the others.
fn tenants(names: &[&'static str], bed: Bed) -> Result<Vec<[f64; 4]>, ReproduceError> {
    let alone: Result<Vec<f64>, ReproduceError> =
        names.par_iter().map(|name| Ok(bed.rates(|| vec![Program::vm(name)])?[0])).collect();
    let alone = alone?;
    let pairs: Vec<(usize, usize)> = (0..names.len()).flat_map(|a| (a + 1..names.len()).map(move |b| (a, b))).collect();
    let all: Result<Vec<[f64; 4]>, ReproduceError> =
        pairs.par_iter().map(|(a, b)| pair([*a, *b].map(|n| (names[n], alone[n])), bed)).collect();
    let mut means = vec![[0.0; 4]; names.len()];
    for ((a, b), improvement) in pairs.iter().zip(all?) {
        for tenant in [*a, *b] {
            for (mean, one) in means[tenant].iter_mut().zip(improvement) {
                *mean += one / (names.len() - 1) as f64;
            }
        }
    }
    Ok(means)
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let bed = Bed::xen(if extent.smoke { S / 5 } else { 2 * S }, extent);
    let all = PARSEC.iter().map(|program| program.name.as_str());
    let names: Vec<&'static str> = if extent.smoke {
        all.filter(|name| ["dedup", "swaptions", "streamcluster"].contains(name)).collect()
    } else {
        all.collect()
    };
    let tenants = tenants(&names, bed)?;
    let column = |slice: usize| tenants.iter().map(move |tenant| tenant[slice]);
    let spread = |slice: usize| column(slice).fold(0.0, f64::max) - column(slice).fold(f64::INFINITY, f64::min);
    let count = |slice: usize, counts: fn(f64) -> bool| column(slice).filter(|it| counts(*it)).count() as f64;
    let mut found = Found::default();
    found.put("programs", names.len() as f64);
    found.put("gain at 1 ms", count(ONE_MS, rises));
    found.put("gain at 0.1 ms", count(TENTH_MS, rises));
    found.put("lose at 0.1 ms", count(TENTH_MS, falls));
    found.put("spread", spread(TENTH_MS) / spread(ONE_MS));
    let mut pictured = Vec::new();
    for (name, tenant) in names.iter().zip(&tenants) {
        for ((slice, _), value) in SLICES.iter().zip(tenant) {
            found.put(format!("{name}, {slice}"), *value);
            pictured.push(format!("{name}, {slice}"));
        }
    }
    found.list("pictured", pictured);
    Ok(reproduced("micro:fig5", parameters(), &found))
}
