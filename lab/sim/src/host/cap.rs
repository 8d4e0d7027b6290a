//! A virtual machine's limit, as CFS bandwidth control has it: in every period of 100 ms its vCPUs together may hold
//! pCPUs for the quota; then they wait until the next period begins, whoever else is there or not. What is not used is
//! lost.
//!
//! The kernel hands the quota out to its CPUs 5 ms at a time and looks at ticks, so a real machine is throttled some
//! milliseconds sooner or later; here it is the moment at which the quota is used up.
//!
//! Xen's credit scheduler has another kind of cap, by credit ([`super::credit`]); both have vCPUs leave, and join
//! again, as here.

use crate::ids::{VcpuIx, VmIx};
use crate::world::{Cause, Place, World};

impl World {
    /// One vCPU more, or one less, holds a pCPU.
    pub(super) fn cap_holds(&mut self, vm: VmIx, more: bool) {
        let (now, slot) = (self.now, self.slots.cap(vm));
        let Some(cap) = &mut self.vms[vm.at()].cap else { return };
        cap.charge(now);
        cap.holding = if more { cap.holding + 1 } else { cap.holding - 1 };
        match if cap.holding == 0 && !cap.throttled { None } else { cap.due(now) } {
            Some(due) => self.timers.set(slot, due),
            None => self.timers.cancel(slot),
        }
    }

    pub(crate) fn is_throttled(&self, v: VcpuIx) -> bool {
        let vcpu = &self.vcpus[v.at()];
        vcpu.entity.parked || self.vms[vcpu.vm.at()].cap.is_some_and(|cap| cap.throttled)
    }

    /// The quota is used up, or a new period begins.
    pub(crate) fn cap_fires(&mut self, vm: VmIx) {
        let (now, slot) = (self.now, self.slots.cap(vm));
        let Some(cap) = &mut self.vms[vm.at()].cap else { return };
        cap.charge(now);
        let before = std::mem::replace(&mut cap.throttled, cap.left <= 0);
        let after = cap.throttled;
        if cap.throttled || cap.holding > 0 {
            let due = cap.due(now).unwrap_or(cap.period_ends);
            self.timers.set(slot, due);
        }
        for index in 0..self.vms[vm.at()].vcpus {
            let v = self.vcpu_of(vm, index);
            match (before, after) {
                (false, true) => self.throttle(v),
                (true, false) if self.vcpus[v.at()].place == Place::Ready => self.unthrottle(v),
                _ => {}
            }
        }
    }

    /// The vCPU leaves its pCPU or its queue.
    pub(super) fn throttle(&mut self, v: VcpuIx) {
        let p = self.vcpus[v.at()].pcpu;
        self.charge(v);
        match self.vcpus[v.at()].place {
            Place::Halted => {}
            Place::Polling => self.vacate(v),
            Place::Ready => {
                self.host.pcpus[p.at()].queue.remove(v);
                self.dequeued(p, v);
                self.sleeps(v);
                self.arm_slice(p);
            }
            Place::Running => {
                self.sleeps(v);
                let vcpu = &mut self.vcpus[v.at()];
                vcpu.place = Place::Ready;
                vcpu.placed_at = self.now;
                vcpu.totals.preemptions += 1;
                self.timers.cancel(self.slots.run(v));
                self.leave_pcpu(p);
                self.trace(v);
                self.look(p, Cause::Nothing);
            }
        }
    }

    /// For the scheduler it is as if it slept.
    fn sleeps(&mut self, v: VcpuIx) {
        let base = self.base(self.vcpus[v.at()].pcpu);
        let scheduler = self.scheduler();
        scheduler.sleep(&mut self.vcpus[v.at()].entity, base);
        self.group_loses(v);
    }

    pub(super) fn unthrottle(&mut self, v: VcpuIx) {
        self.charge(v);
        // It has waited since it was throttled, or woke.
        let since = self.vcpus[v.at()].placed_at;
        self.joins(v, false);
        self.vcpus[v.at()].placed_at = since;
    }
}
