//! Xen's credit scheduler, as in xen/common/sched_credit.c of 4.2: who has credit. [`schedule`] is who runs.
//!
//! ```text
//!   tick of a pCPU (csched_tick, csched_vcpu_acct)      whoever runs pays, loses its boost, and counts as active from now on
//!   accounting, once a period (csched_acct)             active vCPUs get the period's credit by weight; who is in debt is OVER
//!                                                       until the next accounting, who has more than a period's worth stops
//!                                                       being active
//!   wake-up (csched_vcpu_wake)                          UNDER becomes BOOST
//! ```
//!
//! A capped virtual machine's vCPUs share no more credit than the cap, and each that owes more than its part of it at
//! the accounting is parked, by itself, until one at which it owes nothing: with half of four pCPUs a vCPU that
//! computes has two periods and is parked for two.
//!
//! So classes change only at these moments: a vCPU that spends its last credit stays UNDER until the accounting. And
//! credit is for those whom a tick has found running: a vCPU that computes between ticks never pays with its class.
//!
//! What is different from Xen: queues are sorted anew at the accounting, not at each pCPU's next tick; virtual machines
//! that could use more than others leave are not moved to the front of the list.

mod schedule;

use crate::config::{CreditParams, Scheduler};
use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx};
use crate::world::{Entity, Place, World, signed};

/// When the `n`th tick of all pCPUs together is. Xen starts each pCPU's as it is brought up, one after the other, so
/// they lie apart; evenly, for lack of anything better.
fn tick_at(params: &CreditParams, n: u64, pcpus: u64) -> Time {
    params.tick * (n / pcpus + 1) + params.tick * (n % pcpus) / pcpus
}

/// What a virtual machine's active vCPUs get, each, and what is left for others to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    each: i64,
    total: i64,
}

fn up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b.max(1)
}

/// csched_acct's division, for `active` vCPUs of `weight` each: `total` is shared by `weights`, `after` have yet to
/// come, all together owe `debt`. Nobody gets more than it could use, or than its cap.
fn share(
    (active, weight, cap): (i64, i64, i64),
    (weights, after): (i64, i64),
    total: i64,
    (period, debt): (i64, i64),
) -> Share {
    let mine = active * weight;
    let peak = (active * period + if debt > 0 { up(debt * mine, weights) } else { 0 }).min(cap);
    let fair = up(total * mine, weights);
    if fair < peak {
        return Share { each: up(fair, active), total };
    }
    let left = if after > 0 { up((fair - peak) * weights, after) } else { 0 };
    Share { each: up(peak, active), total: total + left }
}

impl Entity {
    /// Its credit and class after an accounting that gave it `credit`, and whether it is parked: it is when it owes
    /// more than `part`, and no longer when it owes nothing.
    fn accounted(&mut self, credit: i64, period: i64, part: i64) {
        self.credit += credit;
        (self.over, self.boosted) = (self.credit < 0, false);
        self.parked = self.over && (self.parked || self.credit < -part);
        self.credit = self.credit.max(-period);
        if self.credit > period {
            (self.active, self.credit) = (false, self.credit / 2);
        }
    }

    /// burn_credits: it pays for what it ran since it last did.
    pub(super) fn burns(&mut self) {
        self.credit -= std::mem::take(&mut self.unpaid);
    }
}

impl World {
    /// The clocks of the accounting and of the ticks begin.
    pub(crate) fn credit_begins(&mut self) {
        let Scheduler::Credit(params) = self.scheduler() else { return };
        self.timers.set(self.slots.credit(), params.period);
        self.timers.set(self.slots.tick(), tick_at(&params, 0, self.host.pcpus.len() as u64));
    }

    /// A pCPU's tick.
    pub(crate) fn credit_tick(&mut self) {
        let Scheduler::Credit(params) = self.scheduler() else { return };
        let pcpus = self.host.pcpus.len() as u64;
        let p = PcpuIx::of(usize::try_from(self.host.ticks % pcpus).unwrap_or(0));
        self.host.ticks += 1;
        self.timers.set(self.slots.tick(), tick_at(&params, self.host.ticks, pcpus));
        let Some(curr) = self.host.pcpus[p.at()].curr.filter(|curr| self.vcpus[curr.at()].runs()) else { return };
        self.charge(curr);
        let entity = &mut self.vcpus[curr.at()].entity;
        entity.burns();
        (entity.boosted, entity.active) = (false, true);
    }

    /// Gives credit out.
    pub(crate) fn give_credit(&mut self) {
        let Scheduler::Credit(params) = self.scheduler() else { return };
        self.timers.set(self.slots.credit(), self.now + params.period);
        let mut active = vec![0i64; self.vms.len()];
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.entity.active) {
            active[vcpu.vm.at()] += 1;
        }
        let weight = |vm: usize| i64::from(self.vms[vm].weight.max(1));
        let weights: i64 = active.iter().enumerate().map(|(vm, active)| active * weight(vm)).sum();
        if weights == 0 {
            self.host.credit_balance = 0;
            return;
        }
        let (period, debt) = (signed(params.period), -self.host.credit_balance.min(0));
        let mut total = period * i64::try_from(self.host.pcpus.len()).unwrap_or(1) + debt;
        // What each of a virtual machine's active vCPUs gets, and may owe without being parked.
        let (mut after, mut each) = (weights, vec![(0, i64::MAX); active.len()]);
        for vm in (0..active.len()).filter(|vm| active[*vm] > 0) {
            after -= active[vm] * weight(vm);
            let cap =
                self.vms[vm].credit_cap_permille.map_or(i64::MAX, |permille| up(i64::from(permille) * period, 1_000));
            let share = share((active[vm], weight(vm), cap), (weights, after), total, (period, debt));
            each[vm] = (share.each, if cap == i64::MAX { cap } else { up(cap, active[vm]) });
            total = share.total;
        }
        self.host.credit_balance = 0;
        let mut parking = Vec::new();
        for (v, vcpu) in self.vcpus.iter_mut().enumerate().filter(|(_, vcpu)| vcpu.entity.active) {
            let (before, (gets, part)) = (vcpu.entity.parked, each[vcpu.vm.at()]);
            vcpu.entity.accounted(gets, period, part);
            self.host.credit_balance += vcpu.entity.credit;
            if vcpu.entity.parked != before {
                parking.push(VcpuIx::of(v));
            }
        }
        for p in 0..self.host.pcpus.len() {
            self.sort_queue(p);
        }
        for v in parking {
            self.parks(v);
        }
    }

    /// vcpu_pause_nosync and vcpu_unpause, which does not boost: a parked vCPU has no pCPU and is in no queue.
    fn parks(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].entity.parked {
            self.throttle(v);
        } else if self.vcpus[v.at()].place == Place::Ready {
            self.unthrottle(v);
        }
    }

    fn sort_queue(&mut self, p: usize) {
        let scheduler = self.scheduler();
        let waiting: Vec<VcpuIx> = self.host.pcpus[p].queue.iter().collect();
        for v in waiting {
            let entity = &self.vcpus[v.at()].entity;
            let queue = &mut self.host.pcpus[p].queue;
            queue.remove(v);
            queue.push(v, scheduler.key(entity));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_pcpus_lie_evenly_apart() {
        let params = CreditParams::XEN;
        let at: Vec<Time> = (0..6).map(|n| tick_at(&params, n, 4) / 100_000).collect();
        assert_eq!(at, [100, 125, 150, 175, 200, 225]);
    }

    #[test]
    fn credit_is_shared_by_weight_and_active_vcpus() {
        const NONE: i64 = i64::MAX;
        // Four pCPUs, a period of 30. Eight active vCPUs of equal weight, in two virtual machines: 15 each.
        assert_eq!(share((4, 1, NONE), (8, 4), 120, (30, 0)), Share { each: 15, total: 120 });
        // One with four beside one with a single vCPU: 24 each, by vCPU, not by machine.
        assert_eq!(share((4, 1, NONE), (5, 1), 120, (30, 0)), Share { each: 24, total: 120 });
        // One vCPU of weight 4 beside four of weight 1 would have 60, can use 30 only; what it leaves goes to the four:
        // its share of a total that is 30 * 8 / 4 larger, 90 of it, 23 each rounded up.
        assert_eq!(share((1, 4, NONE), (8, 4), 120, (30, 0)), Share { each: 30, total: 180 });
        assert_eq!(share((4, 1, NONE), (8, 0), 180, (30, 0)).each, 23);
        // Where all together owe 8, each may have a part of that more than it can use.
        assert_eq!(share((2, 1, NONE), (2, 0), 128, (30, 8)).each, 34);
        // Half of four pCPUs: 60 for the four.
        assert_eq!(share((4, 1, 60), (4, 0), 120, (30, 0)).each, 15);
    }

    #[test]
    fn the_accounting_makes_the_class() {
        let period = 30;
        let after = |credit, given| {
            let mut entity = Entity { credit, active: true, boosted: true, ..Entity::default() };
            entity.accounted(given, period, i64::MAX);
            (entity.credit, entity.over, entity.boosted, entity.active)
        };
        assert_eq!(after(-20, 15), (-5, true, false, true));
        assert_eq!(after(-15, 15), (0, false, false, true));
        // What is owed is limited; who has more than a period's worth is not active any more and keeps half.
        assert_eq!(after(-90, 15), (-30, true, false, true));
        assert_eq!(after(17, 15), (16, false, false, false));
    }

    #[test]
    fn who_owes_more_than_its_part_is_parked_until_it_owes_nothing() {
        // A part of 15: parked at -16, not at -15, still at -1, not at 0.
        let after = |parked, credit| {
            let mut entity = Entity { credit, parked, active: true, ..Entity::default() };
            entity.accounted(0, 30, 15);
            entity.parked
        };
        assert_eq!([after(false, -15), after(false, -16), after(false, -40)], [false, true, true]);
        assert_eq!([after(true, -1), after(true, 0)], [true, false]);
    }
}
