//! Gleaner in a simulated guest: the policy that ships, fed by windows, its decisions carried out on vCPUs and yielding
//! threads.

use crate::config::Managed;
use crate::costs::Costs;
use crate::engine::Time;
use crate::guest::Yielder;
use crate::ids::VmIx;
use crate::observer::{Sight, WindowZero};
use crate::world::World;
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{Action, CpuSet, Decision, Nanos, Order, Policy, VcpuId, WakeupCosts};

/// What manages one guest.
#[derive(Debug)]
pub(crate) struct Gleaner {
    managed: Managed,
    policy: GuestPolicy,
    zero: WindowZero,
    windows: u64,
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
        let policy = GuestPolicy::new(managed.policy, profile, params, measured, CpuSet::first(vcpus));
        Self {
            managed: managed.clone(),
            policy,
            zero: WindowZero::default(),
            windows: 0,
            decisions: Vec::new(),
            active_time: 0.0,
        }
    }

    /// Its yielding threads, one for each vCPU.
    pub(crate) fn yielder(managed: &Managed) -> Option<Box<Yielder>> {
        managed.policy.retains().then(|| Box::new(Yielder::new(&managed.params, managed.signalled)))
    }

    pub(crate) fn active_mean(&self) -> Option<f64> {
        let length = Nanos(self.managed.window).times(self.windows).as_f64();
        (self.windows > 0).then(|| self.active_time / length)
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
        let (decisions, window) = (gleaner.policy.begin(), gleaner.managed.window);
        self.carry_out(vm, decisions);
        self.timers.set(self.slots.window(vm), window);
    }

    pub(crate) fn window_ends(&mut self, vm: VmIx) {
        let Some(mut gleaner) = self.vms[vm.at()].gleaner.take() else { return };
        let first = gleaner.windows == 0;
        let window = self.window(vm, &mut gleaner.zero, Sight::of(&gleaner.managed), first);
        gleaner.windows += 1;
        gleaner.active_time += gleaner.policy.active().len() as f64 * window.length.as_f64();
        let decisions = gleaner.policy.step(&window);
        let next = self.now + gleaner.managed.window;
        let ended = self.vms[vm.at()].totals.threads_left == 0;
        self.vms[vm.at()].gleaner = Some(gleaner);
        self.carry_out(vm, decisions);
        if !ended {
            self.timers.set(self.slots.window(vm), next);
        }
    }

    fn carry_out(&mut self, vm: VmIx, decisions: Vec<Decision>) {
        let all = self.vms[vm.at()].guest.all;
        for decision in &decisions {
            let active = self.vms[vm.at()].guest.active;
            let bit = |vcpu: VcpuId| 1u64 << vcpu.0;
            match decision.action {
                Action::Retain { vcpu, timeout } => {
                    self.order_yielder(self.vcpu_of(vm, vcpu.0), Order::Retain { timeout });
                }
                Action::Release { vcpu } => self.order_yielder(self.vcpu_of(vm, vcpu.0), Order::Sleep),
                Action::Deactivate { vcpu } => self.set_active(vm, active & !bit(vcpu)),
                Action::Activate { vcpu } => self.set_active(vm, active | bit(vcpu)),
                Action::ActivateAll => self.set_active(vm, all),
            }
        }
        if let Some(gleaner) = &mut self.vms[vm.at()].gleaner {
            gleaner.decisions.extend(decisions);
        }
    }
}
