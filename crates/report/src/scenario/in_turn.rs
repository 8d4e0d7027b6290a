//! Programs that go on while slices take turns: `machine.in_turn`.

use super::RatioSpread;
use crate::text::{duration, table};
use gleaner_stats::median;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One run of the measured programs, and every slice's turns within it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InTurnVm {
    /// The VM.
    pub vm: String,
    /// The workload's label.
    pub workload: String,
}

/// What came of a slice, over all its turns of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
pub(super) fn write(f: &mut fmt::Formatter<'_>, runs: &[InTurnRun]) -> fmt::Result {
    let mut table =
        table(&["VM", "workload", "slice", "delivered p50", "wake-up p99", "turns", "items/s", "by first slice"]);
    let mut cases: Vec<&Vec<InTurnVm>> = Vec::new();
    for run in runs.iter().filter(|run| !run.warmup) {
        if !cases.contains(&&run.vms) {
            cases.push(&run.vms);
        }
    }
    for case in cases {
        let of: Vec<&InTurnRun> = runs.iter().filter(|run| !run.warmup && run.vms == *case).collect();
        let Some(slices) = of.first().map(|run| &run.slices) else { continue };
        for (at, vm) in case.iter().enumerate() {
            for slice in slices {
                let rates = rates(&of, at, &slice.slice);
                let pairs: Vec<(f64, f64)> = rates
                    .iter()
                    .zip(rates_of_first(&of, at, &slices[0].slice, &slice.slice))
                    .filter_map(|(here, first)| Some(((*here)?, first?)))
                    .collect();
                let figure = |value: fn(&InTurnSlice) -> Option<u64>| {
                    let found: Vec<f64> = of
                        .iter()
                        .filter_map(|run| run.slices.iter().find(|found| found.slice == slice.slice))
                        .filter_map(|found| value(found).map(|ns| ns as f64))
                        .collect();
                    super::text::time(median(&found))
                };
                table.add_row([
                    vm.vm.clone(),
                    vm.workload.clone(),
                    slice.slice.clone(),
                    figure(|found| found.p50_ns),
                    figure(|found| found.wake_to_run_p99_ns),
                    rates.iter().flatten().count().to_string(),
                    super::text::decimal(median(&rates.iter().flatten().copied().collect::<Vec<f64>>())),
                    super::text::spread(RatioSpread::of_pairs(&pairs)),
                ]);
            }
        }
    }
    writeln!(f, "{table}")?;
    let agent: Vec<f64> = runs.iter().map(|run| run.agent_cpu_ratio * 1e9).collect();
    let agent = duration(median(&agent).map(|ns| gleaner_model::Nanos::from_f64(ns).0));
    writeln!(
        f,
        "by first slice: a turn by that of the scenario's first slice in the same pass, [95 % interval], turns taken \
         as independent."
    )?;
    writeln!(f, "the agent took {agent} of CPU time a second, whoever had the turn")
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
