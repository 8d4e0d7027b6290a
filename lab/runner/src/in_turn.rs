//! A run of the measured programs in which slices take turns.

use crate::error::RunnerError;
use crate::guest::Guest;
use crate::slices::HeldSlices;
use crate::step::{Bench, Place, nanos};
use gleaner_lab_report::{InTurnRun, InTurnSlice, InTurnVm, SliceTurn};
use gleaner_report::{HostInTurn, HostRunReport};
use gleaner_scenario::{Combination, HostSlice};
use std::time::{Duration, Instant};

impl Bench<'_> {
    /// Starts the measured programs, without an end; gives each slice its turns; then what each VM got done in each of
    /// them, from its lines of progress, which it keeps until the end.
    pub fn in_turn(
        &self,
        guests: &mut [Guest],
        combination: &Combination,
        place: Place,
    ) -> Result<InTurnRun, RunnerError> {
        let passes = self.scenario.machine.in_turn.unwrap_or(1);
        let running = self.start(guests, &combination.measured, |_| true)?;
        self.patience.sleep(self.scenario.settle)?;
        let report = HeldSlices::in_turn(self, guests, passes)?;
        let clock = Clock::now();
        let Some(in_turn) = &report.in_turn else {
            return Err(RunnerError::Work("gleaner host run --in-turn told of no turns".to_owned()));
        };
        self.stop(guests, &running)?;
        let progress: Vec<_> = combination.measured.iter().map(|choice| guests[choice.vm].progress()).collect();
        let turn = |turn: &gleaner_report::HostTurn| {
            let (from, until) = (clock.instant(turn.from_ns), clock.instant(turn.until_ns));
            SliceTurn {
                pass: turn.pass,
                slice: self.slice_word(turn.slice_ns),
                at_ns: nanos(from.saturating_duration_since(self.zero)),
                length_ns: turn.until_ns.saturating_sub(turn.from_ns),
                items_per_second: progress.iter().map(|progress| progress.rate(from, until)).collect(),
            }
        };
        let vms = combination.measured.iter().map(|choice| InTurnVm {
            vm: self.scenario.vms[choice.vm].name.clone(),
            workload: self.workload(*choice).label().to_owned(),
        });
        let adaptive = self.scenario.machine.slices.contains(&HostSlice::Adaptive);
        Ok(InTurnRun {
            round: place.round,
            warmup: place.warmup,
            order: place.order,
            vms: vms.collect(),
            slices: self.scenario.machine.slices.iter().map(|slice| self.figures(in_turn, *slice)).collect(),
            chosen_ns: chosen(&report).filter(|_| adaptive),
            changes: adaptive.then(|| changes(&report, in_turn.lead_ns)),
            agent_cpu_ratio: report.overhead_cpu_ns as f64 / report.wall_ns.max(1) as f64,
            turns: in_turn.turns.iter().map(turn).collect(),
        })
    }

    /// As the scenario has it: the agent's own policy is `adaptive`, or the first slice.
    fn slice_word(&self, slice_ns: Option<u64>) -> String {
        let slices = &self.scenario.machine.slices;
        let first = || slices.iter().find(|slice| **slice == HostSlice::Adaptive).or(slices.first()).copied();
        let found = slice_ns.map_or_else(first, |ns| Some(HostSlice::Fixed(Duration::from_nanos(ns))));
        found.unwrap_or_default().to_string()
    }

    fn figures(&self, in_turn: &HostInTurn, slice: HostSlice) -> InTurnSlice {
        let slice = slice.to_string();
        let of = || in_turn.figures.iter().filter(|turns| self.slice_word(turns.slice_ns) == slice);
        InTurnSlice {
            p50_ns: of().filter_map(|turns| turns.figures.delivered_p50_ns).max(),
            p90_ns: of().filter_map(|turns| turns.figures.delivered_p90_ns).max(),
            wake_to_run_p99_ns: of().filter_map(|turns| turns.figures.wake_to_run_p99_ns).max(),
            slice,
        }
    }
}

fn chosen(report: &HostRunReport) -> Option<u64> {
    report.vms.iter().filter_map(|vm| vm.slices.last()).map(|slice| slice.slice_ns).min()
}

/// Decisions after the lead; the policy's clock stands while others have their turn.
fn changes(report: &HostRunReport, lead_ns: u64) -> u64 {
    report.decisions.iter().filter(|decision| decision.at_ns >= lead_ns).count() as u64 + report.decisions_left_out
}

/// The same moment on two clocks: CLOCK_MONOTONIC's figure has no way to an `Instant` but this.
struct Clock {
    instant: Instant,
    monotonic: Duration,
}

impl Clock {
    fn now() -> Self {
        Self { instant: Instant::now(), monotonic: gleaner_sys::monotonic().into() }
    }

    /// A moment before this one.
    fn instant(&self, monotonic_ns: u64) -> Instant {
        let ago = self.monotonic.saturating_sub(Duration::from_nanos(monotonic_ns));
        self.instant.checked_sub(ago).unwrap_or(self.instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_as_long_ago_on_both_clocks() {
        let clock = Clock::now();
        let now_ns = nanos(clock.monotonic);
        for ms in [0, 1, 1500] {
            let ago = Duration::from_millis(ms);
            assert_eq!(clock.instant(now_ns - nanos(ago)), clock.instant.checked_sub(ago).unwrap());
        }
    }
}
