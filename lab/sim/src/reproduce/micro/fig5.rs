//! Figure 5: every two PARSEC programs beside each other, with shorter slices.
//!
//! Aggregate throughput is the weighted speedup (Snavely and Tullsen, ASPLOS 2000): the sum of both programs' rates,
//! each relative to its own alone. Its improvement is relative to the one with Xen's slice, so 1 is as good as 30 ms. A
//! program's figure is its mean over the twelve others.

use super::bed::{Bed, MS, S, US, XEN_SLICE};
use super::parsec::{PARSEC, Program};
use super::table1::hold_ns;
use super::{FALLS, RISES, falls, rises};
use crate::engine::Time;
use crate::program::Workload;
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use rayon::prelude::*;

/// Beside 30 ms.
const SLICES: [(&str, Time); 4] = [("10 ms", 10 * MS), ("5 ms", 5 * MS), ("1 ms", MS), ("0.1 ms", 100 * US)];
const ONE_MS: usize = 2;
const TENTH_MS: usize = 3;
const METRIC: &str = "aggregate throughput / with 30 ms, ratio";

fn vm(name: &str) -> (String, Workload) {
    (name.to_owned(), Program::named(name).workload(hold_ns(name)))
}

/// Of two programs, with what each does alone: the improvement with each of [`SLICES`].
fn pair(programs: [(&str, f64); 2], bed: Bed) -> Result<[f64; 4], ReproduceError> {
    let speedup = |slice| -> Result<f64, ReproduceError> {
        let rates = Bed { slice, ..bed }.rates(|| programs.map(|(name, _)| vm(name)).into())?;
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
        names.par_iter().map(|name| Ok(bed.rates(|| vec![vm(name)])?[0])).collect();
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
    let all = PARSEC.iter().map(|program| program.name);
    let names: Vec<&'static str> = if extent.smoke {
        all.filter(|name| ["dedup", "swaptions", "streamcluster"].contains(name)).collect()
    } else {
        all.collect()
    };
    let tenants = tenants(&names, bed)?;
    let column = |slice: usize| tenants.iter().map(move |tenant| tenant[slice]);
    let spread = |slice: usize| column(slice).fold(0.0, f64::max) - column(slice).fold(f64::INFINITY, f64::min);
    let improved = column(ONE_MS).filter(|it| rises(*it)).count();
    let (better, worse) =
        (column(TENTH_MS).filter(|it| rises(*it)).count(), column(TENTH_MS).filter(|it| falls(*it)).count());
    let dedup = names.iter().position(|name| *name == "dedup").map_or(f64::NAN, |n| tenants[n][TENTH_MS]);
    let order = |case: &str, metric: &str, says: &str, value: f64, agrees, criterion: String| {
        Row::order(case, metric, says, value, agrees, criterion, Basis::Predicted)
    };
    let mut rows = vec![
        order(
            "1 ms",
            "programs that gain",
            "improved for most cases",
            improved as f64,
            2 * improved > names.len(),
            format!("more than half {RISES}"),
        ),
        order(
            "0.1 ms",
            "programs that gain",
            "some improve",
            better as f64,
            better > 0,
            format!("at least one {RISES}"),
        ),
        order(
            "0.1 ms",
            "programs that lose",
            "others decrease",
            worse as f64,
            worse > 0,
            format!("at least one {FALLS}"),
        ),
        order(
            "0.1 ms / 1 ms",
            "largest minus least improvement, ratio",
            "large variation",
            spread(TENTH_MS) / spread(ONE_MS),
            rises(spread(TENTH_MS) / spread(ONE_MS)),
            RISES.to_owned(),
        ),
        order("dedup, 0.1 ms", METRIC, "increases", dedup, rises(dedup), RISES.to_owned()),
    ];
    for (name, tenant) in names.iter().zip(&tenants) {
        for ((slice, _), value) in SLICES.iter().zip(tenant) {
            rows.push(Row::measured(format!("{name}, {slice}"), METRIC, *value, Basis::Predicted));
        }
    }
    Ok(Reproduced {
        title: "Figure 5: every two PARSEC programs beside each other, shorter slices".to_owned(),
        parameters: super::parameters(),
        rows,
        notes: vec!["Aggregate throughput is the weighted speedup of the two (rates relative to alone, added), relative to that with slices of 30 ms.".to_owned()],
    })
}
