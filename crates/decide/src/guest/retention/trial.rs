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
//! first window of a block only settles. Retention stops where it costs more in the median of the four pairs and in at
//! least `trial_pairs_min` (three) of them, unless the program switches clearly more often with it: then it waits less
//! often for longer, and is faster all the same.
//!
//! An observer that sees no wake-ups run (`/proc`) leaves the rate of synchronizations: retention must raise it. Where
//! the idle task polls nothing has to settle or to be displaced, so a block is one window, and it is retained until it
//! was tried. A yielding thread may cost half of a program's speed (experiments/programs, `policies`: relay, alone):
//! through `/proc` it waits for its trial. A trial ends after two pairs where both are clear.
//! Under profile `latency` retention stays unless it makes the program slower: a fixed rate of requests shows no more.
//!
//! Hand-overs are compared at like granularity only. A program that looks for a while before it blocks hardly blocks
//! where it is woken sooner: `relay` is four times as fast on the live guest with a hundredth of the switches. Where
//! granularity grows by more than `GRANULARITY_ALIKE`, the CPU time that the program gets to use tells instead: who
//! waits less, computes more.

use crate::guest::backoff::Backoff;
use crate::guest::{GuestParams, TrialRecord};
use gleaner_model::{Nanos, Reason, RetainMeans, Window};

/// Whether retention is on, block by block.
const BLOCKS: [bool; 8] = [false, true, true, false, true, false, false, true];
/// Each with one block with and one without.
pub(in crate::guest) const TRIAL_PAIRS: usize = BLOCKS.len() / 2;

/// Pairs after which a trial may end, where each is clear.
const EARLY_PAIRS: usize = 2;
/// A pair clearly speaks for retention where it has so many times the rate.
const CLEARLY_BETTER: f64 = 1.15;
/// ... and clearly against it where it has so many times less: what is stopped stays so for long.
const CLEARLY_WORSE: f64 = 1.5;

/// A quick window is this part of a usual one, and has to see so many times the least wake-ups.
const QUICK_PART: f64 = 0.25;
const QUICK_WAKEUPS: f64 = 2.0;
/// What is too few wake-ups for a window is said of windows of this length.
const USUAL_WINDOW_S: f64 = 0.1;

/// Where retention makes computations longer by more than this factor, hand-overs say nothing.
const GRANULARITY_ALIKE: f64 = 2.0;

/// Less progress in a window says nothing.
const PROGRESS_MIN: u64 = 10;

/// One block: cost of a synchronization in nanoseconds (`None`: not seen), synchronizations per second, CPU seconds per
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Debug, Default)]
struct Running {
    /// Windows of the present block that are over.
    windows: u32,
    blocks: Vec<Block>,
}

/// What a trial through `/proc` has to show, for retention to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    IfFaster,
    UnlessSlower,
}

/// Tries retention from time to time and remembers whether it pays.
#[derive(Clone, Debug)]
pub(in crate::guest) struct Trial {
    enabled: bool,
    windows_per_block: u32,
    quiet_windows: u32,
    wakeups_min: u64,
    pairs_min: usize,
    margin: f64,
    gain_min: f64,
    again: Backoff,
    /// Windows in a row in which nothing else was going on.
    quiet: u32,
    /// Hand-overs per second in the last window, or as many as its progress says as much as.
    rate: Option<f64>,
    running: Option<Running>,
    /// Whether the observer sees no wake-ups.
    blind: bool,
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
        let ms = Nanos::from_millis;
        let polls = means.polls_in_idle_task();
        Self {
            enabled: enabled && params.retention_trials,
            windows_per_block: if polls { 1 } else { params.trial_block_windows },
            quiet_windows: if polls { params.poll_trial_quiet_windows } else { params.trial_quiet_windows },
            wakeups_min: params.trial_wakeups_min,
            pairs_min: params.trial_pairs_min as usize,
            margin: params.trial_cost_min,
            gain_min: params.trial_gain_min,
            // Nothing but a change of the workload makes it start small again.
            again: Backoff::new(ms(params.trial_again_min_ms), ms(params.trial_again_max_ms), u64::MAX),
            quiet: 0,
            rate: None,
            running: None,
            blind: false,
            stays: Stays::IfFaster,
            polls,
            verdict: None,
            cost_ratio: None,
            last: None,
        }
    }

    /// Retention stays unless the program is slower for it: at a fixed rate of requests nothing else can be seen through
    /// `/proc`, however much sooner each is answered.
    pub(super) fn unless_slower(self, unless_slower: bool) -> Self {
        let stays = if unless_slower { Stays::UnlessSlower } else { Stays::IfFaster };
        Self { stays, ..self }
    }

    /// Goes on with other parameters.
    pub(super) fn set_params(&mut self, enabled: bool, means: RetainMeans, params: &GuestParams) {
        let new = Self::new(enabled, means, params);
        let ms = Nanos::from_millis;
        self.again.set_limits(ms(params.trial_again_min_ms), ms(params.trial_again_max_ms));
        *self = Self {
            again: self.again.clone(),
            quiet: self.quiet,
            rate: self.rate,
            running: self.running.take().filter(|_| new.enabled),
            blind: self.blind,
            stays: self.stays,
            verdict: self.verdict,
            cost_ratio: self.cost_ratio,
            last: self.last.take(),
            ..new
        };
    }

    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    pub(in crate::guest) fn cost_ratio(&self) -> Option<f64> {
        self.cost_ratio
    }

    /// What the last trial said.
    pub(in crate::guest) fn last(&self) -> Option<&TrialRecord> {
        self.last.as_ref()
    }

    /// Whether idle periods may be bridged now.
    pub(super) fn retains(&self) -> bool {
        self.running.as_ref().map_or(self.pays(), |running| BLOCKS[running.blocks.len()])
    }

    /// Whether it is taken to pay, as far as is known.
    pub(in crate::guest) fn pays(&self) -> bool {
        self.verdict.unwrap_or(self.polls || !self.blind)
    }

    /// Whether a trial is going on: other decisions have to wait.
    pub(in crate::guest) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether retention has been tried, or cannot be.
    pub(in crate::guest) fn is_settled(&self) -> bool {
        !self.enabled || self.running.is_none() && self.again.until() > Nanos::ZERO
    }

    /// Whether it goes on the sooner for quick windows. What two pairs have not told takes windows of the usual length.
    pub(in crate::guest) fn wants_quick_windows(&self) -> bool {
        let early = self.running.as_ref().is_none_or(|running| running.blocks.len() < 2 * EARLY_PAIRS);
        let seen = |rate: f64| rate * USUAL_WINDOW_S * QUICK_PART >= QUICK_WAKEUPS * self.wakeups_min as f64;
        self.enabled && self.polls && self.verdict.is_none() && early && self.rate.is_none_or(seen)
    }

    /// The workload is another one: retention is taken to pay until it is tried again, if it can be.
    pub(super) fn workload_changed(&mut self) {
        self.verdict = None;
        self.again.reset();
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
        self.rate = Some(tells as f64 / window.length.as_secs_f64().max(1e-9));
        let seen = if self.enabled { measured(window, self.wakeups_min) } else { None };
        let before = self.retains();
        self.blind = self.enabled && window.group.wake_to_run.is_none() && window.group.progress.is_none();
        let why = if self.blind && !self.polls { Reason::RetentionUnseen } else { Reason::RetentionTrial };
        let (Some(block), true) = (seen, undisturbed) else {
            self.quiet = 0;
            // Not known yet, so not said; tried again once it is quiet.
            self.running = None;
            return (self.retains() != before).then_some(why);
        };
        let Some(running) = &mut self.running else {
            self.quiet += 1;
            let due = self.quiet >= self.quiet_windows && self.again.remaining(window.at) == Nanos::ZERO;
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
        let early =
            blocks.len() == 2 * EARLY_PAIRS && (ratios.all_clearly(true, pairs) || ratios.all_clearly(false, pairs));
        early.then(|| (ratios.all_clearly(true, pairs), ratios))
    }

    fn does_pay(&self, Ratios { costs, rates, .. }: &Ratios) -> bool {
        let rate = median(rates);
        let faster = rates.iter().filter(|rate| **rate > 1.0).count();
        let gains = rate > 1.0 + self.gain_min;
        let slower = rates.iter().filter(|rate| **rate < 1.0).count();
        let loses = rate < 1.0 - self.gain_min && slower >= self.pairs_min;
        let Some(costs) = costs else {
            return if self.stays == Stays::UnlessSlower { !loses } else { gains && faster >= self.pairs_min };
        };
        let (cost, dearer) = (median(costs), costs.iter().filter(|cost| **cost > 1.0).count());
        gains || !(cost > 1.0 + self.margin && dearer >= self.pairs_min)
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
                true if self.stays == Stays::UnlessSlower && rate_ratio <= 1.0 + self.gain_min => {
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

fn median(ratios: &[f64]) -> f64 {
    let mut ratios = ratios.to_vec();
    ratios.sort_unstable_by(f64::total_cmp);
    let half = ratios.len() / 2;
    match ratios.len() {
        0 => 1.0,
        odd if odd % 2 == 1 => ratios[half],
        _ => f64::midpoint(ratios[half - 1], ratios[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{Distribution, GroupWindow, Source};

    /// A program that synchronizes 10,000 times a second, and what each costs: with retention, without.
    struct Program {
        cost_us: [f64; 2],
        rate: [u64; 2],
        /// By how much the cost grows from window to window.
        drift: f64,
    }

    fn window(at_ms: u64, cost_us: f64, rate: u64) -> Window {
        let switches = rate / 10;
        let mut delay = Distribution::new();
        // Half of the cost is waiting.
        (0..switches).for_each(|_| delay.record(Nanos::from_f64(cost_us * 500.0)));
        let cpu_time = Nanos::from_f64(cost_us * 1e3 * switches as f64) - delay.sum();
        Window {
            at: Nanos::from_millis(at_ms),
            length: Nanos::from_millis(100),
            source: Source::Bpf,
            vcpus: Vec::new(),
            idle_entries: None,
            halts: None,
            group: GroupWindow {
                cpu_time,
                voluntary_switches: switches,
                wake_to_run: Some(delay),
                ..GroupWindow::default()
            },
        }
    }

    /// Runs the program for so many windows; the reasons given, and whether it retained after each window.
    fn run(trial: &mut Trial, program: &Program, windows: u64) -> (Vec<Reason>, Vec<bool>) {
        let mut reasons = Vec::new();
        let mut retained = Vec::new();
        for n in 0..windows {
            let off = usize::from(!trial.retains());
            let cost = program.cost_us[off] * (1.0 + program.drift * n as f64);
            reasons.extend(trial.step(&window((n + 1) * 100, cost, program.rate[off]), true));
            retained.push(trial.retains());
        }
        (reasons, retained)
    }

    fn trial() -> Trial {
        Trial::new(true, RetainMeans::Yielding, &GuestParams::default())
    }

    #[test]
    fn what_costs_more_than_it_saves_is_stopped_and_what_saves_is_kept() {
        for (name, cost_us, rate, drift, pays) in [
            ("wake-ups cheaper", [10.0, 15.0], [10_000, 10_000], 0.0, true),
            ("dearer", [16.0, 15.0], [10_000, 10_000], 0.0, false),
            ("the same", [15.0, 15.0], [10_000, 10_000], 0.0, true),
            ("dearer by less than the least", [15.1, 15.0], [10_000, 10_000], 0.0, true),
            ("dearer, but clearly faster", [16.0, 15.0], [10_400, 10_000], 0.0, true),
            ("the same while the load drifts", [15.0, 15.0], [10_000, 10_000], 0.02, true),
            ("dearer while the load drifts", [15.9, 15.0], [10_000, 10_000], 0.01, false),
            ("cheaper while the load drifts", [14.0, 15.0], [10_000, 10_000], 0.02, true),
        ] {
            let mut trial = trial();
            let (reasons, _) = run(&mut trial, &Program { cost_us, rate, drift }, 40);
            assert_eq!((trial.pays(), trial.retains(), trial.is_running()), (pays, pays, false), "{name}: {reasons:?}");
            assert!(trial.is_settled(), "{name}");
        }
    }

    #[test]
    fn a_trial_is_short_and_comes_back_ever_less_often() {
        let mut trial = trial();
        let dear = Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 };
        let (_, retained) = run(&mut trial, &dear, 6000);
        // Ten minutes: the ten windows before the first trial, and half of each trial of 16 windows, at 0, 30, 90, 210
        // and 450 s.
        assert_eq!(retained.iter().filter(|retained| **retained).count(), 9 + 5 * 8);
        let cheap = Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 };
        let (_, retained) = run(&mut Trial::new(true, RetainMeans::Yielding, &GuestParams::default()), &cheap, 6000);
        assert_eq!(retained.iter().filter(|retained| !**retained).count(), 5 * 8);
    }

    #[test]
    fn nothing_is_tried_in_the_dark_or_in_trouble() {
        let dear = Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 };
        let blind = |mut window: Window| {
            window.group.wake_to_run = None;
            window
        };
        let mut trial = trial();
        for n in 1..100 {
            assert_eq!(trial.step(&window(n * 100, 15.0, 400), true), None, "40 wake-ups a window");
            assert_eq!(trial.step(&window(n * 100, 15.0, 10_000), n % 9 > 0), None, "a step now and then");
        }
        assert!(trial.retains() && !trial.is_settled());
        // In the middle of a trial: it ends without an answer, and retention is as before.
        run(&mut trial, &dear, 11);
        assert!(trial.is_running() && !trial.retains());
        assert_eq!(trial.step(&window(1200, 15.0, 10_000), false), Some(Reason::RetentionTrial));
        assert!(trial.retains() && !trial.is_running() && !trial.is_settled());
        // Who sees no wake-ups does not retain what has not been tried, and keeps to what has.
        let mut unseen = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
        assert_eq!(unseen.step(&blind(window(100, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
        assert!(!unseen.retains() && !unseen.pays());
        let mut tried = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
        run(&mut tried, &Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 }, 40);
        assert_eq!(tried.step(&blind(window(4100, 15.0, 10_000)), true), None);
        assert!(tried.retains());
        tried.workload_changed();
        assert_eq!(tried.step(&blind(window(4200, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
        // The user does not want to be asked.
        let params = GuestParams { retention_trials: false, ..GuestParams::default() };
        for mut trial in [
            Trial::new(true, RetainMeans::Yielding, &params),
            Trial::new(false, RetainMeans::Yielding, &GuestParams::default()),
        ] {
            assert_eq!(run(&mut trial, &dear, 100).0, []);
            assert!(trial.retains() && trial.is_settled());
        }
    }

    #[test]
    fn another_workload_is_another_trial() {
        let mut trial = trial();
        run(&mut trial, &Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 }, 40);
        assert!(!trial.retains());
        trial.workload_changed();
        assert!(trial.retains());
    }

    /// A window seen through `/proc`: CPU use in vCPUs, and synchronizations per second.
    fn unseen(at_ms: u64, cpu: f64, rate: u64) -> Window {
        let length = Nanos::from_millis(100);
        let cpu_time = Nanos::from_f64(cpu * length.as_f64());
        let group = GroupWindow { cpu_time, voluntary_switches: rate / 10, ..GroupWindow::default() };
        Window { group, ..window(at_ms, 15.0, 10_000) }
    }

    #[test]
    fn polling_is_kept_by_what_the_program_gets_done() {
        // CPU use and rate: with retention, without.
        for (name, with, without, pays) in [
            ("faster", (0.9, 14_000), (0.9, 10_000), true),
            ("no faster", (0.9, 10_100), (0.9, 10_000), false),
            ("slower", (0.9, 8_000), (0.9, 10_000), false),
            ("relay on the live guest: looks before it blocks, and hardly blocks", (1.9, 600), (0.9, 60_000), true),
            ("hardly blocks, and computes less", (0.5, 600), (0.9, 60_000), false),
        ] {
            let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
            assert!(trial.retains(), "{name}");
            for n in 1..40 {
                let (cpu, rate) = if trial.retains() { with } else { without };
                trial.step(&unseen(n * 100, cpu, rate), true);
            }
            assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}");
        }
    }

    #[test]
    fn where_latency_counts_polling_stays_unless_the_program_is_slower() {
        // Rates: with retention, without.
        for (name, with, without, pays) in [
            ("a fixed rate of requests", 10_000, 10_000, true),
            ("a little less by chance", 9_950, 10_000, true),
            ("faster", 14_000, 10_000, true),
            ("slower", 9_000, 10_000, false),
            ("much slower", 6_000, 10_000, false),
        ] {
            for means in [RetainMeans::Haltpoll, RetainMeans::Yielding] {
                let mut trial = Trial::new(true, means, &GuestParams::default()).unless_slower(true);
                for n in 1..60 {
                    let rate = if trial.retains() { with } else { without };
                    trial.step(&unseen(n * 100, 0.9, rate), true);
                }
                assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}, {means}");
            }
        }
    }

    #[test]
    fn a_program_that_counts_what_it_gets_done_is_judged_by_that_alone() {
        // Hand-overs say the opposite. Progress a window: with retention, without.
        for (name, with, without, pays) in
            [("faster", 150, 100, true), ("slower", 100, 150, false), ("no faster", 100, 100, false)]
        {
            let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
            for n in 1..60 {
                let retains = trial.retains();
                let mut window = unseen(n * 100, 0.9, if retains == pays { 10_000 } else { 40_000 });
                window.group.progress = Some(if retains { with } else { without });
                trial.step(&window, true);
            }
            assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}");
        }
    }

    #[test]
    fn too_little_progress_ends_a_trial_without_an_answer() {
        let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
        for n in 1..100 {
            let mut window = unseen(n * 100, 0.9, if trial.retains() { 10_000 } else { 40_000 });
            window.group.progress = Some(3);
            trial.step(&window, true);
        }
        assert!(!trial.is_settled() && trial.retains());
    }

    #[test]
    fn a_clear_trial_of_polling_costs_the_program_two_windows() {
        let mut trial = Trial::new(true, RetainMeans::PmQos, &GuestParams::default());
        let off = (1..100).filter(|n| {
            let retained = trial.retains();
            trial.step(&unseen(n * 100, 0.9, if retained { 30_000 } else { 10_000 }), true);
            !retained
        });
        assert_eq!(off.count(), 2);
    }

    #[test]
    fn a_yielding_thread_waits_for_its_trial_where_nobody_sees_wakeups() {
        let mut trial = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
        let mut retained = Vec::new();
        for n in 1..60 {
            trial.step(&unseen(n * 100, 0.9, if trial.retains() { 14_000 } else { 10_000 }), true);
            retained.push(trial.retains());
        }
        assert!(retained[..9].iter().all(|retained| !retained), "not before it was tried");
        assert!(trial.pays() && trial.retains());
    }
}
