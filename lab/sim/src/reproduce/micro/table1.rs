//! Table I: how long kernel locks are waited for and held, alone and beside swaptions.
//!
//! Waiting times are per wait, not per acquisition, as the kernel's lock statistics count them: a lock that is free is
//! not waited for. Pause-loop exits are off: the paper comes to them only later.

use super::bed::{Bed, S, US};
use super::lock_times::{Line, TABLE};
use super::parsec::Program;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced};
use gleaner_model::Distribution;
use gleaner_papers::{Found, Row, table};
use rayon::prelude::*;

/// Mean of what is not 0, microseconds; 0 where nothing is.
fn mean_of_waits(waits: &Distribution) -> f64 {
    // Zeros have a bucket of their own; the least rank whose value is not 0 is the number of zeros.
    let (mut none, mut some) = (0, waits.count());
    while none < some {
        let middle = u64::midpoint(none, some);
        let value = waits.quantile((middle as f64 + 0.5) / waits.count() as f64);
        if value.is_some_and(|value| value.0 == 0) { none = middle + 1 } else { some = middle }
    }
    waits.sum().as_f64() / (waits.count() - none).max(1) as f64 / US as f64
}

struct Measured {
    wait_us: f64,
    hold_us: f64,
}

fn measure(name: &str, beside: bool, extent: &Extent) -> Result<Measured, ReproduceError> {
    let bed = Bed { ple: false, ..Bed::xen(if extent.smoke { S / 4 } else { 10 * S }, extent) };
    let mut vms = vec![Program::vm(name)];
    vms.extend(beside.then(|| Program::vm("swaptions")));
    let (mut waits, mut holds) = (Distribution::new(), Distribution::new());
    for bed in bed.each() {
        let result = bed.run(vms.clone())?;
        waits.merge(&result.vms[0].totals.spin_waits);
        holds.merge(&result.vms[0].totals.spin_holds);
    }
    Ok(Measured { wait_us: mean_of_waits(&waits), hold_us: holds.mean().unwrap_or(f64::NAN) / US as f64 })
}

fn rows(line: &Line, alone: &Measured, beside: &Measured) -> Vec<Row> {
    let mut found = Found::default();
    found.list("line", [line.name]);
    for (n, (setting, measured)) in [("solo", alone), ("co-run", beside)].into_iter().enumerate() {
        for (what, value, paper) in [("wait", measured.wait_us, line.wait[n]), ("hold", measured.hold_us, line.hold[n])]
        {
            found.put(format!("{setting} {what}"), value);
            found.put(format!("paper's {setting} {what}"), paper);
        }
    }
    // Where nobody waits alone nor beside, nothing rises: that is no missing figure.
    let ratio = |beside: f64, alone: f64| if alone > 0.0 { beside / alone } else { 0.0 };
    found.put("wait ratio", ratio(beside.wait_us, alone.wait_us));
    found.put("hold ratio", ratio(beside.hold_us, alone.hold_us));
    table("micro:table1").rows(&found)
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let lines: Result<Vec<Vec<Row>>, ReproduceError> = TABLE
        .par_iter()
        .map(|line| {
            let (alone, beside) = (measure(line.name, false, extent)?, measure(line.name, true, extent)?);
            Ok(rows(line, &alone, &beside))
        })
        .collect();
    let table = table("micro:table1");
    let rows = lines?.into_iter().flatten().collect();
    Ok(Reproduced { rows, title: table.title, parameters: super::common::parameters(), notes: table.notes })
}
