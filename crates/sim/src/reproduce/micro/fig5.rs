//! Figure 5: every two PARSEC programs beside each other, with shorter slices.
//!
//! Aggregate throughput is the weighted speedup: the sum of both programs' rates, each relative to its own with Xen's slice; half of
//! it is the improvement, so 1 is as good as 30 ms. A program's figure is its mean over the twelve others.

use super::bed::{Bed, MS, S, US, XEN_SLICE};
use super::parsec::{PARSEC, Program};
use super::table1::hold_ns;
use super::{FALLS, RISES, falls, rises};
use crate::engine::Time;
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use rayon::prelude::*;

/// Beside 30 ms.
const SLICES: [(&str, Time); 4] = [("10 ms", 10 * MS), ("5 ms", 5 * MS), ("1 ms", MS), ("0.1 ms", 100 * US)];
const ONE_MS: usize = 2;
const TENTH_MS: usize = 3;
const METRIC: &str = "aggregate throughput / with 30 ms, ratio";

/// The improvement with each of [`SLICES`].
fn pair(names: [&str; 2], bed: Bed) -> Result<[f64; 4], ReproduceError> {
    let vm = |name: &str| (name.to_owned(), Program::named(name).workload(hold_ns(name)));
    let rates = |slice| Bed { slice, ..bed }.rates(|| names.map(vm).into());
    let default = rates(XEN_SLICE)?;
    let mut improvement = [0.0; 4];
    for (improvement, (_, slice)) in improvement.iter_mut().zip(SLICES) {
        let rates = rates(slice)?;
        *improvement = f64::midpoint(rates[0] / default[0], rates[1] / default[1]);
    }
    Ok(improvement)
}

/// Each program's mean over the others.
fn tenants(names: &[&'static str], bed: Bed) -> Result<Vec<[f64; 4]>, ReproduceError> {
    let pairs: Vec<(usize, usize)> = (0..names.len()).flat_map(|a| (a + 1..names.len()).map(move |b| (a, b))).collect();
    let all: Result<Vec<[f64; 4]>, ReproduceError> =
        pairs.par_iter().map(|(a, b)| pair([names[*a], names[*b]], bed)).collect();
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
        notes: vec!["Aggregate throughput is the weighted speedup of the two, relative to slices of 30 ms.".to_owned()],
    })
}
