//! The guest policy as a whole: windows in, decisions out (paper, section 5: retention for short idle periods,
//! imbalanced scheduling for the long ones).
//!
//! Consolidation says on which vCPUs the group runs, retention which of those are kept awake. A decision is what
//! changed.

use super::consolidation::{Consolidation, Factors, Outcome, expands};
use super::explain::{Explanation, NoStepCounts};
use super::retention::{Placed, Retention, Urgency};
use super::turns::{self, Change, Turns};
use super::{GuestParams, NoStep};
use gleaner_model::{
    Action, Burst, BurstWatch, CpuSet, Decision, Lengths, Nanos, Policy, Profile, Reason, RetainMeans, Topology,
    WakeupCosts, Window,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a policy is made of: all that it is told before its first window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestSetup {
    /// How much it may do.
    pub policy: Policy,
    /// How long an idle vCPU is kept awake.
    pub profile: Profile,
    /// The policy's numbers.
    pub params: GuestParams,
    /// The vCPUs that the group may use.
    pub vcpus: CpuSet,
    /// By what vCPUs are kept awake; `None`: by a yielding thread, or not at all.
    pub means: Option<RetainMeans>,
    /// Instead of the profile's time-out.
    pub timeout: Option<Nanos>,
    /// What all vCPUs together may poll, as a share of one CPU, instead of what the profile allows.
    pub budget: Option<f64>,
    /// Which vCPUs share what; empty where nobody asked.
    pub topology: Topology,
}

/// Where threads take turns from the start, that is to be seen soon: many programs are short.
const NEW: Nanos = Nanos::from_millis(100);
const YOUNG: Nanos = Nanos::from_millis(300);

/// The policy of one guest for one managed group. A total function of its windows: no I/O, no clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestPolicy {
    policy: Policy,
    consolidation: Consolidation,
    retention: Retention,
    turns: Turns,
    now: Nanos,
    lengths: Option<Lengths>,
    no_step: NoStepCounts,
}

impl GuestPolicy {
    /// As it is set up.
    pub fn of(setup: GuestSetup) -> Self {
        let GuestSetup { policy, profile, params, vcpus, means, timeout, budget, topology } = setup;
        let mut new = Self::new(policy, profile, params, None, vcpus).with_topology(topology);
        if means.is_some() || timeout.is_some() {
            new = new.by(means.unwrap_or(RetainMeans::Yielding), timeout);
        }
        match budget {
            Some(budget) => new.within_budget(budget),
            None => new,
        }
    }

    /// For a group that may use `vcpus` (all online ones it is allowed; all active at first). `costs`: of
    /// wake-ups, where they are known, as to a simulator. `params` should be [valid](GuestParams::validate); if they
    /// are not, decisions are poor, never unsafe.
    pub fn new(
        policy: Policy,
        profile: Profile,
        params: GuestParams,
        costs: Option<WakeupCosts>,
        vcpus: CpuSet,
    ) -> Self {
        Self {
            policy,
            retention: Retention::new(policy.retains(), profile, costs, &vcpus, params.clone()),
            turns: Turns::new(policy.consolidates(), profile, &params),
            consolidation: Consolidation::new(vcpus, costs.map(|costs| costs.halted_p50), params),
            now: Nanos::ZERO,
            lengths: None,
            no_step: NoStepCounts::default(),
        }
    }

    /// The same where vCPUs are kept awake by `means` instead of a yielding thread, for `timeout` or, by default, what
    /// the profile says. A time-out that is given stays; where the idle task polls and none is, each vCPU's follows its
    /// idle lengths.
    #[must_use]
    pub fn by(mut self, means: RetainMeans, timeout: Option<Nanos>) -> Self {
        self.retention.by(means, timeout);
        self
    }

    /// Polls no more than this share of one CPU, all vCPUs together, instead of what the profile allows.
    #[must_use]
    pub fn within_budget(mut self, budget: f64) -> Self {
        self.retention.within_budget(budget);
        self
    }

    /// Packs so that those vCPUs stay that share caches and memory, and cores go whole.
    #[must_use]
    pub fn with_topology(mut self, topology: Topology) -> Self {
        self.consolidation.set_topology(topology);
        self
    }

    /// What to carry out before the program starts, at time 0.
    pub fn begin(&mut self) -> Vec<Decision> {
        let active = self.consolidation.active();
        self.retention.reconcile(self.now, active, active, &BTreeMap::new(), Reason::RetentionBegins)
    }

    /// One window. `window.vcpus` are the online vCPUs that the group may use, *deactivated ones included*; a window
    /// without vCPUs or without length is ignored.
    pub fn step(&mut self, window: &Window) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if self.policy == Policy::Off || window.vcpus.is_empty() || window.length == Nanos::ZERO {
            return decisions;
        }
        self.now = window.at;
        let active_before = self.consolidation.active().clone();
        if self.policy == Policy::Observe {
            self.lengths = window.lengths(self.consolidation.active());
            self.no_step.note(Some(NoStep::NotAsked));
            return decisions;
        }
        let topology_changed = self.follow_topology(window, &mut decisions);
        let allowed_again = self.retention.feed(window, self.consolidation.active(), self.placed());
        self.lengths = window.lengths(self.consolidation.active());
        let because = if topology_changed {
            self.no_step.note(Some(NoStep::Settling));
            self.retention.workload_changed();
            self.turns.workload_changed(window.at);
            Reason::TopologyChanged
        } else {
            let undisturbed = self.consolidate(window, &mut decisions);
            // Before its first step consolidation has nothing to settle but what it measures: one vCPU is tried first.
            let quiet = undisturbed || decisions.is_empty() && self.consolidation.has_not_stepped();
            self.take_turns(window, quiet, &mut decisions);
            let alone = undisturbed && !self.turns.is_engaged() && !self.turns.is_near_trial();
            self.try_retention(window, alone).unwrap_or(Reason::Reactivated)
        };
        let because = if self.turns.is_on_one() { Reason::OnOneVcpu } else { because };
        let active = self.consolidation.active();
        let retained = self.retention.reconcile(self.now, active, &active_before, &allowed_again, because);
        decisions.extend(retained);
        decisions
    }

    /// What to be told of at once, by [`Self::burst`]; `None` while that would change nothing.
    pub fn burst_watch(&self) -> Option<BurstWatch> {
        let watch = if self.policy.consolidates() { self.consolidation.burst_watch() } else { None };
        watch.map(|watch| if self.turns.is_engaged() { turns::patient(watch) } else { watch })
    }

    /// Threads of the group wait for a vCPU, between two windows. `burst.at` is not before the last window's.
    pub fn burst(&mut self, burst: &Burst) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.policy.consolidates() {
            return decisions;
        }
        let active_before = self.consolidation.active().clone();
        if self.burst_watch().is_none_or(|watch| expands(burst, &watch).is_none()) {
            return decisions;
        }
        let Some(outcome) = self.consolidation.burst(burst) else { return decisions };
        self.now = burst.at;
        self.retention.workload_changed();
        self.turns.workload_changed(burst.at);
        self.carry_out(&outcome, &mut decisions);
        let active = self.consolidation.active();
        let because = Reason::Reactivated;
        decisions.extend(self.retention.reconcile(self.now, active, &active_before, &BTreeMap::new(), because));
        decisions
    }

    /// Whether a trial of retention still needs an observer that sees wake-ups run.
    pub fn wants_wakeups(&self) -> bool {
        !self.retention.trial().is_settled()
    }

    /// Whether something is being tried: what it is tried on should be left alone by everybody else.
    pub fn is_trying(&self) -> bool {
        self.retention.trial().is_running() || self.turns.is_trying()
    }

    /// Whether windows in which its group does nothing may come late, several as one: nothing is tried, and all vCPUs
    /// are active.
    pub fn rests(&self) -> bool {
        let all_active = self.consolidation.active().len() == self.consolidation.all().len();
        all_active && self.urgency() == Urgency::None && !self.is_trying() && !self.turns.is_engaged()
    }

    /// Whether any vCPU is kept awake.
    pub fn retains(&self) -> bool {
        self.retention.retains_any()
    }

    /// Whether a trial is about to begin or goes on that compares system calls.
    pub fn wants_system_calls(&self) -> bool {
        self.turns.is_near_trial()
    }

    /// Whether shorter windows would do, and a trial is over the sooner for it.
    pub fn urgency(&self) -> Urgency {
        let is_first = self.now == Nanos::ZERO && self.turns.is_looking();
        if self.turns.is_near_trial() || is_first {
            return Urgency::Utmost;
        }
        if self.turns.seems_another() {
            return Urgency::Most;
        }
        // Who needs more than one vCPU has none to spare for us.
        let below = |age| self.turns.is_looking() && self.turns.may_be_turns() && self.now < age;
        if below(NEW) {
            return Urgency::Most;
        }
        let trial = if self.turns.is_engaged() { Urgency::None } else { self.retention.trial().urgency() };
        trial.max(if below(YOUNG) { Urgency::Some } else { Urgency::None })
    }

    /// The vCPUs the group runs on. Never empty, unless the policy was made with none.
    pub fn active(&self) -> &CpuSet {
        self.consolidation.active()
    }

    /// Retention time-out in force; zero means that nothing is retained.
    pub fn timeout(&self) -> Nanos {
        self.retention.timeout()
    }

    /// Where the policy stands and why it did not step.
    pub fn explain(&self) -> Explanation {
        let Factors { load, granularity } = self.consolidation.factors();
        let [retaining, contended] = self.retention.states();
        let trial = self.retention.trial();
        Explanation {
            active: self.consolidation.active().clone(),
            vcpus: self.consolidation.all().len(),
            retaining,
            contended,
            timeout: self.retention.timeout(),
            retention_cost_ratio: trial.cost_ratio(),
            retention_stopped: !trial.pays(),
            trial: trial.last().cloned(),
            turns: self.turns.last().cloned(),
            next_trial: trial.next(),
            load_factor: load,
            granularity_factor: granularity,
            hold_off: self.consolidation.hold_off_remaining(self.now),
            lengths: self.lengths,
            no_step: self.no_step.latest(),
            no_step_windows: self.no_step.by_frequency(),
        }
    }

    fn follow_topology(&mut self, window: &Window, decisions: &mut Vec<Decision>) -> bool {
        let online = &window.vcpus;
        let all = self.consolidation.all();
        if online.len() == all.len() && online.iter().all(|vcpu| all.contains(vcpu.id)) {
            return false;
        }
        let vcpus: CpuSet = online.iter().map(|vcpu| vcpu.id).collect();
        for vcpu in self.retention.follow(&vcpus) {
            self.decide(Action::Release { vcpu }, Reason::TopologyChanged, decisions);
        }
        let outcome = self.consolidation.set_vcpus(window.at, vcpus);
        if self.policy.consolidates() {
            self.carry_out(&outcome, decisions);
        }
        true
    }

    /// Where the group was in the window that is over.
    fn placed(&self) -> Placed {
        match (self.turns.is_engaged(), self.turns.is_on_one() && !self.turns.is_trying()) {
            (false, _) => Placed::Apart,
            (true, true) => Placed::OnOne,
            (true, false) => Placed::Tried,
        }
    }

    /// Why packing has nothing to win here, if it has not.
    fn nothing_to_win(&self) -> Option<NoStep> {
        if self.retention.holds_cheaply(self.consolidation.active()) {
            return Some(NoStep::HeldCheaply);
        }
        self.retention.wakes_for_nothing().then_some(NoStep::WakesForNothing)
    }

    /// Says whether the window was undisturbed: nothing was changed in it, nor is anything being judged.
    fn consolidate(&mut self, window: &Window, decisions: &mut Vec<Decision>) -> bool {
        let engaged = self.turns.is_engaged();
        let trying = self.retention.trial().is_running() || engaged;
        let outcome = match (trying, self.policy.consolidates(), self.nothing_to_win()) {
            (false, true, Some(why)) => match self.consolidation.watch(window) {
                Outcome::Stay(_) => Outcome::Stay(why),
                outcome => outcome,
            },
            (true, true, _) => self.consolidation.watch(window),
            (true, false, _) => Outcome::Stay(NoStep::Trying),
            (false, true, None) => self.consolidation.step(window),
            (false, false, _) => Outcome::Stay(NoStep::NotAsked),
        };
        if matches!(outcome, Outcome::ActivateAll { .. }) {
            self.retention.workload_changed();
        }
        if engaged && outcome != Outcome::Stay(NoStep::Trying) {
            // New threads, or another program: all vCPUs, and from the beginning.
            self.turns.workload_changed(window.at);
            self.consolidation.keep_all();
            self.decide(Action::ActivateAll, Reason::ThreadBurst { new_threads: window.group.new_threads }, decisions);
        }
        self.no_step.note(match outcome {
            Outcome::Stay(NoStep::Trying) if engaged => Some(NoStep::TakesTurns),
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

    /// One vCPU for a group whose threads take turns.
    fn take_turns(&mut self, window: &Window, quiet: bool, decisions: &mut Vec<Decision>) {
        let retaining = self.retention.trial().is_running();
        let may = !retaining && quiet && self.consolidation.active().len() > 1;
        match self.turns.step(window, self.retention.is_on(), may) {
            None => {}
            Some(Change::Pack(reason)) => {
                let vcpus = self.consolidation.keep_one();
                if vcpus.is_empty() {
                    // It is there already, and whoever asks is to be told why it stays.
                    let away = self.consolidation.all().difference(self.consolidation.active());
                    if let Some(vcpu) = away.iter().next() {
                        self.decide(Action::Deactivate { vcpu }, reason, decisions);
                    }
                }
                self.carry_out(&Outcome::Deactivate { vcpus, reason }, decisions);
            }
            Some(Change::Spread(reason)) => {
                self.consolidation.keep_all();
                self.carry_out(&Outcome::ActivateAll { reason }, decisions);
            }
        }
    }

    /// Says why, if retention begins or ends.
    fn try_retention(&mut self, window: &Window, undisturbed: bool) -> Option<Reason> {
        let was_running = self.retention.trial().is_running();
        let reason = self.retention.try_it(window, undisturbed, self.consolidation.active());
        if was_running && !self.retention.trial().is_running() {
            // It was not to be seen what the program does under a retention that comes and goes.
            self.consolidation.measure_anew();
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

    fn decide(&self, action: Action, reason: Reason, decisions: &mut Vec<Decision>) {
        decisions.push(Decision { at: self.now, action, reason });
    }
}
