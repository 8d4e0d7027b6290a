//! `--in-turn`: the policy and slices for all take turns under the same load, so that they can be compared.
//!
//! Runs of the same programs under the same slice differ by a tenth and more, because what disturbs them lasts for
//! seconds. Shorter turns meet it alike. Each pass gives every slice one turn, in an order of its own. During others'
//! turns the policy sees nothing, and its clock stands.

use super::options::TurnOptions;
use super::record::Sums;
use super::watch::{Sample, id};
use gleaner_model::{HostWindow, Nanos, VmId};
use gleaner_observe::Vm;
use gleaner_report::{HostInTurn, HostTurn, HostTurnFigures};
use std::collections::BTreeMap;
use std::time::Duration;

/// A turn's beginning, which does not count: while no ticker is awake, Gleaner asks only every fifth of a second where
/// vCPUs compete.
const FOLLOWING: Duration = Duration::from_millis(400);

/// Turns that are listed: of two days.
const LISTED: usize = 100_000;

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    options: TurnOptions,
    /// A slice for all; `None`: the policy's own.
    arms: Vec<Option<Nanos>>,
    now: usize,
    /// Who comes after in this pass, the next one last.
    later: Vec<usize>,
    pass: u32,
    /// Of the policy's time at the beginning, how much is left.
    lead: Nanos,
    /// Since the turn began; of it, what counts, and when that began.
    passed: Nanos,
    counted: Nanos,
    from: Nanos,
    /// Time that was not the policy's.
    others: Nanos,
    random: fastrand::Rng,
    done: Vec<HostTurn>,
    sums: Vec<BTreeMap<VmId, Sums>>,
}

impl Turns {
    pub fn new(options: TurnOptions) -> Self {
        let arms: Vec<Option<Nanos>> = std::iter::once(None).chain(options.slices.iter().copied().map(Some)).collect();
        Self {
            now: 0,
            later: Vec::new(),
            pass: 0,
            lead: Nanos::from(options.lead),
            passed: Nanos::ZERO,
            counted: Nanos::ZERO,
            from: Nanos::ZERO,
            others: Nanos::ZERO,
            random: fastrand::Rng::with_seed(options.seed),
            done: Vec::new(),
            sums: vec![BTreeMap::new(); arms.len()],
            arms,
            options,
        }
    }

    /// The window as the policy is to see it, if it had this turn.
    pub fn of_policy(&self, window: &HostWindow) -> Option<HostWindow> {
        let mine = self.leading() || (self.now == 0 && self.follows());
        mine.then(|| HostWindow { at: window.at - self.others, ..window.clone() })
    }

    /// Takes a window that ended at `now` (CLOCK_MONOTONIC), and goes on to the next turn when it is time. False when
    /// the last one is over.
    pub fn add(&mut self, seen: &Sample, now: Nanos) -> bool {
        let length = seen.window.length;
        if self.leading() {
            self.lead = self.lead - length;
            if !self.leading() {
                self.next();
            }
            return true;
        }
        if self.follows() {
            self.counted += length;
            for vm in &seen.window.vms {
                let sums = self.sums[self.now].entry(vm.vm).or_default();
                sums.add(vm, length, seen.delivered.get(&vm.vm));
            }
        }
        if self.now != 0 || !self.follows() {
            self.others += length;
        }
        self.passed += length;
        if self.counted == Nanos::ZERO {
            self.from = now;
            return true;
        }
        if self.counted < Nanos::from(self.options.length) {
            return true;
        }
        let slice_ns = self.arms[self.now].map(|slice| slice.0);
        if self.done.len() < LISTED {
            self.done.push(HostTurn { pass: self.pass, slice_ns, from_ns: self.from.0, until_ns: now.0 });
        }
        if self.later.is_empty() && self.options.passes.is_some_and(|passes| self.pass + 1 >= passes) {
            return false;
        }
        self.next();
        true
    }

    /// The slice of each VM now.
    pub fn slices(&self, policy: &BTreeMap<VmId, Nanos>, vms: &[Vm]) -> BTreeMap<VmId, Nanos> {
        match self.arms[self.now] {
            None => policy.clone(),
            Some(slice) => vms.iter().map(|vm| (id(vm), slice)).collect(),
        }
    }

    /// In a word: whose turn it is.
    pub fn word(&self) -> String {
        self.arms[self.now].map_or_else(|| "the policy's turn".to_owned(), |slice| format!("{slice} for all"))
    }

    pub fn report(self) -> HostInTurn {
        let arms = self.arms.iter().zip(&self.sums).flat_map(|(arm, sums)| {
            let figures = move |(vm, sums): (&VmId, &Sums)| {
                Some(HostTurnFigures { slice_ns: arm.map(|slice| slice.0), vm: vm.0, figures: sums.figures()? })
            };
            sums.iter().filter_map(figures)
        });
        HostInTurn { lead_ns: Nanos::from(self.options.lead).0, figures: arms.collect(), turns: self.done }
    }

    fn leading(&self) -> bool {
        self.lead > Nanos::ZERO
    }

    /// Whether the slices of this turn are in force.
    fn follows(&self) -> bool {
        self.passed >= Nanos::from(FOLLOWING)
    }

    fn next(&mut self) {
        if self.later.is_empty() {
            self.pass = if self.done.is_empty() { 0 } else { self.pass + 1 };
            self.later = (0..self.arms.len()).collect();
            self.random.shuffle(&mut self.later);
        }
        self.now = self.later.pop().unwrap_or(0);
        (self.passed, self.counted) = (Nanos::ZERO, Nanos::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(passes: u32) -> Turns {
        Turns::new(TurnOptions {
            slices: vec![Nanos::from_millis(30), Nanos::from_millis(1)],
            length: Duration::from_millis(600),
            lead: Duration::from_secs(1),
            passes: Some(passes),
            seed: 7,
        })
    }

    /// Windows of 200 ms until it ends; each with whose turn it was, and when the policy thought that it was.
    fn play(turns: &mut Turns) -> Vec<(Option<u64>, Option<Nanos>)> {
        let step = Nanos::from_millis(200);
        let mut at = Nanos::ZERO;
        let mut played = Vec::new();
        loop {
            at += step;
            let window = HostWindow { at, length: step, vms: Vec::new(), tick: None };
            played.push((turns.arms[turns.now].map(|slice| slice.0), turns.of_policy(&window).map(|window| window.at)));
            if !turns.add(&Sample { window, delivered: BTreeMap::new() }, at) {
                return played;
            }
        }
    }

    #[test]
    fn everybody_has_a_turn_in_each_pass_after_the_lead() {
        let mut turns = turns(4);
        let played = play(&mut turns);
        // Five windows of lead, and of each turn two until slices are in force, and three that count.
        assert_eq!(played.len(), 5 + 4 * 3 * 5);
        let report = turns.report();
        assert_eq!(report.turns.len(), 12);
        for pass in 0..4 {
            let mut of: Vec<_> =
                report.turns.iter().filter(|turn| turn.pass == pass).map(|turn| turn.slice_ns).collect();
            of.sort_unstable();
            assert_eq!(of, [None, Some(1_000_000), Some(30_000_000)], "pass {pass}");
        }
        assert!(report.turns.iter().all(|turn| turn.until_ns - turn.from_ns == 600_000_000));
        // Until slices are in force nothing counts.
        let apart = |two: &[HostTurn]| Nanos(two[1].from_ns - two[0].until_ns) == Nanos::from(FOLLOWING);
        assert!(report.turns.windows(2).all(apart), "{:?}", report.turns);
        let orders: Vec<Vec<_>> =
            report.turns.chunks(3).map(|pass| pass.iter().map(|turn| turn.slice_ns).collect()).collect();
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
    }

    #[test]
    fn the_policys_clock_stands_while_others_have_their_turn() {
        let played = play(&mut turns(3));
        let seen: Vec<Nanos> = played.iter().filter_map(|(_, at)| *at).collect();
        assert_eq!(seen.len(), 5 + 3 * 3);
        let step = Nanos::from_millis(200);
        assert!(seen.windows(2).all(|two| two[1] - two[0] == step), "{seen:?}");
        assert!(played.iter().all(|(slice, at)| slice.is_none() || at.is_none()));
    }
}
