//! Which vCPUs are kept awake while they idle, and for how long (resource retention, paper sections 4.1 and 6).
//!
//! A vCPU is retained where four things agree: retention is asked for, its trial says that it pays, the group runs on
//! the vCPU, and the contention guard holds. Which vCPUs the group runs on is `consolidation`'s to say: it comes as an
//! argument.

mod contention;
mod idle_lengths;
mod timeout;
mod trial;
mod vcpu;
mod yielding;

pub use contention::{ContentionGuard, GuardChange, StolenMeter};
pub use idle_lengths::{IdleLengths, LearntTimeout, PollPrice, Prices};
pub use timeout::{halting_costs_by_the_tail_alone, halting_is_free, timeout};
pub use trial::{
    AGAIN_MAX as TRIAL_AGAIN_MAX, AGAIN_MIN as TRIAL_AGAIN_MIN, GAIN_MIN as TRIAL_GAIN_MIN, Urgency,
    WAKEUPS_MIN as TRIAL_WAKEUPS_MIN,
};
pub use yielding::{SIGNAL_CHECK, UNTIL_ORDERED, YieldingThread};

use super::GuestParams;
use gleaner_model::{CpuSet, Decision, Nanos, Profile, Reason, RetainMeans, VcpuId, WakeupCosts, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trial::Trial;
pub(super) use vcpu::Placed;
use vcpu::{Request, Vcpu};

/// A learnt time-out is at most so many times what the profile says.
const LEARNT_TIMES: u64 = 4;

/// Retention of one group's vCPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Retention {
    asked: bool,
    profile: Profile,
    means: RetainMeans,
    costs: Option<WakeupCosts>,
    /// A time-out that was asked for by name.
    fixed: Option<Nanos>,
    params: GuestParams,
    timeout: Nanos,
    poll_price: PollPrice,
    trial: Trial,
    vcpus: BTreeMap<VcpuId, Vcpu>,
}

impl Retention {
    /// By yielding threads. `asked`: whether the policy in force retains.
    pub(super) fn new(
        asked: bool,
        profile: Profile,
        costs: Option<WakeupCosts>,
        vcpus: &CpuSet,
        params: GuestParams,
    ) -> Self {
        let mut new = Self {
            asked,
            profile,
            means: RetainMeans::Yielding,
            costs,
            fixed: None,
            timeout: Nanos::ZERO,
            poll_price: PollPrice::new(profile),
            trial: Trial::new(asked, RetainMeans::Yielding, &params).unless_slower(profile == Profile::Latency),
            vcpus: vcpus.iter().map(|id| (id, Vcpu::new(None, &params))).collect(),
            params,
        };
        new.by(RetainMeans::Yielding, None);
        new
    }

    /// By `means`, for `timeout` or, by default, what the profile says. A time-out that is given stays; where the idle
    /// task polls and none is, each vCPU's follows its idle lengths.
    pub(super) fn by(&mut self, means: RetainMeans, timeout: Option<Nanos>) {
        self.means = means;
        self.fixed = timeout;
        self.timeout = self.wanted_timeout();
        let trial = Trial::new(self.asked && self.timeout > Nanos::ZERO, means, &self.params);
        self.trial = trial.unless_slower(self.profile == Profile::Latency);
        let vcpus: Vec<VcpuId> = self.vcpus.keys().copied().collect();
        self.vcpus = vcpus.into_iter().map(|id| (id, self.new_vcpu())).collect();
    }

    pub(super) fn within_budget(&mut self, budget: f64) {
        self.poll_price = self.poll_price.clone().within(budget);
    }

    fn wanted_timeout(&self) -> Nanos {
        self.fixed.unwrap_or_else(|| {
            if self.means.polls_in_idle_task() {
                timeout::poll_timeout(self.profile)
            } else {
                timeout(self.profile, self.costs.as_ref())
            }
        })
    }

    /// Whether each vCPU's time-out follows its idle lengths.
    fn learns(&self) -> bool {
        self.params.learn_timeouts && self.fixed.is_none() && self.means.polls_in_idle_task()
    }

    /// The longest time-out that may be learnt.
    fn longest(&self) -> Nanos {
        let longest = Nanos(self.timeout.0.saturating_mul(LEARNT_TIMES));
        longest.min(timeout::LONGEST).max(self.timeout)
    }

    fn new_learnt(&self) -> LearntTimeout {
        LearntTimeout::new(self.timeout, self.longest())
    }

    fn new_vcpu(&self) -> Vcpu {
        let learnt = self.learns().then(|| self.new_learnt());
        Vcpu::new(learnt, &self.params)
    }

    /// The group may use just `vcpus` now; those that were retained and have gone.
    pub(super) fn follow(&mut self, vcpus: &CpuSet) -> Vec<VcpuId> {
        let gone: Vec<VcpuId> = self.vcpus.keys().copied().filter(|id| !vcpus.contains(*id)).collect();
        let released = gone.into_iter().filter(|id| self.vcpus.remove(id).is_some_and(|vcpu| vcpu.is_retained()));
        let released = released.collect();
        for id in vcpus.iter() {
            if !self.vcpus.contains_key(&id) {
                self.vcpus.insert(id, self.new_vcpu());
            }
        }
        released
    }

    /// Says what each vCPU was like; returns those that may be retained again, and why.
    pub(super) fn feed(&mut self, window: &Window, active: &CpuSet, placed: Placed) -> BTreeMap<VcpuId, Reason> {
        let steady = placed == Placed::Apart && !self.trial.is_running();
        self.poll_price.feed(window);
        let prices = Prices { halt: self.timeout, poll: self.poll_price.get() };
        let mut allowed_again = BTreeMap::new();
        for seen in &window.vcpus {
            let Some(vcpu) = self.vcpus.get_mut(&seen.id) else { continue };
            if steady || placed == Placed::OnOne && active.contains(seen.id) {
                vcpu.learn(window, seen, prices, placed);
            }
            if let Some(reason) = vcpu.feed(window, seen) {
                allowed_again.insert(seen.id, reason);
            }
        }
        allowed_again
    }

    /// One window of the trial, which goes on while the window was `undisturbed`. Says why, if retention begins or
    /// ends.
    pub(super) fn try_it(&mut self, window: &Window, undisturbed: bool, active: &CpuSet) -> Option<Reason> {
        let active = || active.iter().filter_map(|id| self.vcpus.get(&id));
        let stopped = active().any(Vcpu::is_contended);
        // Nothing would be compared with nothing.
        let nothing = |vcpu: &Vcpu| vcpu.timeout(self.timeout) == Nanos::ZERO;
        let nothing_to_try = active().all(nothing);
        self.trial.step(window, undisturbed && !stopped && !nothing_to_try)
    }

    /// What retention does to the program is unknown again.
    pub(super) fn workload_changed(&mut self) {
        self.trial.workload_changed();
        self.vcpus.values_mut().for_each(Vcpu::workload_changed);
    }

    /// Retains each of `active` where all agree, and releases elsewhere. A vCPU that was not `active_before` stays
    /// released for another window: the kernel moves computing threads to a vCPU that is idle within a tick, and to one
    /// that a yielding thread keeps awake only a tenth of a second later (`cargo bench -p gleaner --bench guest --
    /// spread`).
    pub(super) fn reconcile(
        &mut self,
        at: Nanos,
        active: &CpuSet,
        active_before: &CpuSet,
        allowed_again: &BTreeMap<VcpuId, Reason>,
        because: Reason,
    ) -> Vec<Decision> {
        let on_one = because == Reason::OnOneVcpu;
        // A yielding thread would stand in the way of threads that have one vCPU.
        let tried = self.trial.retains() && (!on_one || self.means.polls_in_idle_task());
        // Parameters of the whole machine are for all vCPUs or for none.
        let contended = self.contended_anywhere(active).filter(|_| !self.means.is_per_vcpu());
        let allowed = self.asked && self.timeout > Nanos::ZERO && tried && contended.is_none();
        let forbidden = contended.or(Some(because).filter(|_| !tried));
        let because = if on_one { Reason::Reactivated } else { because };
        let group = self.timeout;
        let mut decisions = Vec::new();
        for (&id, vcpu) in &mut self.vcpus {
            // The idle task gives way at once, a yielding thread does not.
            let settled = active_before.contains(id) || self.means.polls_in_idle_task();
            let wanted = allowed && active.contains(id) && settled;
            let allowed_again = allowed_again.get(&id).copied();
            let request = Request { active: active.contains(id), on_one, wanted, forbidden, allowed_again, because };
            if let Some((action, reason)) = vcpu.reconcile(id, request, group) {
                decisions.push(Decision { at, action, reason });
            }
        }
        decisions
    }

    /// Why a guard has stopped, where one has.
    fn contended_anywhere(&self, active: &CpuSet) -> Option<Reason> {
        active.iter().filter_map(|id| self.vcpus.get(&id)).find_map(Vcpu::contended)
    }

    /// Whether idle periods are held by polling on a host that has the CPUs for it: then consolidation has nothing to
    /// win.
    pub(super) fn holds_cheaply(&self, active: &CpuSet) -> bool {
        let polls = self.asked && self.timeout > Nanos::ZERO && self.means.polls_in_idle_task();
        polls && !active.iter().filter_map(|id| self.vcpus.get(&id)).any(Vcpu::is_contended)
    }

    /// Whether waking a halted vCPU costs nothing worth saving, as it was measured.
    pub(super) fn wakes_for_nothing(&self) -> bool {
        self.costs.is_some_and(|costs| timeout::waking_is_free(&costs))
    }

    /// The group's time-out; zero: nothing is retained.
    pub(super) fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Whether vCPUs are kept awake while nothing else speaks against it.
    pub(super) fn is_on(&self) -> bool {
        self.asked && self.timeout > Nanos::ZERO && self.trial.pays()
    }

    pub(super) fn retains_any(&self) -> bool {
        self.vcpus.values().any(Vcpu::is_retained)
    }

    pub(super) fn trial(&self) -> &Trial {
        &self.trial
    }

    /// Those that are retained, and stopped by their guard.
    pub(super) fn states(&self) -> [CpuSet; 2] {
        let those = |wanted: fn(&Vcpu) -> bool| {
            self.vcpus.iter().filter(|(_, vcpu)| wanted(vcpu)).map(|(id, _)| *id).collect::<CpuSet>()
        };
        [those(Vcpu::is_retained), those(Vcpu::is_contended)]
    }
}
