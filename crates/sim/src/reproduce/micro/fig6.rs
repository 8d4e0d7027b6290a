//! Figure 6: four machines with several programs each, with three slices.

use super::bed::{Bed, MS, S, US, XEN_SLICE};
use super::fig3::{Network, network};
use super::guests::{App, guest};
use super::{FALLS, RISES, falls, rises};
use crate::engine::Time;
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use rayon::prelude::*;

const FERRET: &[App] = &[App::Parsec("ferret")];
const MIXED: &[App] = &[App::Parsec("ferret"), App::Tcp];
const VIPS: &[App] = &[App::Parsec("vips")];
const DEDUP: &[App] = &[App::Parsec("dedup")];
const SWAPTIONS: App = App::Single("swaptions");
const SINGLE: &[App] = &[SWAPTIONS, SWAPTIONS, SWAPTIONS, App::Single("streamcluster")];

const SLICES: [(&str, Time); 3] = [("30 ms", XEN_SLICE), ("1 ms", MS), ("0.1 ms", 100 * US)];
const METRIC: &str = "execution time / capped solo run, ratio";
/// "Significantly": by a quarter.
const MUCH: f64 = 1.25;

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
    let [ferret, vips, dedup, swaptions, streamcluster] = [0, 1, 2, 3, 4].map(|n| &programs[n]);
    let order = |case: String, metric: &str, says: &str, value: f64, agrees, criterion: &str| {
        Row::order(format!("{set}, {case}"), metric, says, value, agrees, criterion, Basis::Predicted)
    };
    let at = |program: &Program, slice: usize| format!("{}, {}", program.name, SLICES[slice].0);
    let mut rows =
        vec![order(at(dedup, 0), METRIC, "more than 10 times", dedup.times[0], dedup.times[0] > 10.0, "above 10")];
    for program in [ferret, vips] {
        rows.push(order(
            at(program, 0),
            METRIC,
            "suffers significantly",
            program.times[0],
            program.times[0] > MUCH,
            "above 1.25",
        ));
    }
    for program in [swaptions, streamcluster] {
        rows.push(order(at(program, 0), METRIC, "improves", program.times[0], falls(program.times[0]), FALLS));
    }
    let metric = "execution time / with 30 ms, ratio";
    for slice in [1, 2] {
        for program in [ferret, vips, dedup] {
            let ratio = program.times[slice] / program.times[0];
            rows.push(order(
                at(program, slice),
                metric,
                "reduced significantly",
                ratio,
                ratio < 1.0 / MUCH,
                "below 0.8",
            ));
        }
        for program in [swaptions, streamcluster] {
            let ratio = program.times[slice] / program.times[0];
            rows.push(order(at(program, slice), metric, "degrades", ratio, rises(ratio), RISES));
        }
        let (before, now) = (unfairness(programs, 0), unfairness(programs, slice));
        let (case, metric) =
            (SLICES[slice].0.to_owned(), "mean distance from the capped solo runs / with 30 ms, ratio");
        rows.push(order(case, metric, "all closer to the capped solo runs", now / before, falls(now / before), FALLS));
    }
    for program in [ferret, vips, swaptions, streamcluster] {
        rows.push(order(
            at(program, 2),
            METRIC,
            "lower than the capped solo run",
            program.times[2],
            program.times[2] < 1.0,
            "below 1",
        ));
    }
    rows.push(order(
        at(dedup, 2),
        METRIC,
        "not lower than the capped solo run",
        dedup.times[2],
        dedup.times[2] > 1.0,
        "above 1",
    ));
    for program in programs {
        for (slice, time) in program.times.iter().enumerate() {
            rows.push(Row::measured(format!("{set}, {}", at(program, slice)), METRIC, *time, Basis::Predicted));
        }
    }
    rows
}

/// How far all programs are from their capped solo runs, as factors.
fn unfairness(programs: &[Program], slice: usize) -> f64 {
    programs.iter().map(|program| program.times[slice].ln().abs()).sum::<f64>() / programs.len() as f64
}

/// Jitter with each slice, milliseconds.
const JITTER: [f64; 3] = [5.83, 1.23, 0.25];

fn io(solo: Network, networks: &[Network]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((network, paper), (slice, _)) in networks.iter().zip(JITTER).zip(SLICES) {
        rows.push(Row::number(
            format!("mixed, iperf, {slice}"),
            "jitter, ms",
            paper,
            network.jitter_ms,
            Basis::Predicted,
        ));
    }
    let order = |slice: &str, says: &str, value: f64, agrees, criterion: &str| {
        Row::order(
            format!("mixed, iperf, {slice}"),
            "throughput / solo, ratio",
            says,
            value,
            agrees,
            criterion,
            Basis::Predicted,
        )
    };
    let share = |n: usize| networks[n].mbits / solo.mbits;
    rows.push(order("30 ms", "degrades significantly", share(0), share(0) < 1.0 / MUCH, "below 0.8"));
    rows.push(order("0.1 ms", "recovers to that of solo", share(2), share(2) > 0.75, "above 0.75"));
    for (network, (slice, _)) in networks.iter().zip(SLICES) {
        rows.push(Row::measured(
            format!("mixed, iperf, {slice}"),
            "throughput, Mbit/s",
            network.mbits,
            Basis::Predicted,
        ));
    }
    rows
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
    all.extend(io(solo, &networks?));
    Ok(Reproduced {
        title: "Figure 6: four machines with several programs, slices of 30, 1 and 0.1 ms".to_owned(),
        parameters: super::parameters(),
        rows: all,
        notes: vec![super::CAPPED.to_owned(), super::IPERF.to_owned()],
    })
}
