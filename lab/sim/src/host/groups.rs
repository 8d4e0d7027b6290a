//! Groups of the host's scheduler: each virtual machine has one, and its weight is divided among its pCPUs by load.
//!
//! The mechanism is that of Linux 3.8 and later (kernel/sched/fair.c). On a pCPU, the group's entity weighs
//! (`calc_cfs_shares`)
//!
//! ```text
//!   weight of the group * load here now / (load averages elsewhere + load here now)
//! ```
//!
//! where a vCPU's load is 1,024 while it is runnable, and its load average a geometric one with a half-life of 32
//! periods of 2^20 ns (`__update_entity_runnable_avg`, `decay_load`). So the entities of a virtual machine with 16 busy
//! vCPUs weigh 64 each, and that of one with one busy vCPU weighs 1,024. When it is worked out matters as much as how:
//! when a vCPU wakes, sleeps, or moves (`update_cfs_shares` in `enqueue_entity` and `dequeue_entity`). So a vCPU that
//! never sleeps keeps the weight it woke with: all of the group's, if the virtual machine had been idle. Linux 3.12 and
//! later do it at ticks too (`entity_tick`), which is not modelled: the paper's host had 3.9.
//!
//! From the weight follow the slice (`sched_slice`), when a tick ends it (`check_preempt_tick`) and whether a wake-up
//! preempts (`wakeup_gran`). What is simpler here: vCPUs of one virtual machine on one pCPU are no queue of their own
//! within the group's entity, but have equal parts of its weight; and load averages are exact where the kernel rounds,
//! and lets an eighth pass before it tells the group.

use crate::config::Scheduler;
use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx, VmIx};
use crate::world::{Group, Member, World};

/// With more runnable than these, the latency grows (`sched_nr_latency`).
const LATENCY_ENTITIES: u64 = 8;

impl World {
    fn has_groups(&self) -> bool {
        self.host.config.groups && matches!(self.scheduler(), Scheduler::Window(_))
    }

    /// The next virtual machine's vCPUs are all there.
    pub(crate) fn add_group(&mut self, weight: u32, first: VcpuIx) {
        if self.has_groups() {
            let pcpus = self.vcpus[first.at()..].iter().map(|vcpu| vcpu.pcpu);
            self.host.groups.push(Group::new(weight, first, pcpus));
        }
    }

    /// A vCPU of it becomes runnable on `p`.
    pub(super) fn group_gets(&mut self, v: VcpuIx, p: PcpuIx) {
        self.group_changes(v, |member| (member.pcpu, member.runnable) = (p, true));
    }

    /// A vCPU of it sleeps.
    pub(super) fn group_loses(&mut self, v: VcpuIx) {
        self.group_changes(v, |member| member.runnable = false);
    }

    /// A waiting vCPU of it moves.
    pub(super) fn group_moves(&mut self, v: VcpuIx, to: PcpuIx) {
        self.group_changes(v, |member| member.pcpu = to);
    }

    fn group_changes(&mut self, v: VcpuIx, change: impl Fn(&mut Member)) {
        let (now, vm) = (self.now, self.vcpus[v.at()].vm);
        let Some(group) = self.host.groups.get_mut(vm.at()) else { return };
        let member = group.member(v);
        let from = member.pcpu;
        member.update(now);
        change(member);
        let to = member.pcpu;
        self.reweigh(vm, to);
        if from != to {
            self.reweigh(vm, from);
        }
    }

    /// `update_cfs_shares`.
    fn reweigh(&mut self, vm: VmIx, p: PcpuIx) {
        let group = &self.host.groups[vm.at()];
        let (shares, here) = group.shares(p, self.now);
        if here == 0 {
            return;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the group's weight")]
        let weight = (shares / here as f64).max(1.0) as u32;
        for n in 0..group.members.len() {
            let member = self.host.groups[vm.at()].members[n];
            let v = self.vcpu_of(vm, u32::try_from(n).unwrap_or(0));
            if member.runnable && member.pcpu == p && self.vcpus[v.at()].weight != weight {
                // What ran so far ran with the old weight.
                self.charge(v);
                self.vcpus[v.at()].weight = weight;
            }
        }
    }

    /// The weight by which a wake-up is judged against `curr`: the group's entity's, or within a group the vCPU's own.
    pub(super) fn group_weight(&self, v: VcpuIx, curr: VcpuIx) -> u32 {
        let vcpu = &self.vcpus[v.at()];
        match self.host.groups.get(vcpu.vm.at()) {
            None => 1_024,
            Some(_) if self.vcpus[curr.at()].vm == vcpu.vm => vcpu.weight,
            Some(group) => vcpu.weight * u32::try_from(group.runnable_on(vcpu.pcpu)).unwrap_or(1),
        }
    }

    /// Weights of all that are runnable on `p`, and how many they are.
    pub(super) fn load_on(&self, p: PcpuIx) -> (u64, u64) {
        let pcpu = &self.host.pcpus[p.at()];
        let all = pcpu.curr.into_iter().chain(pcpu.queue.iter());
        all.fold((0, 0), |(load, n), v| (load + u64::from(self.vcpus[v.at()].weight), n + 1))
    }

    /// How long `curr` has until a tick preempts it (`check_preempt_tick`, `sched_slice`); `None` where there are no
    /// groups. Virtual time goes 1,024 / weight times as fast as time.
    pub(super) fn group_slice_left(&self, p: PcpuIx, curr: VcpuIx) -> Option<Time> {
        let Scheduler::Window(params) = self.scheduler() else { return None };
        if self.host.groups.is_empty() || self.slice_of(curr).is_some() {
            return None;
        }
        let (entity, weight) = (&self.vcpus[curr.at()].entity, u64::from(self.vcpus[curr.at()].weight));
        let (load, runnable) = self.load_on(p);
        // `__sched_period`.
        let period = if runnable > LATENCY_ENTITIES { runnable * params.min_granularity } else { params.latency };
        let slice = period.saturating_mul(weight) / load.max(1);
        let left = slice.saturating_sub(entity.used);
        let Some(first) = self.host.pcpus[p.at()].queue.first() else { return Some(left) };
        let ahead = entity.vruntime - self.vcpus[first.at()].entity.vruntime;
        let until_ahead = u64::try_from(i64::try_from(slice).unwrap_or(i64::MAX) - ahead).unwrap_or(0);
        let until_ahead = until_ahead.saturating_mul(weight) / 1_024;
        Some(left.min(until_ahead.max(params.min_granularity.saturating_sub(entity.used))))
    }
}
