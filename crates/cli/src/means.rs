//! What a wake-up costs by each means of keeping a vCPU awake: for `probe --means`, and what `doctor` says of each.

use crate::calibrate::{Bench, Setting, Summary};
use gleaner_act::{Journal, Retainer};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Nanos, RetainMeans};
use gleaner_report::{MeansCell, MeansResult};
use gleaner_runtime::{Opened, Opening, open_one};
use gleaner_stats::{interval_of_median, median};
use std::cell::RefCell;
use std::time::Duration;

/// Sleeps between two wake-ups, and how many wake-ups a round has at each.
const GAPS: [(Duration, usize); 4] = [
    (Duration::from_micros(50), 60),
    (Duration::from_micros(200), 60),
    (Duration::from_millis(1), 40),
    (Duration::from_millis(10), 12),
];
/// Rounds in which all means take turns: enough for an interval of their medians' ratio.
const ROUNDS: usize = 6;

/// Turns that [`measure`] takes.
pub const TURNS: usize = ROUNDS * GAPS.len();

/// Opens every means on two of `vcpus`, inactive; with why not, where it is not to be had.
pub fn open_all(opening: &Opening<'_>, journal: &mut Journal) -> Vec<(RetainMeans, Result<Opened, String>)> {
    RetainMeans::ALL.into_iter().map(|means| (means, open_one(means, opening, journal))).collect()
}

/// Measures a halted vCPU and every open means in turn, at each gap. `go_on` is asked now and then; `None` once it said
/// no.
pub fn measure(
    opened: Vec<(RetainMeans, Result<Opened, String>)>,
    on: &CpuSet,
    journal: &mut Journal,
    mut go_on: impl FnMut(usize) -> bool,
) -> Result<Option<Vec<MeansResult>>, String> {
    let journal = RefCell::new(journal);
    let mut refused = Vec::new();
    let mut open: Vec<(RetainMeans, RefCell<Box<dyn Retainer>>)> = Vec::new();
    for (means, result) in opened {
        match result {
            Ok(opened) => open.push((means, RefCell::new(opened.retainer))),
            Err(why) => refused.push(MeansResult { means: means.name().into(), why_not: Some(why), cells: Vec::new() }),
        }
    }
    let mut samples = vec![vec![vec![Vec::new(); ROUNDS]; GAPS.len()]; open.len() + 1];
    for turn in 0..TURNS {
        let (round, at) = (turn / GAPS.len(), turn % GAPS.len());
        let (gap, count) = GAPS[at];
        if !go_on(turn) {
            return Ok(None);
        }
        for (index, (_, retainer)) in open.iter().enumerate() {
            let Some(bench) = Bench::by(retainer, &journal, on, gap) else { return Ok(None) };
            let one = |setting| bench.measure(setting, count, |_| true).map_err(|error| error.to_string());
            samples[index + 1][at][round] = one(Setting::B)?;
            if index == 0 {
                samples[0][at][round] = one(Setting::C)?;
            }
        }
    }
    let halted = &samples[0];
    let mut results = vec![result("halted", halted, halted)];
    results.extend(open.iter().zip(&samples[1..]).map(|((means, _), own)| result(means.name(), own, halted)));
    results.extend(refused);
    Ok(Some(results))
}

fn result(name: &str, own: &[Vec<Vec<Nanos>>], halted: &[Vec<Vec<Nanos>>]) -> MeansResult {
    let cells = GAPS.iter().zip(own.iter().zip(halted)).filter_map(|((gap, _), (own, halted))| {
        let all: Vec<Nanos> = own.iter().flatten().copied().collect();
        let summary = Summary::of(&all)?;
        let ratios: Vec<f64> = own.iter().zip(halted).filter_map(|(own, halted)| ratio(own, halted)).collect();
        Some(MeansCell {
            gap_ns: Nanos::from(*gap).0,
            n: summary.n,
            p50_ns: summary.p50.0,
            p99_ns: summary.p99.0,
            halted_by_it_ratio: median(&ratios),
            halted_by_it_ci95: interval_of_median(&ratios).map(|(low, high)| [low, high]),
        })
    });
    MeansResult { means: name.to_owned(), why_not: None, cells: cells.collect() }
}

/// A halted wake-up's median as a multiple of the other's, in one round.
fn ratio(own: &[Nanos], halted: &[Nanos]) -> Option<f64> {
    let (own, halted) = (Summary::of(own)?, Summary::of(halted)?);
    Some(halted.p50.as_f64() / own.p50.as_f64().max(1.0))
}

/// Parameters under which nothing but the measurement ends a means: no guard for the seconds that it takes.
pub fn unguarded() -> GuestParams {
    GuestParams { steal_share_stop: 1.0, ..GuestParams::default() }
}
