//! Gleaner in a simulated guest: the policy that ships, fed by windows, its decisions carried out on vCPUs, idle tasks
//! and yielding threads.

use crate::config::Managed;
use crate::costs::Costs;
use crate::engine::Time;
use crate::guest::Yielder;
use crate::ids::VmIx;
use crate::observer::{Sight, WindowZero};
use crate::world::World;
use gleaner_decide::guest::{GuestPolicy, Urgency};
use gleaner_model::{Action, CpuSet, Decision, Nanos, Order, Policy, VcpuId, WakeupCosts};

/// What manages one guest.
#[derive(Debug)]
pub(crate) struct Gleaner {
    managed: Managed,
    policy: GuestPolicy,
    zero: WindowZero,
    windows: u64,
    /// Their length together.
    time: Nanos,
    pub(crate) decisions: Vec<Decision>,
    /// Active vCPUs times time, up to the last window.
    active_time: f64,
}

/// What `gleaner probe` would measure in a guest with these costs and nobody else on the host: every wake-up takes the
/// same time.
pub fn wakeup_costs(costs: &Costs) -> WakeupCosts {
    let retained = Nanos(costs.ipi_ns + costs.guest_switch_ns);
    let halted = retained + Nanos(costs.vcpu_resume_ns);
    WakeupCosts {
        retained_p50: retained,
        retained_mean: retained,
        retained_p99: retained,
        halted_p50: halted,
        halted_mean: halted,
        halted_p99: halted,
    }
}

impl Gleaner {
    pub(crate) fn new(managed: &Managed, costs: &Costs, vcpus: u32) -> Self {
        let policy = if managed.means.polls_in_idle_task() {
            GuestPolicy::new(managed.policy, managed.profile, managed.params.clone(), None, CpuSet::first(vcpus))
                .by(managed.means, managed.timeout.map(Nanos))
        } else {
            Self::by_yielding(managed, costs, vcpus)
        };
        Self {
            managed: managed.clone(),
            policy,
            zero: WindowZero::default(),
            windows: 0,
            time: Nanos::ZERO,
            decisions: Vec::new(),
            active_time: 0.0,
        }
    }

    fn by_yielding(managed: &Managed, costs: &Costs, vcpus: u32) -> GuestPolicy {
        let mut params = managed.params.clone();
        let (mut profile, mut measured) = (managed.profile, Some(wakeup_costs(costs)));
        if let Some(timeout) = managed.timeout {
            // As `gleaner run --retain-for` has it: nothing is measured, and what was given is not doubted.
            params.timeout_unmeasured_balanced_us = (timeout / 1_000).max(1);
            params.timeout_min_us = params.timeout_min_us.min(params.timeout_unmeasured_balanced_us);
            params.timeout_max_us = params.timeout_max_us.max(params.timeout_unmeasured_balanced_us);
            params.retention_trials = false;
            (profile, measured) = (gleaner_model::Profile::Balanced, None);
        }
        GuestPolicy::new(managed.policy, profile, params, measured, CpuSet::first(vcpus))
    }

    /// Its yielding threads, one for each vCPU.
    pub(crate) fn yielder(managed: &Managed) -> Option<Box<Yielder>> {
        let yields = managed.policy.retains() && !managed.means.polls_in_idle_task();
        yields.then(|| Box::new(Yielder::new(&managed.params, managed.signalled)))
    }

    /// Shorter than the usual one while a trial is over the sooner for it, as the daemon has it.
    fn next_window(&self) -> Time {
        let shorter = match self.policy.urgency() {
            Urgency::None => 1,
            Urgency::Some => 4,
            Urgency::Most => 10,
        };
        self.managed.window / shorter
    }

    pub(crate) fn active_mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.active_time / self.time.as_f64())
    }

    pub(crate) fn timeout(&self) -> Time {
        self.policy.timeout().0
    }
}

impl World {
    /// The managed program starts.
    pub(crate) fn gleaner_begins(&mut self, vm: VmIx) {
        let Some(gleaner) = &mut self.vms[vm.at()].gleaner else { return };
        if gleaner.managed.policy == Policy::Off {
            return;
        }
        let (decisions, window) = (gleaner.policy.begin(), gleaner.next_window());
        self.carry_out(vm, decisions);
        self.timers.set(self.slots.window(vm), window);
    }

    pub(crate) fn window_ends(&mut self, vm: VmIx) {
        let Some(mut gleaner) = self.vms[vm.at()].gleaner.take() else { return };
        let first = gleaner.windows == 0;
        let window = self.window(vm, &mut gleaner.zero, Sight::of(&gleaner.managed), first);
        gleaner.windows += 1;
        gleaner.time += window.length;
        gleaner.active_time += gleaner.policy.active().len() as f64 * window.length.as_f64();
        let decisions = gleaner.policy.step(&window);
        let next = self.now + gleaner.next_window();
        let ended = self.vms[vm.at()].totals.threads_left == 0;
        self.vms[vm.at()].gleaner = Some(gleaner);
        self.carry_out(vm, decisions);
        if !ended {
            self.timers.set(self.slots.window(vm), next);
        }
    }

    /// Keeps a vCPU awake for as long when it idles; zero: no longer.
    fn retain(&mut self, vm: VmIx, vcpu: VcpuId, timeout: Nanos) {
        let v = self.vcpu_of(vm, vcpu.0);
        let polls = |gleaner: &Gleaner| gleaner.managed.means.polls_in_idle_task();
        if self.vms[vm.at()].gleaner.as_deref().is_some_and(polls) {
            self.charge(v);
            // An idle period that has begun ends as it began.
            self.vcpus[v.at()].retained_for = timeout.0;
        } else {
            let order = if timeout == Nanos::ZERO { Order::Sleep } else { Order::Retain { timeout } };
            self.order_yielder(v, order);
        }
    }

    fn carry_out(&mut self, vm: VmIx, decisions: Vec<Decision>) {
        let all = self.vms[vm.at()].guest.all;
        for decision in &decisions {
            let active = self.vms[vm.at()].guest.active;
            let bit = |vcpu: VcpuId| 1u64 << vcpu.0;
            match decision.action {
                Action::Retain { vcpu, timeout } => self.retain(vm, vcpu, timeout),
                Action::Release { vcpu } => self.retain(vm, vcpu, Nanos::ZERO),
                Action::Deactivate { vcpu } => self.set_active(vm, active & !bit(vcpu)),
                Action::Activate { vcpu } => self.set_active(vm, active | bit(vcpu)),
                Action::ActivateAll => self.set_active(vm, all),
                // Its observer tells nobody who wakes whom, so no policy asks for it.
                Action::Bind { .. } => {}
            }
        }
        if let Some(gleaner) = &mut self.vms[vm.at()].gleaner {
            gleaner.decisions.extend(decisions);
        }
    }
}
