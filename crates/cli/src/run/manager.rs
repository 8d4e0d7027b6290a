//! observe -> decide -> act, ten times a second, around one program.

use super::options::Options;
use super::retain::{self, Opened, Opening};
use super::setup::{self, Actuators, actuators};
use super::totals::Totals;
use crate::args::RetainArg;
use crate::calibrate::start_yielding;
use crate::failure::Failure;
use crate::output::say;
use gleaner_act::{IdleGroup, Placement, PlacementKind, Retainer, Seat, pinned_vcpus};
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{Action, CpuSet, Decision, Nanos, Reason, RetainCounters, RetainMeans, Source, VcpuId, Window};
use gleaner_observe::{Observer, ObserverChoice};
use gleaner_report::Means;
use gleaner_runtime::Session;
use gleaner_sys::thread_cpu_time;
use std::path::PathBuf;

/// Windows are this long, unless observing costs too much.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Longest window: the yielding threads want a heart-beat within two seconds.
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);
/// Characters of a reason that are told; the whole of it (a verifier's log) is in GLEANER_LOG=info.
const LONGEST_REASON: usize = 300;
/// Windows are paced for this part of what observing may take, so that it stays below.
const OVERHEAD_AIR: f64 = 0.8;
/// A mask has to be asked of each thread, so it is not asked in each window. A step is taken after eight windows at the earliest.
const WINDOWS_PER_LOOK_AT_MASKS: u64 = 4;

/// Everything that runs beside the program.
pub struct Manager {
    observer: Observer,
    /// Whether the observer may be changed for another.
    observer_is_free: bool,
    /// Windows in a row with too many switches for BPF.
    switching_windows: u32,
    /// [`Window::at`] when the observer was changed: each observer begins at zero.
    at_zero: Nanos,
    program: i32,
    /// Of the thread that turns.
    seat: Seat,
    vcpus: CpuSet,
    params: GuestParams,
    /// vCPUs that a thread of the program is bound to, when that was last looked at.
    pinned: CpuSet,
    policy: GuestPolicy,
    retainer: Option<Box<dyn Retainer>>,
    group: IdleGroup,
    placement: Option<Placement>,
    session: Option<Session>,
    window_length: Nanos,
    /// Share of one CPU.
    overhead_target: f64,
    pub totals: Totals,
    pub warnings: Vec<String>,
    pub timeout_from: Option<String>,
    overhead_zero: Nanos,
    spent_zero: (Nanos, u64),
    /// What yielding threads that are no more had spent.
    spent_before: (Nanos, u64),
    /// How often the policy's own guard, which reads steal, stopped a yielding thread.
    guard_releases: u64,
}

/// What setting up came to.
pub enum Prepared {
    Managed(Box<Manager>),
    /// Nothing runs beside the program, for this reason.
    Unmanaged(String),
}

impl Manager {
    /// Sets everything up; measures what a halt costs here if the policy wants to know. Says what could not be had. Only what was asked
    /// for by name, and is refused, is a failure.
    pub fn prepare(options: &Options, vcpus: CpuSet) -> Result<Prepared, Failure> {
        let mut warnings = Vec::new();
        let overhead_zero = thread_cpu_time();
        let Actuators { mut session, hierarchies, placement } = actuators(options, &vcpus, &mut warnings)?;
        let config = setup::observer_config(session.as_ref(), &vcpus);
        let (observer, refusal) = match Observer::new(options.observer, &config) {
            Ok(observer) => observer,
            Err(error) if options.observer == ObserverChoice::Bpf => return Err(Failure::run(error)),
            Err(error) => return Ok(Prepared::Unmanaged(format!("nothing can be observed: {error}"))),
        };
        let params = options.params.clone();
        let mut opened = None;
        if let Some(session) =
            session.as_mut().filter(|_| options.policy.retains() && options.retain != RetainArg::None)
        {
            let opening =
                Opening { vcpus: &vcpus, params: &params, hierarchies: &hierarchies, observer: Some(&observer) };
            let (found, instead) = retain::open(options.retain, &opening, &mut session.journal);
            warnings.extend(instead);
            opened = found;
        }
        let (retainer, group) =
            opened.map_or_else(|| (None, IdleGroup::none()), |Opened { retainer, group }| (Some(retainer), group));
        warnings.extend(group.fallback().map(ToString::to_string));
        warnings.extend(retainer.iter().flat_map(|retainer| retainer.fallbacks()).map(ToString::to_string));
        if options.strict && !warnings.is_empty() {
            return Err(Failure::run(format!("--strict: {}", warnings.join("; "))));
        }
        warnings.extend(refusal.map(|why| {
            tracing::info!("{why}");
            let why: String = why.to_string().chars().take(LONGEST_REASON).collect();
            format!("observing through /proc, which sees means but no distributions: {why}")
        }));
        let means = retainer.as_ref().map(|retainer| retainer.means());
        let timeout_from = means.map(|means| setup::timeout_from(options, means));
        let policy = GuestPolicy::new(options.policy, options.profile, params.clone(), options.costs, vcpus.clone());
        let policy = match means {
            Some(means) => policy.by(means, options.timeout.map(Nanos::from)),
            None => policy,
        };
        Ok(Prepared::Managed(Box::new(Self {
            observer,
            observer_is_free: options.observer == ObserverChoice::Auto,
            switching_windows: 0,
            at_zero: Nanos::ZERO,
            program: 0,
            seat: Seat::new(vcpus.clone()),
            vcpus,
            params,
            pinned: CpuSet::new(),
            policy,
            retainer,
            group,
            placement,
            session,
            window_length: WINDOW,
            overhead_target: OVERHEAD_AIR * options.overhead_ratio,
            totals: Totals::default(),
            warnings,
            timeout_from,
            overhead_zero,
            spent_zero: (Nanos::ZERO, 0),
            spent_before: (Nanos::ZERO, 0),
            guard_releases: 0,
        })))
    }

    /// Where the program has to enter itself before exec.
    pub fn join_file(&self) -> Option<PathBuf> {
        self.placement.as_ref().and_then(Placement::join_file)
    }

    /// To be called right before the fork.
    pub fn about_to_start(&mut self) {
        self.observer.adopt_next_child();
    }

    /// To be called right after exec: from here on it is managed. What fails now must not cost the program: it is a warning.
    pub fn started(&mut self, pid: i32) {
        self.program = pid;
        self.observer.adopted(pid);
        if let (Some(placement), Some(session)) = (&mut self.placement, &mut self.session)
            && let Err(error) = placement.program_started(pid, &mut session.journal)
        {
            // What cannot be undone is not done.
            self.placement = None;
            self.warn(format!("the program keeps all its vCPUs: {error}"));
        }
        if let Err(error) = self.observer.start(&self.counters()) {
            self.warn(format!("observing began late: {error}"));
        }
        self.overhead_zero = thread_cpu_time();
        self.spent_zero = sum_of(&self.counters());
        let decisions = self.policy.begin();
        self.carry_out(&decisions);
        self.sit();
    }

    /// How long until the next window is due.
    pub fn window_length(&self) -> Nanos {
        self.window_length
    }

    /// One turn of the loop, `late` after it was due.
    pub fn turn(&mut self, late: Nanos) {
        if late > WINDOW {
            self.seat.change(self.policy.active(), &self.pinned);
        } else {
            self.sit();
        }
        if let Some(retainer) = &self.retainer {
            retainer.beat();
        }
        let before = thread_cpu_time();
        let mut window = match self.observer.window(&self.counters()) {
            Ok(window) => window,
            Err(error) => {
                self.warn(format!("a window was lost: {error}"));
                return;
            }
        };
        window.at += self.at_zero;
        let active = self.policy.active().clone();
        if self.placement.is_some() && self.totals.windows.is_multiple_of(WINDOWS_PER_LOOK_AT_MASKS) {
            self.pinned = pinned_vcpus(&self.observer.threads(), &active);
        }
        window.group.pinned.clone_from(&self.pinned);
        let decisions = self.policy.step(&window);
        tracing::debug!(
            at_ms = window.at.0 / 1_000_000,
            ms = window.length.0 / 1_000_000,
            switches = window.group.voluntary_switches,
            "window"
        );
        self.carry_out(&decisions);
        if decisions.is_empty() {
            self.confine_newcomers();
        }
        let cost = thread_cpu_time() - before;
        self.totals.add(&window, &active);
        self.pace(cost);
        self.leave_bpf_if_dear(&window);
    }

    /// Goes over to /proc when the program switches so often that BPF would slow it down.
    fn leave_bpf_if_dear(&mut self, window: &Window) {
        let switches = window.group.voluntary_switches + window.group.involuntary_switches;
        let per_s = switches as f64 / window.length.as_secs_f64().max(1e-9);
        let params = &self.params;
        let is_bpf = self.observer_is_free && window.source == Source::Bpf;
        let is_dear = is_bpf && per_s > params.bpf_switches_per_s_max;
        self.switching_windows = if is_dear { self.switching_windows + 1 } else { 0 };
        let trial = self.policy.wants_wakeups() && per_s < params.bpf_trial_switches_per_s_max;
        let waited = if trial { params.bpf_trial_windows } else { params.bpf_leave_windows };
        if self.switching_windows < waited {
            return;
        }
        self.switching_windows = 0;
        // New yielding threads must not inherit its one vCPU.
        self.seat.leave();
        let left = self.leave_bpf(window.at);
        self.sit();
        match left {
            Ok(()) => self.warn(format!(
                "after {} observing went over to /proc: {per_s:.0} switches a second, which BPF would slow down",
                window.at
            )),
            Err(error) => {
                self.observer_is_free = false;
                self.warn(format!(
                    "observing stays with BPF, which slows {per_s:.0} switches a second: {}",
                    error.message
                ));
            }
        }
    }

    fn leave_bpf(&mut self, at: Nanos) -> Result<(), Failure> {
        let config = setup::observer_config(self.session.as_ref(), &self.vcpus);
        tracing::debug!("leaving BPF");
        let (mut observer, _) = Observer::new(ObserverChoice::Procfs, &config).map_err(Failure::run)?;
        if self.retainer.as_ref().is_some_and(|retainer| retainer.means() == RetainMeans::Yielding) {
            // The old ones wait for BPF to tell that their vCPU is busy; the new ones nap.
            let yields = start_yielding(&self.vcpus, &self.group, &self.params, |_| None).map_err(Failure::run)?;
            let (retained, trips) = self.spent();
            self.spent_before = (retained, trips - self.guard_releases);
            self.spent_zero = (Nanos::ZERO, 0);
            if let Some(old) = self.retainer.replace(Box::new(yields)) {
                old.retire();
            }
            let timeout = self.policy.timeout();
            for vcpu in self.policy.explain().retaining.iter() {
                self.retain(vcpu, Some(timeout));
            }
        }
        tracing::debug!("new yielding threads");
        observer.adopted(self.program);
        observer.start(&self.counters()).map_err(Failure::run)?;
        std::mem::replace(&mut self.observer, observer).retire();
        tracing::debug!("BPF is left");
        self.at_zero = at;
        Ok(())
    }

    /// Forgets the time up to now: the program was stopped.
    pub fn skip(&mut self) {
        if let Some(retainer) = &self.retainer {
            retainer.beat();
        }
        if let Err(error) = self.observer.window(&self.counters()) {
            self.warn(format!("a window was lost: {error}"));
        }
    }

    /// The guardian may have been killed: there has to be one.
    pub fn look_after_guardian(&mut self, died: i32) {
        let Some(session) = &mut self.session else { return };
        if session.guardian_pid() == Some(died) {
            self.seat.leave();
            let warning = session.look_after_guardian();
            let pid = session.guardian_pid();
            self.sit();
            if let Some(pid) = pid {
                self.observer.exclude(pid);
            }
            if let Some(warning) = warning {
                self.warn(warning.to_string());
            }
        }
    }

    fn sit(&mut self) {
        self.seat.take(self.policy.active(), &self.pinned);
    }

    fn counters(&self) -> Vec<RetainCounters> {
        self.retainer.as_ref().map(|retainer| retainer.counters()).unwrap_or_default()
    }

    fn warn(&mut self, warning: String) {
        // A limit: the same trouble ten times a second is one warning.
        if self.warnings.len() < 50 && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn carry_out(&mut self, decisions: &[Decision]) {
        let mut moved = false;
        for decision in decisions {
            tracing::debug!(at_ms = decision.at.0 / 1_000_000, action = ?decision.action, "{}", decision.reason);
            self.guard_releases += u64::from(matches!(decision.reason, Reason::Contended { .. }));
            match decision.action {
                Action::Retain { vcpu, timeout } => self.retain(vcpu, Some(timeout)),
                Action::Release { vcpu } => self.retain(vcpu, None),
                Action::Deactivate { .. } | Action::Activate { .. } | Action::ActivateAll => moved = true,
            }
        }
        if moved {
            self.confine();
            self.sit();
        }
        self.totals.decided(decisions);
    }

    fn retain(&mut self, vcpu: VcpuId, timeout: Option<Nanos>) {
        let (Some(retainer), Some(session)) = (&mut self.retainer, &mut self.session) else { return };
        if let Err(error) = retainer.set(vcpu, timeout, &mut session.journal) {
            self.warn(format!("{vcpu} halts as without Gleaner: {error}"));
        }
    }

    fn confine_newcomers(&mut self) {
        if self.placement.as_ref().is_some_and(Placement::follows_threads) {
            self.confine();
        }
    }

    fn confine(&mut self) {
        let (Some(placement), Some(session)) = (&mut self.placement, &mut self.session) else { return };
        let tids = self.observer.threads();
        match placement.confine(self.policy.active(), &tids, &mut session.journal) {
            Ok(None) => {}
            Ok(Some(fallback)) => self.warn(fallback.to_string()),
            Err(error) => self.warn(format!("the program could not be moved: {error}")),
        }
    }

    /// Longer windows when observing costs too much, shorter ones again when it does not.
    fn pace(&mut self, cost: Nanos) {
        let length = Nanos::from_f64(cost.as_f64() / self.overhead_target).max(WINDOW).min(LONGEST_WINDOW);
        // A quarter of the way: one expensive window is no reason.
        self.window_length = Nanos((self.window_length.0 * 3 + length.0) / 4);
    }

    /// Retained time and guard trips since the program started; what the calibration took is not the program's.
    pub fn spent(&self) -> (Nanos, u64) {
        let (retained, trips) = sum_of(&self.counters());
        let (retained, trips) = (retained - self.spent_zero.0, trips.saturating_sub(self.spent_zero.1));
        // What yielding threads count themselves is exact to the end; what the kernel polls is known by the window.
        let polls = self.retainer.as_ref().is_none_or(|retainer| retainer.means().polls_in_idle_task());
        let retained = if polls { self.totals.retained } else { self.spent_before.0 + retained };
        (retained, self.spent_before.1 + trips + self.guard_releases)
    }

    /// More threads than an observer follows are a weakness to be told.
    pub fn warn_of_untracked(&mut self) {
        let untracked = self.observer.untracked();
        if untracked > 0 {
            self.warn(format!("{untracked} threads were too many to follow: they are missing in all figures"));
        }
    }

    /// The time-out in force, where the policy retains.
    pub fn timeout(&self) -> Option<Nanos> {
        self.retainer.as_ref().map(|_| self.policy.timeout())
    }

    /// Why the policy took no step in most of the windows in which it took none.
    pub fn no_step_because(&self) -> Option<String> {
        let reasons = self.policy.explain().no_step_windows;
        let windows: u64 = reasons.iter().map(|(_, windows)| windows).sum();
        reasons.first().map(|(why, times)| format!("{why} (in {times} of {windows} windows without a step)"))
    }

    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried.
    pub fn retention_cost_ratio(&self) -> Option<f64> {
        self.policy.explain().retention_cost_ratio
    }

    /// CPU time of observing and deciding since the program started.
    pub fn overhead(&self) -> Nanos {
        thread_cpu_time() - self.overhead_zero
    }

    /// By what means.
    pub fn means(&self) -> Means {
        let observer = if self.observer.source() == Source::Bpf { "bpf" } else { "procfs" };
        let placement = self.placement.as_ref().map(|placement| match placement.kind() {
            PlacementKind::CpusetV2 => "cpuset-v2",
            PlacementKind::CpusetV1 => "cpuset-v1",
            PlacementKind::Affinity => "affinity",
        });
        let retention = self.retainer.as_ref().map(|retainer| retainer.means());
        let by_thread = self.retainer.as_ref().filter(|_| retention == Some(RetainMeans::Yielding));
        let yielding = by_thread.map(|retainer| retainer.detail());
        let retention = retention.map(|means| means.name().to_owned());
        Means { observer: Some(observer.to_owned()), placement: placement.map(str::to_owned), retention, yielding }
    }

    /// Undoes everything; says whether that worked.
    pub fn finish(self) -> bool {
        let Self { retainer, mut observer, placement, session, .. } = self;
        drop(retainer);
        let Some(mut session) = session else { return true };
        // While the observer still knows them: processes that outlive the program with an environment of their own.
        if let Some(mut placement) = placement
            && let Err(error) = placement.release(|| observer.threads(), &mut session.journal)
        {
            tracing::warn!("{error}");
        }
        drop(observer);
        session.end().map_err(|error| say(&format!("gleaner: {error}"))).is_ok()
    }
}

/// Retained time and guard trips.
fn sum_of(counters: &[RetainCounters]) -> (Nanos, u64) {
    let retained = counters.iter().map(|counters| counters.retained).sum();
    (retained, counters.iter().map(|counters| counters.guard_trips).sum())
}
