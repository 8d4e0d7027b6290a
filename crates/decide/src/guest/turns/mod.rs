//! Threads that take turns run on one vCPU, where that is faster (ours; it carries the paper's consolidation, section
//! 5, to its end).
//!
//! Where at most one thread of a group can run at a time, a second vCPU takes nothing off the first. It only makes each
//! hand-over a wake-up across vCPUs: 20 us and more to a halted one, 3 us to one that polls. On one vCPU the same
//! hand-over is a context switch of 1 to 2 us. The paper's conditions cannot see that: the idle period of one vCPU *is*
//! the computation of the other, so its lengths say that nothing fits.
//!
//! ```text
//!   apart --- looks like turns for some windows ---> trying --- one vCPU is faster, or as fast for less ---> packed
//!     ^                                                | it is not: a hold-off that doubles                     |
//!     +------------------------------------------------+<------ a burst, another program, another granularity --+
//! ```
//!
//! That it looks like turns is a bound: a group that uses more than `turns_cpus_max` CPUs has threads that run side by
//! side. What it does on one vCPU is tried: short blocks of both, in turn, on the running program, ended as soon as it
//! is clear. `evidence` says what is compared.

mod comparing;
mod evidence;
mod verdict;

use super::backoff::Backoff;
use super::kinds::LostKinds;
use super::{GuestParams, TrialRecord};
use comparing::Comparing;
use evidence::{Block, Compared};
use gleaner_model::{BurstWatch, Nanos, Profile, Reason, Window};
use serde::{Deserialize, Serialize};

/// A group that hands over more seldom would win nothing.
const SWITCHES_PER_S_MIN: f64 = 2_000.0;
/// Windows in a row that must look like turns before one vCPU is tried.
const WINDOWS: u32 = 2;
/// How long what the first trial found stands; it doubles up to the other.
const AGAIN_MIN: Nanos = Nanos::from_millis(250);
const AGAIN_MAX: Nanos = Nanos::from_secs(600);

/// How many windows somebody has to begin to count.
const UNCOUNTED_WINDOWS: u32 = 3;

/// A group that uses less while idle vCPUs poll is no chain.
const CHAIN_CPUS_MIN: f64 = 0.45;

/// More threads of a chain hardly ever run or wait to run at once: the one that wakes, the one that is woken, and some
/// that tidy up.
const CHAIN_THREADS_MAX: f64 = 4.0;
/// A group that uses so many times as many CPUs as one that is tried has become another.
const SIDE_BY_SIDE: f64 = 1.25;
/// Shorter windows say so now and then of threads that take turns: CPU time comes in slices. They have to agree.
const SIDE_BY_SIDE_FOR: Nanos = Nanos::from_millis(5);

/// A packed group that uses more of its vCPU and hardly switches computes. In short windows CPU time comes in slices.
const FULL: f64 = 0.6;

/// On one vCPU a thread that was woken may wait for another's slice (3 ms on two vCPUs and more). Who waits for much
/// longer has somebody beside it that computes.
const BURST_AFTER: Nanos = Nanos::from_millis(10);
const BURST_DELAY: Nanos = Nanos::from_millis(20);

/// What becomes of the group's place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Onto one vCPU.
    Pack(Reason),
    /// Onto all that it may use.
    Spread(Reason),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum State {
    Apart,
    Trying(Comparing),
    Packed { as_tried: Block, moved: u32 },
}

/// Whether a group runs on one vCPU because its threads take turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Turns {
    /// Whether the policy in force packs.
    asked: bool,
    /// CPU time counts for more than speed.
    frugal: bool,
    params: GuestParams,
    state: State,
    /// Windows in a row that looked like turns.
    looked: u32,
    /// For how long windows in a row had too many threads on the way at once.
    #[serde(skip)]
    side_by_side: Nanos,
    again: Backoff,
    lost: LostKinds,
    last: Option<TrialRecord>,
}

/// What to be told of while a group is on one vCPU.
pub(super) fn patient(watch: BurstWatch) -> BurstWatch {
    BurstWatch { after: watch.after.max(BURST_AFTER), delay: watch.delay.max(BURST_DELAY), ..watch }
}

/// Whether more threads of the group run or wait to run at once than a chain has, as far as anybody can tell.
fn is_more_than_a_chain(window: &Window) -> bool {
    window.runnable_mean().is_some_and(|threads| threads > CHAIN_THREADS_MAX)
}

/// How many threads of the group are on the way at once, where that is more than a chain has.
fn side_by_side(window: &Window, params: &GuestParams) -> Option<f64> {
    let cpus = window.group.cpu_time.share_of(window.length);
    let at_once = window.runnable_mean().unwrap_or(cpus);
    (is_more_than_a_chain(window) || cpus > params.turns_cpus_max * SIDE_BY_SIDE).then_some(at_once)
}

impl Turns {
    /// `asked`: whether the policy in force packs.
    pub(super) fn new(asked: bool, profile: Profile, params: &GuestParams) -> Self {
        Self {
            asked,
            frugal: profile == Profile::Frugal,
            state: State::Apart,
            looked: 0,
            side_by_side: Nanos::ZERO,
            // Nothing but a change of the workload makes it start small again.
            again: Backoff::new(AGAIN_MIN, AGAIN_MAX, u64::MAX),
            lost: LostKinds::default(),
            last: None,
            params: params.clone(),
        }
    }

    /// Whether the group's place is this module's: nothing else may move it.
    pub(super) fn is_engaged(&self) -> bool {
        !matches!(self.state, State::Apart)
    }

    /// Whether it looks for threads that take turns.
    pub(super) fn is_looking(&self) -> bool {
        self.asked && self.params.turns_cpus_max > 0.0 && !self.is_engaged()
    }

    /// Whether blocks are being compared.
    pub(super) fn is_trying(&self) -> bool {
        matches!(self.state, State::Trying(_))
    }

    /// Whether the group runs on one vCPU now.
    pub(super) fn is_on_one(&self) -> bool {
        match &self.state {
            State::Apart => false,
            State::Trying(comparing) => comparing.is_packed(),
            State::Packed { .. } => true,
        }
    }

    /// Whether a trial goes on, or is about to begin.
    pub(super) fn is_near_trial(&self) -> bool {
        self.is_trying() || self.looked > 0
    }

    /// Whether its threads may take turns, as far as the last window says.
    pub(super) fn may_be_turns(&self) -> bool {
        self.side_by_side == Nanos::ZERO
    }

    /// Whether it may have become another while it was packed: the next windows tell.
    pub(super) fn seems_another(&self) -> bool {
        matches!(self.state, State::Packed { moved, .. } if moved > 0)
    }

    /// What the last trial said.
    pub(super) fn last(&self) -> Option<&TrialRecord> {
        self.last.as_ref()
    }

    /// The workload is another one, or all vCPUs were given back: nothing is known of it.
    pub(super) fn workload_changed(&mut self, now: Nanos) {
        if self.is_engaged() {
            // What was packed and needed more may do so again soon.
            self.again.trigger(now, now, now);
        } else {
            self.again.forget();
            self.lost.forget();
        }
        self.state = State::Apart;
        self.looked = 0;
    }

    /// Takes a window. `awake`: idle vCPUs are kept awake while the group is apart. `may`: nothing else is being tried
    /// or judged, and there is a second vCPU to leave.
    pub(super) fn step(&mut self, window: &Window, awake: bool, may: bool) -> Option<Change> {
        let side_by_side = side_by_side(window, &self.params);
        self.side_by_side = side_by_side.map_or(Nanos::ZERO, |_| self.side_by_side + window.length);
        match &self.state {
            State::Apart => self.look(window, awake, may),
            State::Trying(_) => self.go_on(window, awake, side_by_side),
            State::Packed { .. } => self.watch(window),
        }
    }

    fn look(&mut self, window: &Window, awake: bool, may: bool) -> Option<Change> {
        let cpus = window.group.cpu_time.share_of(window.length);
        let another = || self.lost.is_another(Block::of(window).granularity());
        let due = self.again.remaining(window.at) == Nanos::ZERO || another();
        self.looked = if self.is_looking() && may && due && self.looks_like_turns(window, cpus, awake) {
            self.looked + 1
        } else {
            0
        };
        if self.looked < WINDOWS {
            return None;
        }
        if !evidence::is_counted(window) {
            if self.looked >= WINDOWS + UNCOUNTED_WINDOWS {
                // Nobody will: where nothing tells places apart, none is tried.
                self.looked = 0;
                self.again.hold(window.at + AGAIN_MAX);
            }
            return None;
        }
        self.looked = 0;
        let comparing = Comparing::begun(window, false, cpus);
        let packs = comparing.is_packed();
        self.state = State::Trying(comparing);
        packs.then_some(Change::Pack(Reason::TurnsTrial { cpus }))
    }

    fn looks_like_turns(&self, window: &Window, cpus: f64, awake: bool) -> bool {
        let switches = window.group.voluntary_switches + window.group.involuntary_switches;
        let per_s = switches as f64 / window.length.as_secs_f64().max(1e-9);
        // Where idle vCPUs poll, somebody of a chain always runs. Who does not waits for others than its own.
        let waits_for_others = awake && cpus < CHAIN_CPUS_MIN;
        window.group.threads > 1
            && !waits_for_others
            && !is_more_than_a_chain(window)
            && cpus <= self.params.turns_cpus_max
            && per_s >= SWITCHES_PER_S_MIN
    }

    fn go_on(&mut self, window: &Window, awake: bool, side_by_side: Option<f64>) -> Option<Change> {
        let is_beside = self.side_by_side >= SIDE_BY_SIDE_FOR;
        let State::Trying(comparing) = &mut self.state else { return None };
        let was_packed = comparing.is_packed();
        if let Some(threads) = side_by_side.filter(|_| is_beside) {
            self.state = State::Apart;
            self.again.trigger(window.at, window.at, window.at);
            self.lost.remember(Block::of(window).granularity());
            return Some(Change::Spread(Reason::SideBySide { threads }));
        }
        if !comparing.add(window)? {
            // It does too little to be compared: no answer.
            self.state = State::Apart;
            self.again.hold(window.at + AGAIN_MIN);
            return was_packed.then_some(Change::Spread(Reason::TurnsUnclear));
        }
        let comparing = comparing.clone();
        let pairs = comparing.pairs();
        let whole = comparing.is_whole();
        let Some(pays) = whole.then(|| verdict::verdict(&pairs, self.frugal, awake)).flatten() else {
            let next = comparing.is_packed();
            let reason = Reason::TurnsTrial { cpus: comparing.cpus };
            return (next != was_packed).then_some(if next { Change::Pack(reason) } else { Change::Spread(reason) });
        };
        Some(self.conclude(window.at, pays, &comparing, &pairs))
    }

    fn conclude(&mut self, now: Nanos, pays: bool, comparing: &Comparing, pairs: &[Compared]) -> Change {
        let rates: Vec<f64> = pairs.iter().map(|pair| if pays { pair.most } else { pair.least }).collect();
        let of = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick).unwrap_or(1.0);
        let rate_ratio = gleaner_stats::median(&rates).unwrap_or(1.0);
        let (low, high) = (of(f64::min), of(f64::max));
        let count = u32::try_from(rates.len()).unwrap_or(0);
        let reason = Reason::Turns { pays, rate_ratio, low, high, pairs: count };
        let stands = self.again.trigger(now, now, now);
        let stands = verdict::stands(pays, pairs, stands).min(AGAIN_MAX);
        self.again.hold(now + stands);
        self.last = Some(TrialRecord { at: now, pays, reason, rates });
        if let (true, Some(as_tried)) = (pays, comparing.last(true)) {
            self.state = State::Packed { as_tried: as_tried.clone(), moved: 0 };
            // Also where it is there already: whoever is told why wants to know.
            Change::Pack(reason)
        } else {
            comparing.last(false).into_iter().for_each(|apart| self.lost.remember(apart.granularity()));
            // Told also where it is apart already.
            self.state = State::Apart;
            Change::Spread(reason)
        }
    }

    /// A packed group: is it still what was tried? A burst is told at once, and not waited for here.
    fn watch(&mut self, window: &Window) -> Option<Change> {
        let State::Packed { as_tried, moved } = &mut self.state else { return None };
        let block = Block::of(window);
        // One that does little does not need more. One that switches seldom and fills its vCPU computes.
        let is_full = window.group.cpu_time.share_of(window.length) > FULL;
        let ratio = (block.tells() || is_full).then(|| block.granularity() / as_tried.granularity());
        *moved = match ratio {
            Some(ratio) if ratio > self.params.tuning.granularity_change_factor => *moved + 1,
            _ => 0,
        };
        if *moved >= self.params.tuning.judge_windows {
            self.workload_changed(window.at);
            self.again.hold(window.at);
            return Some(Change::Spread(Reason::GranularityChanged { ratio: ratio.unwrap_or(1.0) }));
        }
        let due = self.again.remaining(window.at) == Nanos::ZERO && block.tells();
        self.looked = if due { self.looked + 1 } else { 0 };
        if self.looked < WINDOWS || !evidence::is_counted(window) {
            return None;
        }
        self.looked = 0;
        let cpus = window.group.cpu_time.share_of(window.length);
        self.state = State::Trying(Comparing::begun(window, true, cpus));
        Some(Change::Spread(Reason::TurnsTrial { cpus }))
    }
}

#[cfg(test)]
mod tests;
