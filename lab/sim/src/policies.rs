//! Gleaner in a simulated guest: the policy that ships, fed by windows, its decisions carried out on vCPUs, idle tasks
//! and yielding threads.

use crate::ids::VmIx;
use crate::observer::Sight;
use crate::world::{Gleaner, World};
use gleaner_model::{Action, Decision, Nanos, Order, Policy, VcpuId};

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
            }
        }
        if let Some(gleaner) = &mut self.vms[vm.at()].gleaner {
            gleaner.decisions.extend(decisions);
        }
    }
}
