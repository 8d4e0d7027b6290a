//! The guest policy as a whole: windows in, decisions out (paper, section 5: retention for short idle periods, imbalanced
//! scheduling for the long ones).
//!
//! Retention follows from five things, compared after every window: the policy, the trial, the active set, whether a vCPU's contention guard
//! holds, and whether the vCPU is ever idle. A decision is what changed.

use super::conditions::Factors;
use super::contention::{ContentionGuard, GuardChange};
use super::explain::{Explanation, NoStepCounts};
use super::idle_lengths::{IdleLengths, LearntTimeout, PollPrice, Prices};
use super::never_idle::{IdleChange, IdleWatch};
use super::packing::{Outcome, Packing};
use super::trial::Trial;
use super::{GuestParams, NoStep, retention};
use gleaner_model::{
    Action, CpuSet, Decision, Lengths, Nanos, Policy, Profile, Reason, RetainMeans, VcpuId, VcpuWindow, WakeupCosts,
    Window,
};
use std::collections::BTreeMap;

/// What is kept per vCPU.
#[derive(Clone, Debug)]
struct Retention {
    /// The time-out in force, where it is retained.
    retained: Option<Nanos>,
    /// Where it follows the idle lengths.
    learnt: Option<LearntTimeout>,
    /// Whether it is released because its idle periods are too long.
    too_long: bool,
    guard: ContentionGuard,
    idle_watch: IdleWatch,
    /// Time and steal not yet fed to the guard: windows shorter than its span are put together.
    length: Nanos,
    steal: Nanos,
    /// Why the guard stopped last.
    contended: Option<Reason>,
    /// How the vCPU was when it was last found to be never idle.
    never_idle: Option<Reason>,
}

impl Retention {
    fn new(profile: Profile, means: RetainMeans, params: &GuestParams) -> Self {
        // A vCPU that polls in the idle task costs nothing where it is never idle.
        let watches = profile != Profile::Latency && !means.polls_in_idle_task();
        Self {
            retained: None,
            learnt: None,
            too_long: false,
            guard: ContentionGuard::new(params),
            idle_watch: IdleWatch::new(watches, params),
            length: Nanos::ZERO,
            steal: Nanos::ZERO,
            contended: None,
            never_idle: None,
        }
    }

    /// Takes a window; says why the vCPU may be retained again, if it may. `steady`: it is in use, and retention does not come and go.
    fn feed(&mut self, window: &Window, vcpu: &VcpuWindow, active: bool, steady: bool, span: Nanos) -> Option<Reason> {
        let calmed_down = self.feed_guard(window.at, window.length, vcpu.steal, span) == GuardChange::Over;
        let change = match (active, steady) {
            (false, _) => {
                self.idle_watch.forget();
                IdleChange::None
            }
            (true, false) => {
                self.idle_watch.interrupt();
                IdleChange::None
            }
            (true, true) => self.idle_watch.feed(window.at, window.length, vcpu),
        };
        if let IdleChange::NeverIdle { idle_share } = change {
            self.never_idle = Some(Reason::NeverIdle { idle_share });
        }
        let idle_again = (change == IdleChange::IdleAgain).then_some(Reason::IdleAgain);
        idle_again.or(calmed_down.then_some(Reason::ContentionOver))
    }

    /// Takes the idle periods of a window.
    fn learn(&mut self, window: &Window, vcpu: &VcpuWindow, prices: Prices) {
        let seen = IdleLengths::seen(vcpu, self.retained.unwrap_or(Nanos::ZERO));
        if let (Some(learnt), Some(seen)) = (&mut self.learnt, seen) {
            learnt.feed(&seen, window.length, prices);
        }
    }

    /// How long its idle periods are to be bridged; `group`: as long as the group's.
    fn timeout(&self, group: Nanos) -> Nanos {
        self.learnt.as_ref().map_or(group, LearntTimeout::timeout)
    }

    fn held_back(&self) -> bool {
        self.guard.stopped() || self.idle_watch.is_never_idle()
    }

    /// Why it is held back.
    fn why_held_back(&self) -> Option<Reason> {
        let contended = self.contended.filter(|_| self.guard.stopped());
        contended.or(self.never_idle.filter(|_| self.idle_watch.is_never_idle()))
    }

    /// Takes a window's steal; says what the guard made of it.
    fn feed_guard(&mut self, at: Nanos, length: Nanos, steal: Nanos, span: Nanos) -> GuardChange {
        self.length += length;
        self.steal += steal;
        if self.length < span {
            return GuardChange::None;
        }
        let steal_share = self.steal.share_of(self.length).min(1.0);
        (self.length, self.steal) = (Nanos::ZERO, Nanos::ZERO);
        let change = self.guard.feed(at, steal_share);
        if let GuardChange::Tripped { hold_off } = change {
            self.contended = Some(Reason::Contended { steal_share, hold_off });
        }
        change
    }
}

/// The policy of one guest for one managed group. A total function of its windows: no I/O, no clock.
#[derive(Clone, Debug)]
pub struct GuestPolicy {
    policy: Policy,
    profile: Profile,
    means: RetainMeans,
    params: GuestParams,
    timeout: Nanos,
    /// Whether each vCPU's time-out follows its idle lengths.
    learns: bool,
    poll_price: PollPrice,
    packing: Packing,
    retention: BTreeMap<VcpuId, Retention>,
    trial: Trial,
    now: Nanos,
    lengths: Option<Lengths>,
    no_step: NoStepCounts,
}

impl GuestPolicy {
    /// For a group that may use `vcpus` (all online ones it is allowed; all active at first). `costs`: the calibration, if
    /// there was one. `params` should be [valid](GuestParams::validate); if they are not, decisions are poor, never unsafe.
    pub fn new(
        policy: Policy,
        profile: Profile,
        params: GuestParams,
        costs: Option<WakeupCosts>,
        vcpus: CpuSet,
    ) -> Self {
        let means = RetainMeans::Yielding;
        let timeout = retention::timeout(profile, costs.as_ref(), &params);
        Self {
            policy,
            profile,
            means,
            timeout,
            learns: false,
            poll_price: PollPrice::new(profile, &params),
            trial: Trial::new(policy.retains() && timeout > Nanos::ZERO, means, &params),
            retention: vcpus.iter().map(|id| (id, Retention::new(profile, means, &params))).collect(),
            packing: Packing::new(vcpus, costs.map(|costs| costs.halted_p50), params.clone()),
            params,
            now: Nanos::ZERO,
            lengths: None,
            no_step: NoStepCounts::default(),
        }
    }

    /// The same where vCPUs are kept awake by `means` instead of a yielding thread, for `timeout` or, by default, what the profile says.
    /// A time-out that is given stays; else each vCPU's follows its idle lengths.
    #[must_use]
    pub fn by(mut self, means: RetainMeans, timeout: Option<Nanos>) -> Self {
        if means.polls_in_idle_task() {
            self.timeout = timeout.unwrap_or_else(|| retention::poll_timeout(self.profile, &self.params));
        }
        self.means = means;
        self.trial = Trial::new(self.policy.retains() && self.timeout > Nanos::ZERO, means, &self.params);
        self.learns = self.params.learn_timeouts && timeout.is_none() && means.polls_in_idle_task();
        let vcpus: Vec<VcpuId> = self.retention.keys().copied().collect();
        self.retention = vcpus.into_iter().map(|id| (id, self.new_retention())).collect();
        self
    }

    /// Polls no more than this share of one CPU, all vCPUs together, instead of what the profile allows.
    #[must_use]
    pub fn within_budget(mut self, budget: f64) -> Self {
        self.poll_price = self.poll_price.within(budget);
        self
    }

    fn new_retention(&self) -> Retention {
        let longest = Nanos(self.timeout.0.saturating_mul(self.params.learnt_timeout_factor));
        let longest = longest.min(Nanos::from_micros(self.params.timeout_max_us)).max(self.timeout);
        let learnt = self.learns.then(|| LearntTimeout::new(self.timeout, longest));
        Retention { learnt, ..Retention::new(self.profile, self.means, &self.params) }
    }

    /// What to carry out before the program starts, at time 0.
    pub fn begin(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.reconcile(Reason::RetentionBegins, &mut decisions);
        decisions
    }

    /// One window. `window.vcpus` are the online vCPUs that the group may use, *deactivated ones included*; a window without
    /// vCPUs or without length is ignored.
    pub fn step(&mut self, window: &Window) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if self.policy == Policy::Off || window.vcpus.is_empty() || window.length == Nanos::ZERO {
            return decisions;
        }
        self.now = window.at;
        let active_before = self.packing.active().clone();
        if self.policy == Policy::Observe {
            self.lengths = window.lengths(self.packing.active());
            self.no_step.note(Some(NoStep::NotAsked));
            return decisions;
        }
        let topology_changed = self.follow_topology(window, &mut decisions);
        let allowed_again = self.feed(window);
        self.lengths = window.lengths(self.packing.active());
        let because = if topology_changed {
            self.no_step.note(Some(NoStep::Settling));
            self.workload_changed();
            Reason::TopologyChanged
        } else {
            let undisturbed = self.pack(window, &mut decisions);
            self.try_retention(window, undisturbed).unwrap_or(Reason::Reactivated)
        };
        self.reconcile_after(&active_before, &allowed_again, because, &mut decisions);
        decisions
    }

    /// Whether a trial of retention still needs an observer that sees wake-ups run.
    pub fn wants_wakeups(&self) -> bool {
        !self.trial.is_settled()
    }

    /// Whether a quarter of the usual window would do, and a trial of retention is over the sooner for it.
    pub fn wants_quick_windows(&self) -> bool {
        self.trial.wants_quick_windows()
    }

    /// The vCPUs the group runs on. Never empty, unless the policy was made with none.
    pub fn active(&self) -> &CpuSet {
        self.packing.active()
    }

    /// Retention time-out in force; zero means that nothing is retained.
    pub fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Where the policy stands and why it did not step.
    pub fn explain(&self) -> Explanation {
        let Factors { load, granularity } = self.packing.factors();
        let those = |wanted: fn(&Retention) -> bool| {
            self.retention.iter().filter(|(_, vcpu)| wanted(vcpu)).map(|(id, _)| *id).collect()
        };
        Explanation {
            active: self.packing.active().clone(),
            vcpus: self.packing.all().len(),
            retaining: those(|vcpu| vcpu.retained.is_some()),
            contended: those(|vcpu| vcpu.guard.stopped()),
            never_idle: those(|vcpu| vcpu.idle_watch.is_never_idle()),
            timeout: self.timeout,
            retention_cost_ratio: self.trial.cost_ratio(),
            retention_stopped: !self.trial.pays(),
            load_factor: load,
            granularity_factor: granularity,
            hold_off: self.packing.hold_off_remaining(self.now),
            lengths: self.lengths,
            no_step: self.no_step.latest(),
            no_step_windows: self.no_step.by_frequency(),
        }
    }

    fn follow_topology(&mut self, window: &Window, decisions: &mut Vec<Decision>) -> bool {
        let online = &window.vcpus;
        let all = self.packing.all();
        if online.len() == all.len() && online.iter().all(|vcpu| all.contains(vcpu.id)) {
            return false;
        }
        let vcpus: CpuSet = online.iter().map(|vcpu| vcpu.id).collect();
        let gone: Vec<VcpuId> = self.retention.keys().copied().filter(|id| !vcpus.contains(*id)).collect();
        for vcpu in gone {
            if self.retention.remove(&vcpu).is_some_and(|state| state.retained.is_some()) {
                self.decide(Action::Release { vcpu }, Reason::TopologyChanged, decisions);
            }
        }
        for vcpu in vcpus.iter() {
            if !self.retention.contains_key(&vcpu) {
                self.retention.insert(vcpu, self.new_retention());
            }
        }
        let outcome = self.packing.set_vcpus(window.at, vcpus);
        if self.policy.consolidates() {
            self.carry_out(&outcome, decisions);
        }
        true
    }

    /// Says what each vCPU was like; returns those that may spin again, and why.
    fn feed(&mut self, window: &Window) -> BTreeMap<VcpuId, Reason> {
        let span = Nanos::from_millis(self.params.steal_span_ms);
        let steady = !self.trial.is_running();
        self.poll_price.feed(window);
        let prices = Prices { halt: self.timeout, poll: self.poll_price.get() };
        let mut allowed_again = BTreeMap::new();
        for vcpu in &window.vcpus {
            let active = self.packing.active().contains(vcpu.id);
            let Some(state) = self.retention.get_mut(&vcpu.id) else { continue };
            if steady {
                state.learn(window, vcpu, prices);
            }
            if let Some(reason) = state.feed(window, vcpu, active, steady, span) {
                allowed_again.insert(vcpu.id, reason);
            }
        }
        allowed_again
    }

    /// Says whether the window was undisturbed: nothing was changed in it, nor is anything being judged.
    fn pack(&mut self, window: &Window, decisions: &mut Vec<Decision>) -> bool {
        let trying = self.trial.is_running();
        let held = !trying && self.holds_cheaply();
        let outcome = match (trying, self.policy.consolidates()) {
            (_, true) if held => match self.packing.watch(window) {
                Outcome::Stay(_) => Outcome::Stay(NoStep::HeldCheaply),
                outcome => outcome,
            },
            (true, true) => self.packing.watch(window),
            (true, false) => Outcome::Stay(NoStep::Trying),
            (false, true) => self.packing.step(window),
            (false, false) => Outcome::Stay(NoStep::NotAsked),
        };
        if matches!(outcome, Outcome::ActivateAll { .. }) {
            self.workload_changed();
        }
        self.no_step.note(match outcome {
            Outcome::Stay(why) => Some(why),
            _ => None,
        });
        self.carry_out(&outcome, decisions);
        match outcome {
            // Another program is not what a trial began with.
            Outcome::Stay(why) if trying => why == NoStep::Trying,
            Outcome::Stay(why) => !matches!(why, NoStep::Settling | NoStep::Judging),
            _ => false,
        }
    }

    /// Whether idle periods are held by polling on a host that has the CPUs for it: then packing has nothing to win.
    fn holds_cheaply(&self) -> bool {
        let mut active = self.packing.active().iter().filter_map(|id| self.retention.get(&id));
        let retains = self.policy.retains() && self.timeout > Nanos::ZERO && self.means.polls_in_idle_task();
        retains && active.all(|vcpu| !vcpu.guard.stopped())
    }

    /// What retention does to it is unknown again.
    fn workload_changed(&mut self) {
        self.trial.workload_changed();
        for vcpu in self.retention.values_mut() {
            vcpu.idle_watch.workload_changed();
            vcpu.learnt.iter_mut().for_each(LearntTimeout::forget);
        }
    }

    /// Says why, if retention begins or ends.
    fn try_retention(&mut self, window: &Window, undisturbed: bool) -> Option<Reason> {
        let active = || self.packing.active().iter().filter_map(|id| self.retention.get(&id));
        let stopped = active().any(|vcpu| vcpu.guard.stopped());
        // Nothing would be compared with nothing.
        let nothing = |vcpu: &Retention| vcpu.idle_watch.is_never_idle() || vcpu.timeout(self.timeout) == Nanos::ZERO;
        let nothing_to_try = active().all(nothing);
        let was_running = self.trial.is_running();
        let reason = self.trial.step(window, undisturbed && !stopped && !nothing_to_try);
        if was_running && !self.trial.is_running() {
            // It was not to be seen what the program does under a retention that comes and goes.
            self.packing.measure_anew();
        }
        reason
    }

    fn carry_out(&self, outcome: &Outcome, decisions: &mut Vec<Decision>) {
        match *outcome {
            Outcome::Stay(_) => {}
            Outcome::Deactivate { ref vcpus, reason } => {
                for vcpu in vcpus.iter() {
                    self.decide(Action::Deactivate { vcpu }, reason, decisions);
                }
            }
            Outcome::Restore { ref vcpus, reason } => {
                for vcpu in vcpus.iter() {
                    self.decide(Action::Activate { vcpu }, reason, decisions);
                }
            }
            Outcome::ActivateAll { reason } => self.decide(Action::ActivateAll, reason, decisions),
        }
    }

    fn reconcile(&mut self, because: Reason, decisions: &mut Vec<Decision>) {
        self.reconcile_after(&self.packing.active().clone(), &BTreeMap::new(), because, decisions);
    }

    /// Retains where the policy, the trial, the active set, the guard and the watch for idle periods agree, releases elsewhere. A vCPU that was not `active_before` stays
    /// released for another window: the kernel moves computing threads to a vCPU that is idle within a tick, and to one that a
    /// yielding thread keeps awake only a tenth of a second later (`cargo bench -p gleaner --bench guest -- spread`).
    fn reconcile_after(
        &mut self,
        active_before: &CpuSet,
        allowed_again: &BTreeMap<VcpuId, Reason>,
        because: Reason,
        decisions: &mut Vec<Decision>,
    ) {
        let tried = self.trial.retains();
        // Parameters of the whole machine are for all vCPUs or for none.
        let contended = self.contended_anywhere().filter(|_| !self.means.is_per_vcpu());
        let allowed = self.policy.retains() && self.timeout > Nanos::ZERO && tried && contended.is_none();
        let at = self.now;
        for (&vcpu, state) in &mut self.retention {
            let active = self.packing.active().contains(vcpu);
            let wanted = allowed && active && active_before.contains(vcpu) && !state.held_back();
            let timeout = state.timeout(self.timeout);
            let retained = Some(timeout).filter(|timeout| wanted && *timeout > Nanos::ZERO);
            if retained == state.retained {
                continue;
            }
            let was = std::mem::replace(&mut state.retained, retained);
            let was_too_long = std::mem::replace(&mut state.too_long, wanted && retained.is_none());
            let by_lengths = state.learnt.as_ref().map(|learnt| Reason::IdleLengths { within: learnt.within() });
            let (action, reason) = if let Some(timeout) = retained {
                let other_timeout = by_lengths.filter(|_| was.is_some() || was_too_long);
                let reason = allowed_again.get(&vcpu).copied().or(other_timeout).unwrap_or(because);
                (Action::Retain { vcpu, timeout }, reason)
            } else {
                let not_tried = Some(because).filter(|_| !tried);
                let reason = state.why_held_back().or(contended).or(not_tried);
                let reason = reason.or(by_lengths.filter(|_| wanted)).filter(|_| active);
                (Action::Release { vcpu }, reason.unwrap_or(Reason::Deactivated))
            };
            decisions.push(Decision { at, action, reason });
        }
    }

    /// Why a guard has stopped, where one has.
    fn contended_anywhere(&self) -> Option<Reason> {
        let mut active = self.packing.active().iter().filter_map(|id| self.retention.get(&id));
        active.find(|vcpu| vcpu.guard.stopped()).and_then(|vcpu| vcpu.contended)
    }

    fn decide(&self, action: Action, reason: Reason, decisions: &mut Vec<Decision>) {
        decisions.push(Decision { at: self.now, action, reason });
    }
}
