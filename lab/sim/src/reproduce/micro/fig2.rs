//! Figure 2: the PARSEC programs beside swaptions, with and without pause-loop exits, normalized to capped solo runs.

use super::bed::{Bed, S};
use super::parsec::{PARSEC, Program};
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;
use rayon::prelude::*;

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

fn pair(name: &'static str, swaptions: f64, bed: Bed) -> Result<Pair, ReproduceError> {
    let alone = bed.capped(|| Program::vm(name), 0.5)?;
    let (mut own, mut beside) = ([0.0; 2], [0.0; 2]);
    for (n, ple) in [false, true].into_iter().enumerate() {
        let both = Bed { ple, ..bed }.rates(|| vec![Program::vm(name), Program::vm("swaptions")])?;
        own[n] = alone / both[0];
        beside[n] = swaptions / both[1];
    }
    Ok(Pair { name, own, swaptions: beside })
}

/// Every pair's figures, and what pause-loop exits change of them.
fn put(found: &mut Found, pairs: &[Pair]) {
    let mut pictured = Vec::new();
    for pair in pairs {
        for (who, values) in
            [(pair.name.to_owned(), pair.own), (format!("swaptions beside {}", pair.name), pair.swaptions)]
        {
            for (setting, value) in ["", ", PLE"].iter().zip(values) {
                pictured.push(format!("{who}{setting}"));
                found.put(format!("{who}{setting}"), value);
            }
            found.put(format!("{who} with / without"), values[1] / values[0]);
        }
    }
    found.list("pictured", pictured);
    let vips = pairs.iter().find(|pair| pair.name == "vips").unwrap_or(&pairs[0]);
    let [own, other] = [vips.own, vips.swaptions].map(|values| values[1] / values[0]);
    found.put("vips / swaptions", own / other);
    found.put("one of them improves", f64::from((own < 1.0) != (other < 1.0)));
    let slowed = pairs.iter().filter(|pair| pair.own[0] > MUCH).count();
    let still = pairs.iter().filter(|pair| pair.own[0] > MUCH && pair.own[1] > MUCH).count();
    found.put("slowed", slowed as f64);
    found.put("still slowed / slowed", still as f64 / slowed.max(1) as f64);
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let bed = Bed { ple: false, ..Bed::xen(if extent.smoke { S / 5 } else { 10 * S }, extent) };
    let swaptions = bed.capped(|| Program::vm("swaptions"), 0.5)?;
    let names: Vec<&'static str> =
        PARSEC.iter().map(|program| program.name.as_str()).filter(|name| *name != "swaptions").collect();
    let pairs: Result<Vec<Pair>, ReproduceError> = names.par_iter().map(|name| pair(name, swaptions, bed)).collect();
    let pairs = pairs?;
    let busy = pairs.iter().filter(|pair| HEAVY.contains(&pair.name));
    let least = busy.map(|pair| pair.own[0]).fold(f64::INFINITY, f64::min);
    let others = pairs.iter().filter(|pair| !HEAVY.contains(&pair.name));
    let mut rest: Vec<f64> = others.map(|pair| pair.own[0]).collect();
    rest.sort_by(f64::total_cmp);
    let median = rest[rest.len() / 2];
    let mut found = Found::default();
    found.put("least / median", least / median);
    put(&mut found, &pairs);
    Ok(reproduced("micro:fig2", super::common::parameters(), &found))
}
