//! Programs that go on while slices take turns: `machine.in_turn`.

use super::summary::RatioSpread;
use gleaner_report::show::{Part, Row, line, table};
use gleaner_report::text::{distinct, mean_time};
use gleaner_stats::median;
use serde::{Deserialize, Serialize};

/// One run of the measured programs, and every slice's turns within it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InTurnRun {
    /// Counted from 0, warm-up rounds first.
    pub round: u32,
    /// Whether the round is one of the warm-up.
    pub warmup: bool,
    /// Place in its round, from 0.
    pub order: u32,
    /// The VMs, in the scenario's order.
    pub vms: Vec<InTurnVm>,
    /// Every slice of the scenario.
    pub slices: Vec<InTurnSlice>,
    /// Shortest slice that `adaptive` had chosen at the end; null without it.
    pub chosen_ns: Option<u64>,
    /// How often `adaptive` changed a slice since its first turn began; null without it.
    pub changes: Option<u64>,
    /// CPU time of the agent's own loop by wall time, whoever has the turn.
    pub agent_cpu_ratio: f64,
    /// The turns, oldest first. In each pass every slice has one.
    pub turns: Vec<SliceTurn>,
}

/// Who ran what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTurnVm {
    pub vm: String,
    pub workload: String,
}

/// What came of a slice, over all its turns of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTurnSlice {
    /// `adaptive`, or a duration.
    pub slice: String,
    /// Median of the run intervals that ended by preemption, the longest of the VMs'; null without BPF.
    pub p50_ns: Option<u64>,
    /// Their 90th percentile, likewise.
    pub p90_ns: Option<u64>,
    /// From a vCPU's wake-up to running, 99th percentile, of the VM with the longest.
    pub wake_to_run_p99_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceTurn {
    /// Counted from 0.
    pub pass: u32,
    /// `adaptive`, or a duration.
    pub slice: String,
    /// Since the first round began.
    pub at_ns: u64,
    /// How long.
    pub length_ns: u64,
    /// What each VM got done, in the order of `vms`; null where its lines do not reach.
    pub items_per_second: Vec<Option<f64>>,
}

/// By VM and slice: what it got done in a turn, and by the scenario's first slice in the same pass.
pub(super) fn parts(runs: &[InTurnRun]) -> Vec<Part> {
    let counted = || runs.iter().filter(|run| !run.warmup);
    let cases = distinct(counted().map(|run| &run.vms));
    let rows = cases.into_iter().flat_map(|case| {
        let of: Vec<&InTurnRun> = counted().filter(|run| run.vms == *case).collect();
        let slices = of.first().map_or(&[][..], |run| &run.slices);
        let each = case.iter().enumerate().flat_map(|(at, vm)| slices.iter().map(move |slice| (at, vm, slice)));
        each.map(|(at, vm, slice)| row(&of, at, vm, &slice.slice, &slices[0].slice)).collect::<Vec<Row>>()
    });
    let agent: Vec<f64> = runs.iter().map(|run| run.agent_cpu_ratio * 1e9).collect();
    let agent = mean_time(median(&agent));
    let by_first = "by first slice: a turn by that of the scenario's first slice in the same pass, [95 % interval], \
                    turns taken as independent.";
    let agent = format!("the agent took {agent} of CPU time a second, whoever had the turn");
    table("Slices in turn", rows).into_iter().chain([line(by_first), line(agent)]).collect()
}

fn row(of: &[&InTurnRun], at: usize, vm: &InTurnVm, slice: &str, first: &str) -> Row {
    let rates = rates(of, at, slice);
    let pairs = rates.iter().zip(rates_of_first(of, at, first, slice));
    let pairs: Vec<(f64, f64)> = pairs.filter_map(|(here, first)| Some(((*here)?, first?))).collect();
    let rates: Vec<f64> = rates.iter().flatten().copied().collect();
    let found = of.iter().filter_map(|run| run.slices.iter().find(|found| found.slice == slice));
    let found: Vec<&InTurnSlice> = found.collect();
    let figure = |value: fn(&InTurnSlice) -> Option<u64>| {
        let found: Vec<f64> = found.iter().filter_map(|found| value(found).map(|ns| ns as f64)).collect();
        mean_time(median(&found))
    };
    Row::default()
        .text("VM", &vm.vm)
        .text("workload", &vm.workload)
        .text("slice", slice)
        .number("delivered p50", figure(|found| found.p50_ns))
        .number("wake-up p99", figure(|found| found.wake_to_run_p99_ns))
        .number("turns", rates.len())
        .fixed("items/s", median(&rates), 1)
        .number("by first slice", RatioSpread::of_pairs(&pairs))
}

fn rates(runs: &[&InTurnRun], vm: usize, slice: &str) -> Vec<Option<f64>> {
    let turns = runs.iter().flat_map(|run| run.turns.iter().filter(|turn| turn.slice == slice));
    turns.map(|turn| turn.items_per_second.get(vm).copied().flatten()).collect()
}

/// Of each turn of `slice`, that of `first` in the same pass.
fn rates_of_first(runs: &[&InTurnRun], vm: usize, first: &str, slice: &str) -> Vec<Option<f64>> {
    let of = |run: &InTurnRun| {
        let turns = run.turns.iter().filter(|turn| turn.slice == slice);
        let same_pass = |turn: &SliceTurn| {
            let found = run.turns.iter().find(|other| other.pass == turn.pass && other.slice == first)?;
            found.items_per_second.get(vm).copied().flatten()
        };
        turns.map(same_pass).collect::<Vec<Option<f64>>>()
    };
    runs.iter().flat_map(|run| of(run)).collect()
}
