//! A virtual machine's limit, as CFS bandwidth control has it: in every period of 100 ms its vCPUs together may hold
//! pCPUs for the quota; then they wait until the next period begins, whoever else is there or not. What is not used is
//! lost.
//!
//! The kernel hands the quota out to its CPUs 5 ms at a time and looks at ticks, so a real machine is throttled some
//! milliseconds sooner or later; here it is the moment at which the quota is used up.
//!
//! Xen's credit scheduler has another kind of cap, by credit ([`super::credit`]); both have vCPUs leave, and join
//! again, as here.

use super::Cause;
use crate::engine::Time;
use crate::ids::{VcpuIx, VmIx};
use crate::vcpu::Place;
use crate::world::World;

/// cpu.cfs_period_us, cpu.max: the default.
pub(crate) const PERIOD: Time = 100_000_000;

/// How much of its quota a virtual machine has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    quota: i64,
    /// Of this period, at `since`. An overrun of a few nanoseconds is the next period's.
    left: i64,
    since: Time,
    period_ends: Time,
    /// vCPUs that hold a pCPU.
    holding: u32,
    pub(crate) throttled: bool,
}

impl Cap {
    /// So many thousandths of a CPU; `None` for 0, which is no limit.
    pub(crate) fn new(permille: u32) -> Option<Self> {
        let quota = i64::try_from(PERIOD / 1_000 * u64::from(permille)).unwrap_or(i64::MAX);
        (permille > 0).then_some(Self {
            quota,
            left: quota,
            since: 0,
            period_ends: PERIOD,
            holding: 0,
            throttled: false,
        })
    }

    /// What it lets be held in so long a time.
    pub(crate) fn limit(&self, length: u64) -> u64 {
        let quota = u128::from(u64::try_from(self.quota).unwrap_or(0));
        u64::try_from(quota * u128::from(length) / u128::from(PERIOD)).unwrap_or(u64::MAX)
    }

    /// Charges what was held up to `now`; a new period brings a new quota.
    fn charge(&mut self, now: Time) {
        let held = i64::try_from(now - self.since).unwrap_or(i64::MAX);
        self.left -= held.saturating_mul(i64::from(self.holding));
        self.since = now;
        if now >= self.period_ends {
            self.period_ends = (now / PERIOD + 1) * PERIOD;
            self.left = self.quota + self.left.min(0);
        }
    }

    /// When it has to be looked at again, if nothing comes in between.
    fn due(&self, now: Time) -> Option<Time> {
        if self.throttled {
            return Some(self.period_ends);
        }
        let left = u64::try_from(self.left).unwrap_or(0);
        let lasts = left.checked_add(u64::from(self.holding) - 1)?.checked_div(u64::from(self.holding))?;
        Some(self.period_ends.min(now + lasts))
    }
}

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
