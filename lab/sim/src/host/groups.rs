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
use crate::world::World;

/// `MIN_SHARES`.
const LEAST: f64 = 2.0;
/// A period of the load average, in bits of nanoseconds; 32 of them halve it (`LOAD_AVG_PERIOD`).
const PERIOD_BITS: u32 = 20;
const HALF_LIFE: usize = 32;
/// With more runnable than these, the latency grows (`sched_nr_latency`).
const LATENCY_ENTITIES: u64 = 8;

/// A virtual machine's.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    weight: f64,
    first: VcpuIx,
    members: Vec<Member>,
}

/// One of its vCPUs.
#[derive(Clone, Copy, Debug)]
struct Member {
    pcpu: PcpuIx,
    runnable: bool,
    /// Runnable part of the time, lately, at `since`.
    load: f64,
    since: Time,
}

/// What is left of a load average after so long a time. Built from square roots, which are exact everywhere.
#[derive(Clone, Debug)]
struct Decay([f64; HALF_LIFE + 1]);

impl Decay {
    fn new() -> Self {
        let period = (0..HALF_LIFE.ilog2()).fold(0.5_f64, |root, _| root.sqrt());
        let mut left = [1.0; HALF_LIFE + 1];
        (1..=HALF_LIFE).for_each(|n| left[n] = left[n - 1] * period);
        Self(left)
    }
}

impl Member {
    fn load_at(&self, now: Time) -> f64 {
        let left = decayed(now - self.since);
        if self.runnable { 1.0 - left * (1.0 - self.load) } else { left * self.load }
    }

    fn update(&mut self, now: Time) {
        self.load = self.load_at(now);
        self.since = now;
    }
}

/// What is left of a load average after so long a time.
fn decayed(time: Time) -> f64 {
    static TABLE: std::sync::LazyLock<Decay> = std::sync::LazyLock::new(Decay::new);
    let periods = usize::try_from(time >> PERIOD_BITS).unwrap_or(usize::MAX);
    let Some(halvings) = i32::try_from(periods / HALF_LIFE).ok().filter(|n| *n < 64) else { return 0.0 };
    let within = (time & ((1 << PERIOD_BITS) - 1)) as f64 / f64::from(1 << PERIOD_BITS);
    let (from, to) = (TABLE.0[periods % HALF_LIFE], TABLE.0[periods % HALF_LIFE + 1]);
    (from + (to - from) * within) * 0.5_f64.powi(halvings)
}

impl Group {
    fn new(weight: u32, first: VcpuIx, pcpus: impl Iterator<Item = PcpuIx>) -> Self {
        let member = |pcpu| Member { pcpu, runnable: false, load: 0.0, since: 0 };
        Self { weight: f64::from(weight), first, members: pcpus.map(member).collect() }
    }

    fn member(&mut self, v: VcpuIx) -> &mut Member {
        &mut self.members[v.at() - self.first.at()]
    }

    fn runnable_on(&self, p: PcpuIx) -> usize {
        self.members.iter().filter(|member| member.runnable && member.pcpu == p).count()
    }

    /// `calc_cfs_shares`: its weight on `p`, and how many vCPUs divide it.
    fn shares(&self, p: PcpuIx, now: Time) -> (f64, usize) {
        let (mut elsewhere, mut here) = (0.0, 0);
        for member in &self.members {
            if member.pcpu != p {
                elsewhere += member.load_at(now);
            } else if member.runnable {
                here += 1;
            }
        }
        let load = here as f64;
        let shares = self.weight * load / (elsewhere + load).max(f64::EPSILON);
        (shares.clamp(LEAST, self.weight.max(LEAST)), here)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    fn group(vcpus: u32) -> Group {
        Group::new(1_024, VcpuIx(0), (0..vcpus).map(PcpuIx))
    }

    #[test]
    fn a_load_average_halves_in_32_periods() {
        for (periods, left) in [(0, 1.0), (16, 0.5_f64.sqrt()), (32, 0.5), (64, 0.25), (32 * 64, 0.0)] {
            assert!((decayed(periods << PERIOD_BITS) - left).abs() < 1e-12, "{periods}");
        }
        // Runnable for 32 periods: half; then asleep for 32: a quarter.
        let mut member = Member { pcpu: PcpuIx(0), runnable: true, load: 0.0, since: 0 };
        member.update(32 << PERIOD_BITS);
        member.runnable = false;
        assert!((member.load_at(64 << PERIOD_BITS) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_group_weight_is_divided_by_load() {
        // The first to wake has it all; after a second all 16 that are busy have a sixteenth.
        let mut busy = group(16);
        busy.member(VcpuIx(0)).runnable = true;
        assert_eq!(busy.shares(PcpuIx(0), 0), (1_024.0, 1));
        busy.members.iter_mut().for_each(|member| member.runnable = true);
        // All woke at once: nobody has any load yet.
        assert_eq!(busy.shares(PcpuIx(7), 0), (1_024.0, 1));
        assert!((busy.shares(PcpuIx(7), 3_000 * MS).0 - 64.0).abs() < 1e-6);
        // Two of them on one pCPU: 2 / (14 + 2).
        busy.member(VcpuIx(8)).pcpu = PcpuIx(7);
        let (shares, here) = busy.shares(PcpuIx(7), 3_000 * MS);
        assert!((shares - 128.0).abs() < 1e-6 && here == 2, "{shares}");
        // A virtual machine with one busy vCPU of 16.
        let mut lone = group(16);
        lone.member(VcpuIx(3)).runnable = true;
        assert_eq!(lone.shares(PcpuIx(3), 3_000 * MS), (1_024.0, 1));
    }
}
