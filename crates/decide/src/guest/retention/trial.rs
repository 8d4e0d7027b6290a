//! Does retention pay here? It is tried: blocks of windows with and without it, in turn (ours; the paper takes it for
//! granted).
//!
//! A yielding thread shortens wake-ups, and costs: each wake-up has to displace it, and what it takes the host may take
//! from somebody else. Which of the two is more depends on the program and on the host, and the only one who can say is
//! the program. So every now and then its yielding threads sleep for a moment, and what a synchronization costs is
//! compared:
//!
//! ```text
//! cost = (CPU time of the group + its time from wake-up to running) / voluntary switches
//! ```
//!
//! Blocks follow each other as `-++-+--+` (Thue-Morse), which cancels a drift of the load, linear or quadratic. The
//! first window of a block only settles. Retention has to show a gain: a higher rate in each pair and clearly so in the
//! median, or 1.25 times the rate there and three pairs of four, or hand-overs that cost clearly less. What else lies
//! on both sides of 1 keeps no vCPU awake.
//!
//! Profile `latency`, and yielding threads that need no trial (`yielding_waits_for_trial`), stop where it costs more in
//! the median of the four pairs and in at least three of them, unless the program switches clearly
//! more often with it: then it waits less often for longer, and is faster all the same.
//!
//! An observer that sees no wake-ups run (`/proc`) leaves the rate of synchronizations: retention must raise it. Where
//! the idle task polls nothing has to settle or to be displaced, so a block is one window, and it is retained until it
//! was tried. A yielding thread may cost a third of a program's speed (relay and barrier on 16 vCPUs): it waits
//! for its trial, and has to show a gain. A trial ends after two pairs where both are clear.
//! Under profile `latency` retention stays unless it makes the program slower: a fixed rate of requests shows no more.
//! There a program that wakes too seldom to be tried is retained untried: it cannot be slowed down either.
//!
//! Hand-overs are compared at like granularity only. A program that looks for a while before it blocks hardly blocks
//! where it is woken sooner: `relay` is four times as fast on the live guest with a hundredth of the switches. Where
//! granularity grows by more than `GRANULARITY_ALIKE`, the CPU time that the program gets to use tells instead: who
//! waits less, computes more.

use crate::guest::backoff::Backoff;
use crate::guest::kinds::LostKinds;
use crate::guest::{GuestParams, TrialRecord};
use gleaner_model::{CLEARLY_FASTER, Nanos, Reason, RetainMeans, Window};
use serde::{Deserialize, Serialize};

/// Whether retention is on, block by block.
const BLOCKS: [bool; 8] = [false, true, true, false, true, false, false, true];
/// What is said of a trial holds in at least so many of its four pairs.
const PAIRS_MIN: usize = 3;
/// A window with fewer wake-ups or voluntary switches ends a trial without an answer.
pub const WAKEUPS_MIN: u64 = 50;
/// How long the answer of the first trial stands.
pub const AGAIN_MIN: Nanos = Nanos::from_secs(30);
/// It doubles up to this.
pub const AGAIN_MAX: Nanos = Nanos::from_secs(600);
/// Retention stops where a synchronization costs more by this share, in the median.
const COST_MIN: f64 = 0.01;
/// Where the idle task polls, a trial takes that away for some 30 ms. Who has run for so long loses little by it, and
/// polling untried for so long costs little where it does not pay.
const POLLS_UNTRIED_FOR: Nanos = Nanos::from_millis(500);
/// Pairs after which a trial may end, where each is clear.
const EARLY_PAIRS: usize = 2;
/// A pair clearly speaks for retention where it has so many times the rate.
const CLEARLY_BETTER: f64 = 1.15;
/// ... and clearly against it where it has so many times less: what is stopped stays so for long.
const CLEARLY_WORSE: f64 = 1.5;

/// One pair speaks for itself where it has so many times the rate.
const BEYOND_DOUBT: f64 = 2.0;

/// A quick window is this part of a usual one, and has to see so many times the least wake-ups. So is the quickest.
const QUICK_PART: f64 = 0.25;
const QUICKEST_PART: f64 = 0.1;
const QUICK_WAKEUPS: f64 = 2.0;
/// ... and so many times as many, because without retention it sees fewer.
const QUICKEST_WAKEUPS: f64 = 10.0;
/// What is too few wake-ups for a window is said of windows of this length.
const USUAL_WINDOW_S: f64 = 0.1;

/// Where retention makes computations longer by more than this factor, hand-overs say nothing.
const GRANULARITY_ALIKE: f64 = 2.0;

/// Windows in each of the eight blocks of a trial, the first of which settles. Where the idle task polls nothing
/// settles.
const BLOCK_WINDOWS: u32 = 2;
/// Windows in a row without a step or a stop before a trial begins, and where the idle task polls.
const QUIET_WINDOWS: u32 = 10;
const POLL_QUIET_WINDOWS: u32 = 3;
/// A trial stops retention unless voluntary switches per second rise by this share.
pub const GAIN_MIN: f64 = 0.03;

/// Less progress in a window says nothing.
const PROGRESS_MIN: u64 = 10;

/// One block: cost of a synchronization in nanoseconds (`None`: not seen), synchronizations per second, CPU seconds per
/// second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Block {
    cost: Option<f64>,
    rate: f64,
    cpu: f64,
    /// Whether the rate is the program's own figure, not hand-overs.
    progress: bool,
}

impl Block {
    fn granularity(&self) -> f64 {
        self.cpu / self.rate
    }

    /// Whether hand-overs of the two cannot be compared. Finer is no reason: what a wake-up costs the waker is part of
    /// it, and that is what retention saves.
    fn is_unlike(&self, without: Self) -> bool {
        let coarser = self.granularity() > GRANULARITY_ALIKE * without.granularity();
        self.progress != without.progress || coarser && !self.progress
    }
}

/// What pairs of blocks say: with retention, as multiples of without.
#[derive(Clone, Debug)]
struct Ratios {
    /// `None` where a block has not seen it.
    costs: Option<Vec<f64>>,
    rates: Vec<f64>,
    /// Whether it was CPU time that was compared in most of them.
    by_cpu_time: bool,
}

/// What a trial has done so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Running {
    /// Windows of the present block that are over.
    windows: u32,
    blocks: Vec<Block>,
}

/// What a trial through `/proc` has to show, for retention to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stays {
    IfFaster,
    UnlessSlower,
}

/// What retention does before its first trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Untried {
    Retains,
    /// Where the observer sees wake-ups.
    RetainsWhereSeen,
    /// ... and then it has to show a gain.
    Waits,
}

impl Untried {
    fn of(polls: bool, params: &GuestParams) -> Self {
        match (polls, params.tuning.yielding_waits_for_trial) {
            (true, _) => Self::Retains,
            (false, true) => Self::Waits,
            (false, false) => Self::RetainsWhereSeen,
        }
    }
}

/// How short windows should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// As usual.
    None,
    /// A quarter of that.
    Some,
    /// A twentieth.
    Most,
    /// A fiftieth.
    Utmost,
}

/// Tries retention from time to time and remembers whether it pays.
#[allow(clippy::struct_excessive_bools, reason = "each is true or false by itself")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::guest) struct Trial {
    enabled: bool,
    windows_per_block: u32,
    quiet_windows: u32,
    not_before: Nanos,
    /// Whether the last window ended after that.
    old_enough: bool,
    wakeups_min: u64,
    again: Backoff,
    lost: LostKinds,
    /// Windows in a row in which nothing else was going on.
    quiet: u32,
    /// Hand-overs per second in the last window, or as many as its progress says as much as.
    rate: Option<f64>,
    running: Option<Running>,
    /// Whether the observer sees no wake-ups.
    blind: bool,
    untried: Untried,
    stays: Stays,
    /// Whether the idle task itself polls: nothing settles, nobody is displaced.
    polls: bool,
    /// Whether it pays, as it was last tried; `None`: not tried with this workload.
    verdict: Option<bool>,
    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    cost_ratio: Option<f64>,
    /// What the last one said.
    last: Option<TrialRecord>,
}

impl Trial {
    pub(super) fn new(enabled: bool, means: RetainMeans, params: &GuestParams) -> Self {
        let polls = means.polls_in_idle_task();
        Self {
            enabled: enabled && params.retention_trials,
            windows_per_block: if polls { 1 } else { BLOCK_WINDOWS },
            quiet_windows: if polls { POLL_QUIET_WINDOWS } else { QUIET_WINDOWS },
            not_before: if polls { POLLS_UNTRIED_FOR } else { Nanos::ZERO },
            old_enough: !polls,
            wakeups_min: WAKEUPS_MIN,
            // Nothing but a change of the workload makes it start small again.
            again: Backoff::new(AGAIN_MIN, AGAIN_MAX, u64::MAX),
            lost: LostKinds::default(),
            quiet: 0,
            rate: None,
            running: None,
            blind: false,
            untried: Untried::of(polls, params),
            stays: Stays::IfFaster,
            polls,
            verdict: None,
            cost_ratio: None,
            last: None,
        }
    }

    /// Retention stays unless the program is slower for it: at a fixed rate of requests nothing else can be seen
    /// through `/proc`, however much sooner each is answered.
    pub(super) fn unless_slower(self, unless_slower: bool) -> Self {
        let stays = if unless_slower { Stays::UnlessSlower } else { Stays::IfFaster };
        Self { stays, ..self }
    }

    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    pub(in crate::guest) fn cost_ratio(&self) -> Option<f64> {
        self.cost_ratio
    }

    /// What the last trial said.
    pub(in crate::guest) fn last(&self) -> Option<&TrialRecord> {
        self.last.as_ref()
    }

    /// When the next one may begin; `None`: never.
    pub(in crate::guest) fn next(&self) -> Option<Nanos> {
        self.enabled.then(|| self.again.until())
    }

    /// Whether idle periods may be bridged now.
    pub(super) fn retains(&self) -> bool {
        self.running.as_ref().map_or(self.pays(), |running| BLOCKS[running.blocks.len()])
    }

    /// Whether it is taken to pay, as far as is known.
    pub(in crate::guest) fn pays(&self) -> bool {
        self.verdict.unwrap_or(!self.waits_for_trial())
    }

    /// Whether it may do harm, and has not been tried.
    fn waits_for_trial(&self) -> bool {
        let wakes_too_seldom = |rate: f64| rate * USUAL_WINDOW_S < self.wakeups_min as f64;
        let harmless = self.stays == Stays::UnlessSlower && self.rate.is_some_and(wakes_too_seldom);
        let waits = match self.untried {
            Untried::Retains => false,
            Untried::RetainsWhereSeen => self.blind,
            Untried::Waits => !harmless,
        };
        self.enabled && self.verdict.is_none() && waits
    }

    /// Whether a trial is going on: other decisions have to wait.
    pub(in crate::guest) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether retention has been tried, or cannot be.
    pub(in crate::guest) fn is_settled(&self) -> bool {
        !self.enabled || self.running.is_none() && self.again.until() > Nanos::ZERO
    }

    /// How short windows it goes on the sooner for. What two pairs have not told takes windows of the usual length.
    pub(in crate::guest) fn urgency(&self) -> Urgency {
        let blocks = self.running.as_ref().map_or(0, |running| running.blocks.len());
        if !self.enabled || !self.polls || !self.old_enough || self.verdict.is_some() || blocks >= 2 * EARLY_PAIRS {
            return Urgency::None;
        }
        let seen = |part: f64| {
            let least = QUICK_WAKEUPS * self.wakeups_min as f64;
            move |rate: f64| rate * USUAL_WINDOW_S * part >= least
        };
        // The idle task takes a few milliseconds to poll for long again: that is for what one pair may tell.
        if blocks < 2 && self.rate.is_some_and(seen(QUICKEST_PART / QUICKEST_WAKEUPS)) {
            Urgency::Most
        } else if self.rate.is_none_or(seen(QUICK_PART)) {
            Urgency::Some
        } else {
            Urgency::None
        }
    }

    /// The workload is another one, and has not been tried.
    pub(super) fn workload_changed(&mut self) {
        self.verdict = None;
        self.again.reset();
        self.lost.forget();
        // Said again by the next window, as a reason.
        self.blind = false;
        self.running = None;
        self.quiet = 0;
    }

    /// Takes a window. `undisturbed`: nothing else was changed in it or is being judged, no guard has stopped a
    /// yielding thread, and some vCPU is idle now and then. Says why, if retention begins or ends after it.
    pub(super) fn step(&mut self, window: &Window, undisturbed: bool) -> Option<Reason> {
        let least = |progress: u64| progress * self.wakeups_min / PROGRESS_MIN;
        let tells = window.group.progress.map_or(window.group.voluntary_switches, least);
        let seen = if self.enabled { measured(window, self.wakeups_min) } else { None };
        let before = self.retains();
        self.old_enough = window.at >= self.not_before;
        self.rate = Some(tells as f64 / window.length.as_secs_f64().max(1e-9));
        self.blind = self.enabled && window.group.wake_to_run.is_none() && window.group.progress.is_none();
        let why = if self.waits_for_trial() { Reason::RetentionUnseen } else { Reason::RetentionTrial };
        let (Some(block), true) = (seen, undisturbed) else {
            self.quiet = 0;
            // Not known yet, so not said; tried again once it is quiet.
            self.running = None;
            return (self.retains() != before).then_some(why);
        };
        let Some(running) = &mut self.running else {
            self.quiet += 1;
            let waited = || self.again.remaining(window.at) == Nanos::ZERO;
            let due = self.old_enough
                && self.quiet >= self.quiet_windows
                && (waited() || self.lost.is_another(block.granularity()));
            if due {
                self.running = Some(Running::default());
            }
            let why = if due { Reason::RetentionTrial } else { why };
            return (self.retains() != before).then_some(why);
        };
        running.windows += 1;
        if running.windows < self.windows_per_block {
            return None;
        }
        running.windows = 0;
        running.blocks.push(block);
        let blocks = running.blocks.clone();
        let Some((pays, ratios)) = self.verdict_of(&blocks) else {
            return (self.retains() != before).then_some(Reason::RetentionTrial);
        };
        self.running = None;
        if !pays {
            self.lost.remember(block.granularity());
        }
        let reason = self.conclude(window.at, pays, &ratios);
        self.last = Some(TrialRecord { at: window.at, pays, reason, rates: ratios.rates });
        Some(reason).filter(|_| self.retains() != before)
    }

    /// What the blocks so far say, once that is enough.
    fn verdict_of(&self, blocks: &[Block]) -> Option<(bool, Ratios)> {
        let ratios = Ratios::of(blocks);
        let pairs = ratios.rates.len();
        if blocks.len() == BLOCKS.len() {
            return Some((self.does_pay(&ratios), ratios));
        }
        let no_slower = self.untried != Untried::Waits || median(&ratios.rates) >= 1.0 - GAIN_MIN;
        let better = ratios.all_clearly(true, pairs) && no_slower;
        let early = match pairs {
            1 => self.polls && blocks.len() == 2 && ratios.rates[0] > BEYOND_DOUBT,
            EARLY_PAIRS => blocks.len() == 2 * EARLY_PAIRS && (better || ratios.all_clearly(false, pairs)),
            _ => false,
        };
        early.then_some((better || pairs == 1, ratios))
    }

    fn does_pay(&self, Ratios { costs, rates, .. }: &Ratios) -> bool {
        let rate = median(rates);
        let faster = rates.iter().filter(|rate| **rate > 1.0).count();
        // A range that holds 1 shows nothing, unless one pair alone is to blame.
        let shown = faster == rates.len() || rate > CLEARLY_FASTER && faster >= PAIRS_MIN;
        let gains = rate > 1.0 + GAIN_MIN && shown;
        let slower = rates.iter().filter(|rate| **rate < 1.0).count();
        let loses = rate < 1.0 - GAIN_MIN && slower >= PAIRS_MIN;
        let Some(costs) = costs else {
            return if self.stays == Stays::UnlessSlower { !loses } else { gains };
        };
        let (cost, dearer) = (median(costs), costs.iter().filter(|cost| **cost > 1.0).count());
        let cheaper = costs.iter().filter(|cost| **cost < 1.0).count();
        // What was asked to retain where nothing speaks against it, does.
        if self.untried != Untried::RetainsWhereSeen && self.stays == Stays::IfFaster {
            let saves = cost < 1.0 - GAIN_MIN && cheaper >= PAIRS_MIN;
            return gains || saves && !loses;
        }
        gains || !(cost > 1.0 + COST_MIN && dearer >= PAIRS_MIN)
    }

    fn conclude(&mut self, now: Nanos, pays: bool, ratios: &Ratios) -> Reason {
        self.quiet = 0;
        self.again.trigger(now, now, now);
        self.verdict = Some(pays);
        if ratios.by_cpu_time {
            return Reason::RetentionAndCpuTime { pays, cpu_ratio: median(&ratios.rates) };
        }
        let Some(costs) = &ratios.costs else {
            let rate_ratio = median(&ratios.rates);
            return match pays {
                true if self.stays == Stays::UnlessSlower && rate_ratio <= 1.0 + GAIN_MIN => {
                    Reason::RetentionNoSlower { rate_ratio }
                }
                true => Reason::RetentionFaster { rate_ratio },
                false => Reason::RetentionNoFaster { rate_ratio },
            };
        };
        let cost_ratio = median(costs);
        self.cost_ratio = Some(cost_ratio);
        if pays { Reason::RetentionPays { cost_ratio } } else { Reason::RetentionCosts { cost_ratio } }
    }
}

impl Ratios {
    fn of(blocks: &[Block]) -> Self {
        let pairs = BLOCKS.chunks(2).zip(blocks.chunks_exact(2));
        let pairs = pairs.map(|(on, pair)| if on[0] { (pair[0], pair[1]) } else { (pair[1], pair[0]) });
        let unlike = |on: Block, off: Block| on.is_unlike(off);
        let cost = |(on, off): (Block, Block)| {
            if unlike(on, off) { Some(off.cpu / on.cpu) } else { Some(on.cost? / off.cost?) }
        };
        let rate = |(on, off): (Block, Block)| if unlike(on, off) { on.cpu / off.cpu } else { on.rate / off.rate };
        let by_cpu_time = pairs.clone().filter(|(on, off)| unlike(*on, *off)).count() * 2 > blocks.len() / 2;
        Self { costs: pairs.clone().map(cost).collect(), rates: pairs.map(rate).collect(), by_cpu_time }
    }

    /// Whether each of the pairs clearly speaks for retention (`better`), or clearly against it.
    fn all_clearly(&self, better: bool, pairs: usize) -> bool {
        let clear = |ratio: f64| if better { ratio > CLEARLY_BETTER } else { ratio < 1.0 / CLEARLY_WORSE };
        let by_rate = self.rates.iter().all(|rate| clear(*rate));
        let by_cost = self.costs.as_ref().map(|costs| costs.iter().all(|cost| clear(1.0 / cost)));
        pairs > 0 && if better { by_rate || by_cost == Some(true) } else { by_rate && by_cost != Some(false) }
    }
}

/// What a window says, if it says enough.
fn measured(window: &Window, wakeups_min: u64) -> Option<Block> {
    if let Some(progress) = window.group.progress {
        let (rate, cpu) =
            (progress as f64 / window.length.as_secs_f64(), window.group.cpu_time.share_of(window.length));
        let tells = progress >= PROGRESS_MIN && window.length > Nanos::ZERO;
        return tells.then_some(Block { cost: None, rate, cpu, progress: true });
    }
    let switches = window.group.voluntary_switches;
    if switches < wakeups_min || window.length == Nanos::ZERO {
        return None;
    }
    let cpu_time = window.group.cpu_time;
    let (rate, cpu) = (switches as f64 / window.length.as_secs_f64(), cpu_time.share_of(window.length));
    let delay = window.group.wake_to_run.as_ref();
    if cpu_time == Nanos::ZERO || delay.is_some_and(|delay| delay.count() < wakeups_min) {
        return None;
    }
    let cost = delay.map(|delay| (cpu_time.as_f64() + delay.sum().as_f64()) / switches as f64);
    Some(Block { cost, rate, cpu, progress: false })
}

/// The median of ratios; nothing differs by nothing.
fn median(ratios: &[f64]) -> f64 {
    gleaner_stats::median(ratios).unwrap_or(1.0)
}

#[cfg(test)]
mod tests;
