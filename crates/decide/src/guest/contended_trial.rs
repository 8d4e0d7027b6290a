//! Does retention pay although the host takes time? Tried where the contention guard has stopped it (ours).
//!
//! The guard asks for stolen time alone. Where the vCPU that has work starves while others spin, that is right: such programs became
//! thirty times slower. But one that hardly computes has no such vCPU, and it is just on a contended host that waking a halted vCPU
//! takes longest. So the guard is the immediate reaction, and then the program is asked:
//!
//! ```text
//!              a guard held, ten quiet windows, hold-off over
//!   WAITING ---------------------------------------------------> TRYING   - + + - + - - +
//!   the guards  ^  ^                                              |  |    nothing is retained in -, the guards are
//!   decide      |  +----- first pair clearly worse, or no gain ---+  |    suspended in +
//!               |                                                    | cheaper by a tenth, and no slower
//!               +--- another program, more steal, worse than  --- PAYING
//!                    without: or to a new trial                   the guards are suspended
//! ```
//!
//! Blocks, pairs and the cost of a synchronization are those of the ordinary [`trial`](super::trial). CPU time excludes steal where the
//! hypervisor reports it, so what spinning does to a vCPU that computes shows in the *rate* of voluntary switches; a program whose rate is fixed from outside
//! gains in the *cost*. Both are asked for: less cost by `contended_cost_max`, and no lower rate (`contended_switches_min`).
//!
//! What is risked is bounded: at most half of a trial is spun through, a quarter of that where the first pair is clearly worse, one window where
//! the program all but stops; and a trial that has begun to spin, however it ends, is followed by none for `trial_again_min_ms` at least. Needs an observer that sees wake-ups run.

use super::GuestParams;
use super::backoff::Backoff;
use super::measure::Spread;
use super::trial::{BLOCKS, Block, TRIAL_PAIRS, measured, pairs};
use gleaner_model::{Distribution, Nanos, Reason, Window};

/// Who decides whether idle periods are bridged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// Each vCPU's guard, and the yielding thread's own.
    Guards,
    /// They are bridged; no guard is asked.
    Suspended,
    /// They are not bridged anywhere.
    Off,
}

/// What the policy knows of a window beside its contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// A guard holds, or has held not long ago.
    pub(super) contended: bool,
    /// Nothing else was changed in the window, nor is anything being judged or tried.
    pub(super) undisturbed: bool,
    /// Stolen share of the active vCPUs' time, 0 to 1.
    pub(super) steal_share: f64,
}

/// One block of a trial.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: Block,
    switches: u64,
    steal_share: f64,
}

/// What a trial has done so far.
#[derive(Clone, Debug, Default)]
struct Running {
    /// Windows of the present block that are over.
    windows: u32,
    parts: Vec<Part>,
}

/// What a trial that paid has found, and what has come since.
#[derive(Clone, Debug)]
struct Found {
    cost_without: f64,
    /// Voluntary switches per second with retention.
    rate: f64,
    /// With retention.
    steal_share: f64,
    since: Tally,
}

/// Sums over the windows since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    windows: u32,
    cost_ns: f64,
    switches: f64,
    seconds: f64,
    steal_shares: f64,
}

#[derive(Clone, Debug)]
enum State {
    /// For so many quiet windows in a row.
    Waiting {
        quiet: u32,
    },
    Trying(Running),
    Paying(Found),
}

const WAITING: State = State::Waiting { quiet: 0 };

/// Tries retention under contention, and suspends the guards where it pays.
#[derive(Clone, Debug)]
pub(super) struct ContendedTrial {
    enabled: bool,
    params: GuestParams,
    again: Backoff,
    state: State,
    /// Cost with retention over that without, when that was last tried to the end.
    cost_ratio: Option<f64>,
}

impl ContendedTrial {
    pub(super) fn new(enabled: bool, params: &GuestParams) -> Self {
        let ms = Nanos::from_millis;
        Self {
            enabled: enabled && params.contended_trials,
            again: Backoff::new(ms(params.trial_again_min_ms), ms(params.trial_again_max_ms), u64::MAX),
            params: params.clone(),
            state: WAITING,
            cost_ratio: None,
        }
    }

    /// Who decides now.
    pub(super) fn ruling(&self) -> Ruling {
        match &self.state {
            State::Waiting { .. } => Ruling::Guards,
            State::Trying(running) if BLOCKS[running.parts.len()] => Ruling::Suspended,
            State::Trying(_) => Ruling::Off,
            State::Paying(_) => Ruling::Suspended,
        }
    }

    /// Whether a trial is going on: other decisions have to wait.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Trying(_))
    }

    /// Whether retention was found to pay, and the guards are suspended for that.
    pub(super) fn pays(&self) -> bool {
        matches!(self.state, State::Paying(_))
    }

    /// Whether there has been no trial yet.
    pub(super) fn is_untried(&self) -> bool {
        self.enabled && self.again.until() == Nanos::ZERO
    }

    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried under contention.
    pub(super) fn cost_ratio(&self) -> Option<f64> {
        self.cost_ratio
    }

    /// The workload is another one: the guards decide until it is tried.
    pub(super) fn workload_changed(&mut self, now: Nanos) {
        self.break_off(now);
        self.again.shorten();
    }

    /// Takes a window. Says why, if another one decides after it, or if retention was found to pay.
    pub(super) fn step(&mut self, window: &Window, around: Circumstances) -> Option<Reason> {
        if !self.enabled {
            return None;
        }
        let before = self.ruling();
        let seen = measured(window, self.params.trial_wakeups_min).map(|block| Part {
            block,
            switches: window.group.voluntary_switches,
            steal_share: around.steal_share,
        });
        let reason = match std::mem::replace(&mut self.state, WAITING) {
            State::Waiting { quiet } => self.wait(window.at, quiet, seen.is_some(), around),
            State::Trying(running) => self.go_on(window, running, seen, around),
            State::Paying(found) => self.watch(window, found, around),
        };
        reason.filter(|reason| self.ruling() != before || matches!(reason, Reason::PaysContended { .. }))
    }

    fn wait(&mut self, now: Nanos, quiet: u32, seen: bool, around: Circumstances) -> Option<Reason> {
        let quiet = if around.contended && around.undisturbed && seen { quiet.saturating_add(1) } else { 0 };
        self.state = State::Waiting { quiet };
        let due = quiet >= self.params.trial_quiet_windows && self.is_due(now);
        due.then(|| self.begin())
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.again.remaining(now) == Nanos::ZERO
    }

    fn begin(&mut self) -> Reason {
        self.state = State::Trying(Running::default());
        Reason::ContendedTrial
    }

    /// One more window of a trial.
    fn go_on(
        &mut self,
        window: &Window,
        mut running: Running,
        seen: Option<Part>,
        around: Circumstances,
    ) -> Option<Reason> {
        let now = window.at;
        if let Some(switch_ratio) = self.slowed(window, &running.parts).filter(|_| around.undisturbed) {
            self.again.trigger(now, now, now);
            return Some(Reason::SlowedContended { switch_ratio });
        }
        let (Some(part), true) = (seen, around.undisturbed) else {
            self.state = State::Trying(running);
            self.break_off(now);
            return Some(Reason::ContendedTrial);
        };
        running.windows += 1;
        if running.windows >= self.params.trial_block_windows {
            running.windows = 0;
            running.parts.push(part);
        }
        if running.parts.len() < BLOCKS.len() && !self.is_hopeless(&running.parts) {
            self.state = State::Trying(running);
            return Some(Reason::ContendedTrial);
        }
        self.again.trigger(now, now, now);
        Some(self.conclude(&running.parts))
    }

    /// Voluntary switches per second over those without retention, where they tell of a disaster: half of what ends a trial after the first pair. It
    /// shows in a single window, the one that settles included, and in one with too few switches to be measured.
    fn slowed(&self, window: &Window, parts: &[Part]) -> Option<f64> {
        let (without, _) = parts.iter().zip(BLOCKS).rfind(|(_, on)| !on).filter(|_| BLOCKS[parts.len()])?;
        let rate = window.group.voluntary_switches as f64 / window.length.as_secs_f64();
        Some(rate / without.block.rate).filter(|ratio| *ratio < self.params.contended_abort_switches / 2.0)
    }

    /// Ends a trial without an answer. If it has spun, the next one has to wait all the same: it might be the harm that ended this one.
    fn break_off(&mut self, now: Nanos) {
        if let State::Trying(running) = std::mem::replace(&mut self.state, WAITING)
            && !running.parts.is_empty()
        {
            self.again.trigger(now, now, now);
        }
    }

    /// Whether the first pair shows clear harm, or too few pairs are left for a gain. Later pairs are not asked for harm by themselves: where
    /// the host takes much, one of four looks so by chance.
    fn is_hopeless(&self, parts: &[Part]) -> bool {
        let harmed = pairs(parts).next().is_some_and(|(on, off)| {
            on.block.cost > self.params.contended_abort_cost * off.block.cost
                || on.block.rate < self.params.contended_abort_switches * off.block.rate
        });
        let left = TRIAL_PAIRS - pairs(parts).count();
        harmed || self.cheaper(parts) + left < self.params.trial_pairs_min as usize
    }

    /// In how many pairs a synchronization was clearly cheaper with retention.
    fn cheaper(&self, parts: &[Part]) -> usize {
        let max = self.params.contended_cost_max;
        pairs(parts).filter(|(on, off)| on.block.cost < max * off.block.cost).count()
    }

    fn conclude(&mut self, parts: &[Part]) -> Reason {
        let ratio = |of: fn(&Part) -> f64| Spread::of(pairs(parts).map(|(on, off)| of(&on) / of(&off))).median;
        let (cost_ratio, switch_ratio) = (ratio(|part| part.block.cost), ratio(|part| part.block.rate));
        self.cost_ratio = Some(cost_ratio);
        let cheaper =
            cost_ratio < self.params.contended_cost_max && self.cheaper(parts) >= self.params.trial_pairs_min as usize;
        let no_slower = switch_ratio >= self.params.contended_switches_min - counting_noise(parts);
        if parts.len() < BLOCKS.len() || !cheaper || !no_slower {
            return Reason::CostsContended { cost_ratio, switch_ratio };
        }
        let found = Found::of(parts);
        let steal_share = found.steal_share;
        self.state = State::Paying(found);
        Reason::PaysContended { cost_ratio, switch_ratio, steal_share }
    }

    /// One more window in which the guards are suspended.
    fn watch(&mut self, window: &Window, mut found: Found, around: Circumstances) -> Option<Reason> {
        let Some(delay) = &window.group.wake_to_run else { return Some(Reason::ContendedOver) };
        found.since.add(window, delay, around.steal_share);
        if self.is_due(window.at) && around.undisturbed {
            return Some(self.try_again_or_end(around));
        }
        if found.since.windows >= self.params.contended_watch_windows {
            let since = std::mem::take(&mut found.since);
            if !self.still_holds(&found, &since) {
                self.again.shorten();
                let due = self.is_due(window.at) && around.undisturbed;
                return Some(if due { self.try_again_or_end(around) } else { Reason::ContendedOver });
            }
        }
        self.state = State::Paying(found);
        None
    }

    fn try_again_or_end(&mut self, around: Circumstances) -> Reason {
        if around.contended { self.begin() } else { Reason::ContendedOver }
    }

    /// Whether program and host are still what they were in the trial.
    fn still_holds(&self, found: &Found, since: &Tally) -> bool {
        let factor = self.params.granularity_change_factor;
        let rate = since.switches / since.seconds.max(1e-9);
        let same_rate = rate * factor >= found.rate && rate <= found.rate * factor;
        let no_worse = since.cost_ns <= self.params.contended_abort_cost * found.cost_without * since.switches;
        let steal_share = since.steal_shares / f64::from(since.windows.max(1));
        same_rate && no_worse && steal_share <= found.steal_share + self.params.contended_steal_rise
    }
}

impl Found {
    fn of(parts: &[Part]) -> Self {
        let median = |with: bool, of: fn(&Part) -> f64| {
            let those = parts.iter().zip(BLOCKS).filter(|(_, on)| *on == with);
            Spread::of(those.map(|(part, _)| of(part))).median
        };
        Self {
            cost_without: median(false, |part| part.block.cost),
            rate: median(true, |part| part.block.rate),
            steal_share: median(true, |part| part.steal_share),
            since: Tally::default(),
        }
    }
}

impl Tally {
    fn add(&mut self, window: &Window, delay: &Distribution, steal_share: f64) {
        self.windows += 1;
        self.cost_ns += window.group.cpu_time.as_f64() + delay.sum().as_f64();
        self.switches += window.group.voluntary_switches as f64;
        self.seconds += window.length.as_secs_f64();
        self.steal_shares += steal_share;
    }
}

/// The standard deviation of a ratio of two counts that come by chance, each of half of the switches that were seen: a rate of a
/// hundred a window says nothing about 3 %.
fn counting_noise(parts: &[Part]) -> f64 {
    let switches: u64 = parts.iter().map(|part| part.switches).sum();
    (4.0 / switches.max(1) as f64).sqrt()
}
