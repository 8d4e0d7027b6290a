//! Does retention pay here? It is tried: blocks of windows with and without it, in turn (ours; the paper takes it for granted).
//!
//! A yielding thread shortens wake-ups, and costs: each wake-up has to displace it, and what it takes the host may take from somebody
//! else. Which of the two is more depends on the program and on the host, and the only one who can say is the program. So every now and then its
//! yielding threads sleep for a moment, and what a synchronization costs is compared:
//!
//! ```text
//! cost = (CPU time of the group + its time from wake-up to running) / voluntary switches
//! ```
//!
//! Blocks follow each other as `-++-+--+` (Thue-Morse), which cancels a drift of the load, linear or quadratic. The first window of a block only
//! settles. Retention stops where it costs more in the median of the four pairs and in at least `trial_pairs_min` (three) of them, unless the
//! program switches clearly more often with it: then it waits less often for longer, and is faster all the same. Needs an observer that sees
//! wake-ups run; without one, what has not been tried is not done, for it may cost as much as half of a program's speed
//! (experiments/programs, `policies`: relay, alone).

use super::GuestParams;
use super::backoff::Backoff;
use gleaner_model::{Distribution, Nanos, Reason, Window};

/// Whether retention is on, block by block.
const BLOCKS: [bool; 8] = [false, true, true, false, true, false, false, true];
/// Each with one block with and one without.
pub(super) const TRIAL_PAIRS: usize = BLOCKS.len() / 2;

/// One block: cost of a synchronization in nanoseconds, and synchronizations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    cost: f64,
    rate: f64,
}

/// What a trial has done so far.
#[derive(Clone, Debug, Default)]
struct Running {
    /// Windows of the present block that are over.
    windows: u32,
    blocks: Vec<Block>,
}

/// Tries retention from time to time and remembers whether it pays.
#[derive(Clone, Debug)]
pub(super) struct Trial {
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
    running: Option<Running>,
    /// Whether the observer sees no wake-ups.
    blind: bool,
    /// Whether it pays, as it was last tried; `None`: not tried with this workload.
    verdict: Option<bool>,
    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    cost_ratio: Option<f64>,
}

impl Trial {
    pub(super) fn new(enabled: bool, params: &GuestParams) -> Self {
        let ms = Nanos::from_millis;
        Self {
            enabled: enabled && params.retention_trials,
            windows_per_block: params.trial_block_windows,
            quiet_windows: params.trial_quiet_windows,
            wakeups_min: params.trial_wakeups_min,
            pairs_min: params.trial_pairs_min as usize,
            margin: params.trial_cost_min,
            gain_min: params.trial_gain_min,
            // Nothing but a change of the workload makes it start small again.
            again: Backoff::new(ms(params.trial_again_min_ms), ms(params.trial_again_max_ms), u64::MAX),
            quiet: 0,
            running: None,
            blind: false,
            verdict: None,
            cost_ratio: None,
        }
    }

    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    pub(super) fn cost_ratio(&self) -> Option<f64> {
        self.cost_ratio
    }

    /// Whether idle periods may be bridged now.
    pub(super) fn retains(&self) -> bool {
        self.running.as_ref().map_or(self.pays(), |running| BLOCKS[running.blocks.len()])
    }

    /// Whether it is taken to pay, as far as is known.
    pub(super) fn pays(&self) -> bool {
        self.verdict.unwrap_or(!self.blind)
    }

    /// Whether a trial is going on: other decisions have to wait.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether retention has been tried, or cannot be.
    pub(super) fn is_settled(&self) -> bool {
        !self.enabled || self.running.is_none() && self.again.until() > Nanos::ZERO
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

    /// Takes a window. `undisturbed`: nothing else was changed in it or is being judged, no guard has stopped a yielding thread, and some vCPU
    /// is idle now and then. Says why, if retention begins or ends after it.
    pub(super) fn step(&mut self, window: &Window, undisturbed: bool) -> Option<Reason> {
        let seen = if self.enabled { measured(window, self.wakeups_min) } else { None };
        let before = self.retains();
        self.blind = self.enabled && window.group.wake_to_run.is_none();
        let (Some(block), true) = (seen, undisturbed) else {
            self.quiet = 0;
            // Not known yet, so not said; tried again once it is quiet.
            self.running = None;
            let why = if self.blind { Reason::RetentionUnseen } else { Reason::RetentionTrial };
            return (self.retains() != before).then_some(why);
        };
        let Some(running) = &mut self.running else {
            self.quiet += 1;
            let due = self.quiet >= self.quiet_windows && self.again.remaining(window.at) == Nanos::ZERO;
            if due {
                self.running = Some(Running::default());
            }
            return (self.retains() != before).then_some(Reason::RetentionTrial);
        };
        running.windows += 1;
        if running.windows < self.windows_per_block {
            return None;
        }
        running.windows = 0;
        running.blocks.push(block);
        if running.blocks.len() < BLOCKS.len() {
            return (self.retains() != before).then_some(Reason::RetentionTrial);
        }
        let blocks = self.running.take().map(|running| running.blocks).unwrap_or_default();
        Some(self.conclude(window.at, &blocks)).filter(|_| self.retains() != before)
    }

    fn conclude(&mut self, now: Nanos, blocks: &[Block]) -> Reason {
        self.quiet = 0;
        self.again.trigger(now, now, now);
        let pairs = BLOCKS.chunks(2).zip(blocks.chunks(2));
        let pairs = pairs.map(|(on, pair)| if on[0] { (pair[0], pair[1]) } else { (pair[1], pair[0]) });
        let cost = median_ratio(pairs.clone().map(|(on, off)| on.cost / off.cost));
        let dearer = pairs.clone().filter(|(on, off)| on.cost > off.cost).count();
        let rate = median_ratio(pairs.map(|(on, off)| on.rate / off.rate));
        let costs = cost > 1.0 + self.margin && dearer >= self.pairs_min;
        self.cost_ratio = Some(cost);
        let pays = !costs || rate > 1.0 + self.gain_min;
        self.verdict = Some(pays);
        if pays { Reason::RetentionPays { cost_ratio: cost } } else { Reason::RetentionCosts { cost_ratio: cost } }
    }
}

/// What a window says, if it says enough.
fn measured(window: &Window, wakeups_min: u64) -> Option<Block> {
    let delay: &Distribution = window.group.wake_to_run.as_ref()?;
    let switches = window.group.voluntary_switches;
    if delay.count() < wakeups_min || switches < wakeups_min || window.length == Nanos::ZERO {
        return None;
    }
    let cost = (window.group.cpu_time.as_f64() + delay.sum().as_f64()) / switches as f64;
    (cost > 0.0).then(|| Block { cost, rate: switches as f64 / window.length.as_secs_f64() })
}

/// The median of four.
fn median_ratio(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let half = ratios.len() / 2;
    f64::midpoint(ratios[half - 1], ratios[half])
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source};

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
        Trial::new(true, &GuestParams::default())
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
        // Ten minutes: the ten windows before the first trial, and half of each trial of 16 windows, at 0, 30, 90, 210 and 450 s.
        assert_eq!(retained.iter().filter(|retained| **retained).count(), 9 + 5 * 8);
        let cheap = Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 };
        let (_, retained) = run(&mut super::Trial::new(true, &GuestParams::default()), &cheap, 6000);
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
        let mut unseen = super::Trial::new(true, &GuestParams::default());
        assert_eq!(unseen.step(&blind(window(100, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
        assert!(!unseen.retains() && !unseen.pays());
        let mut tried = super::Trial::new(true, &GuestParams::default());
        run(&mut tried, &Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 }, 40);
        assert_eq!(tried.step(&blind(window(4100, 15.0, 10_000)), true), None);
        assert!(tried.retains());
        tried.workload_changed();
        assert_eq!(tried.step(&blind(window(4200, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
        // The user does not want to be asked.
        let params = GuestParams { retention_trials: false, ..GuestParams::default() };
        for mut trial in [Trial::new(true, &params), Trial::new(false, &GuestParams::default())] {
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
}
