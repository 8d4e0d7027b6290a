//! Figure 2: the PARSEC programs beside swaptions, with and without pause-loop exits, normalized to capped solo runs.

use super::bed::{Bed, S};
use super::parsec::{PARSEC, Program};
use super::table1::hold_ns;
use super::{FALLS, RISES, falls, rises};
use crate::program::Workload;
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use rayon::prelude::*;

const METRIC: &str = "execution time / capped solo run, ratio";
/// Programs that the text says wait busily.
const HEAVY: [&str; 3] = ["dedup", "streamcluster", "vips"];
/// "Substantially", "significantly": by a quarter, which is also what two figures may differ by and still agree.
const MUCH: f64 = 1.25;

/// A program and swaptions beside it, each without and with pause-loop exits.
struct Pair {
    name: &'static str,
    own: [f64; 2],
    swaptions: [f64; 2],
}

fn vm(name: &str) -> (String, Workload) {
    (name.to_owned(), Program::named(name).workload(hold_ns(name)))
}

fn pair(name: &'static str, swaptions: f64, bed: Bed) -> Result<Pair, ReproduceError> {
    let alone = bed.capped(|| vm(name), 0.5)?;
    let (mut own, mut beside) = ([0.0; 2], [0.0; 2]);
    for (n, ple) in [false, true].into_iter().enumerate() {
        let both = Bed { ple, ..bed }.rates(|| vec![vm(name), vm("swaptions")])?;
        own[n] = alone / both[0];
        beside[n] = swaptions / both[1];
    }
    Ok(Pair { name, own, swaptions: beside })
}

fn pictured(pair: &Pair) -> Vec<Row> {
    let setting = ["", ", PLE"];
    let row = |case: String, value| Row::measured(case, METRIC, value, Basis::Predicted);
    let own = (0..2).map(|n| row(format!("{}{}", pair.name, setting[n]), pair.own[n]));
    let beside = (0..2).map(|n| row(format!("swaptions beside {}{}", pair.name, setting[n]), pair.swaptions[n]));
    own.chain(beside).collect()
}

/// What the text says about one of the programs that wait busily.
fn heavy(pair: &Pair) -> Vec<Row> {
    let order = |case: String, says, value, agrees, criterion: &str| {
        Row::order(case, METRIC, says, value, agrees, criterion, Basis::Predicted)
    };
    vec![
        order(pair.name.to_owned(), "increases substantially", pair.own[0], pair.own[0] > MUCH, "above 1.25"),
        order(
            format!("swaptions beside {}", pair.name),
            "can benefit compared to the capped solo run",
            pair.swaptions[0],
            falls(pair.swaptions[0]),
            FALLS,
        )
        .because("a machine that spins keeps its pCPUs; only one that halts gives them away"),
    ]
}

fn ple(pairs: &[Pair]) -> Vec<Row> {
    let metric = "execution time with PLE / without, ratio";
    let of = |name: &str| pairs.iter().find(|pair| pair.name == name).unwrap_or(&pairs[0]);
    let order = |case: &str, says: &str, value: f64, agrees, criterion: &str| {
        Row::order(case, metric, says, value, agrees, criterion, Basis::Predicted)
    };
    let change = |values: [f64; 2]| values[1] / values[0];
    let (dedup, vips) = (of("dedup"), of("vips"));
    let (own, other) = (change(vips.own), change(vips.swaptions));
    let slowed = pairs.iter().filter(|pair| pair.own[0] > MUCH).count();
    let still = pairs.iter().filter(|pair| pair.own[0] > MUCH && pair.own[1] > MUCH).count();
    vec![
        order("dedup", "reduced significantly", change(dedup.own), change(dedup.own) < 1.0 / MUCH, "below 0.8"),
        order(
            "swaptions beside dedup",
            "also benefits",
            change(dedup.swaptions),
            change(dedup.swaptions) < 1.0,
            "below 1",
        ),
        order(
            "vips and swaptions",
            "one improves, the other degrades",
            own / other,
            (own < 1.0) != (other < 1.0),
            "one below 1, one above",
        ),
        Row::order(
            "all programs",
            "programs slowed by a quarter, with PLE / without, ratio",
            "does not significantly mitigate across workloads",
            still as f64 / slowed.max(1) as f64,
            slowed > 0 && 2 * still >= slowed,
            "at least half of those slowed without are slowed with",
            Basis::Predicted,
        ),
    ]
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let bed = Bed { ple: false, ..Bed::xen(if extent.smoke { S / 5 } else { 10 * S }, extent) };
    let swaptions = bed.capped(|| vm("swaptions"), 0.5)?;
    let names: Vec<&'static str> =
        PARSEC.iter().map(|program| program.name).filter(|name| *name != "swaptions").collect();
    let pairs: Result<Vec<Pair>, ReproduceError> = names.par_iter().map(|name| pair(name, swaptions, bed)).collect();
    let pairs = pairs?;
    let busy = pairs.iter().filter(|pair| HEAVY.contains(&pair.name));
    let least = busy.clone().map(|pair| pair.own[0]).fold(f64::INFINITY, f64::min);
    let others = pairs.iter().filter(|pair| !HEAVY.contains(&pair.name));
    let mut rest: Vec<f64> = others.map(|pair| pair.own[0]).collect();
    rest.sort_by(f64::total_cmp);
    let median = rest[rest.len() / 2];
    let mut rows: Vec<Row> = busy.flat_map(heavy).collect();
    rows.push(Row::order(
        "programs that use kernel locks often",
        "least slowdown among them / median of the others, ratio",
        "increases significantly for them",
        least / median,
        rises(least / median),
        RISES,
        Basis::Predicted,
    ));
    rows.extend(ple(&pairs));
    rows.extend(pairs.iter().flat_map(pictured));
    Ok(Reproduced {
        title: "Figure 2: PARSEC beside swaptions, normalized to capped solo runs".to_owned(),
        parameters: super::parameters(),
        rows,
        notes: vec![super::CAPPED.to_owned()],
    })
}
