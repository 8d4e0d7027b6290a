//! Figure 6: four machines with several programs each, with three slices.

use super::bed::{Bed, MS, S, US, XEN_SLICE};
use super::fig3::{Network, network};
use super::guests::{App, guest};
use crate::engine::Time;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced};
use gleaner_papers::{Found, Row, table};
use rayon::prelude::*;

const FERRET: &[App] = &[App::Parsec("ferret")];
const MIXED: &[App] = &[App::Parsec("ferret"), App::Tcp];
const VIPS: &[App] = &[App::Parsec("vips")];
const DEDUP: &[App] = &[App::Parsec("dedup")];
const SWAPTIONS: App = App::Single("swaptions");
const SINGLE: &[App] = &[SWAPTIONS, SWAPTIONS, SWAPTIONS, App::Single("streamcluster")];

const SLICES: [(&str, Time); 3] = [("30 ms", XEN_SLICE), ("1 ms", MS), ("0.1 ms", 100 * US)];
/// A program, the number of its machine, and its normalized time with each of [`SLICES`].
struct Program {
    name: &'static str,
    times: [f64; 3],
}

/// Whose times there are: name, machine, the program that counts there.
const PROGRAMS: [(&str, usize, App); 5] = [
    ("ferret", 0, App::Parsec("ferret")),
    ("vips", 1, App::Parsec("vips")),
    ("dedup", 2, App::Parsec("dedup")),
    ("swaptions(3)", 3, SWAPTIONS),
    ("streamcluster(1)", 3, App::Single("streamcluster")),
];

fn program(
    machines: [&[App]; 4],
    (name, machine, counted): (&'static str, usize, App),
    bed: Bed,
) -> Result<Program, ReproduceError> {
    let alone = bed.capped(|| guest(machines[machine], counted, &bed), 0.25)?;
    let mut times = [0.0; 3];
    for (time, (_, slice)) in times.iter_mut().zip(SLICES) {
        let bed = Bed { slice, ..bed };
        let counts = |n: usize| if n == machine { counted } else { machines[n][0] };
        let rates = bed.rates(|| (0..4).map(|n| guest(machines[n], counts(n), &bed)).collect())?;
        *time = alone / rates[machine];
    }
    Ok(Program { name, times })
}

/// What the text says about one set of machines.
fn rows(set: &str, programs: &[Program]) -> Vec<Row> {
    let mut found = Found::default();
    let mut pictured = Vec::new();
    for program in programs {
        for ((slice, _), time) in SLICES.iter().zip(program.times) {
            let at = format!("{}, {slice}", program.name);
            found.put(format!("{at} / 30 ms"), time / program.times[0]);
            found.put(at.clone(), time);
            pictured.push(at);
        }
    }
    found.list("pictured", pictured);
    for (n, (slice, _)) in SLICES.iter().enumerate() {
        found.put(format!("unfairness, {slice}"), unfairness(programs, n) / unfairness(programs, 0));
    }
    let mut rows = table("micro:fig6").rows(&found);
    for row in &mut rows {
        row.case = format!("{set}, {}", row.case);
    }
    rows
}

/// How far all programs are from their capped solo runs, as factors.
fn unfairness(programs: &[Program], slice: usize) -> f64 {
    programs.iter().map(|program| program.times[slice].ln().abs()).sum::<f64>() / programs.len() as f64
}

/// What iperf in one of the machines came to.
fn network_rows(solo: Network, networks: &[Network]) -> Vec<Row> {
    let mut found = Found::default();
    for ((slice, _), network) in SLICES.iter().zip(networks) {
        found.put(format!("jitter, {slice}"), network.jitter_ms);
        found.put(format!("throughput, {slice}"), network.mbits);
        found.put(format!("{slice} / solo"), network.mbits / solo.mbits);
    }
    table("micro:fig6-network").rows(&found)
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let bed = Bed::xen(if extent.smoke { 2 * S } else { 6 * S }, extent);
    let mut all = Vec::new();
    for (set, first) in [("non-mixed", FERRET), ("mixed", MIXED)] {
        let machines = [first, VIPS, DEDUP, SINGLE];
        let programs: Result<Vec<Program>, ReproduceError> =
            PROGRAMS.par_iter().map(|which| program(machines, *which, bed)).collect();
        all.extend(rows(set, &programs?));
    }
    let solo = network(&[], &[], &bed)?;
    let networks: Result<Vec<Network>, ReproduceError> = SLICES
        .par_iter()
        .map(|(_, slice)| network(FERRET, &[VIPS, DEDUP, SINGLE], &Bed { slice: *slice, ..bed }))
        .collect();
    all.extend(network_rows(solo, &networks?));
    let table = table("micro:fig6");
    Ok(Reproduced { rows: all, title: table.title, parameters: super::common::parameters(), notes: table.notes })
}
