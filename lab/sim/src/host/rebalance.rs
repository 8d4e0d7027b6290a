//! A busy pCPU pulls vCPUs from a busier one, now and then.
//!
//! As `load_balance` of Linux 3.9 (kernel/sched/fair.c) does: a pCPU compares the pCPUs that share its last-level
//! cache, and the first of each cache's pCPUs compares the caches. Load is the sum of the weights of all that are
//! runnable. It pulls if the busiest one's load is 1.25 times its own (`imbalance_pct` of `SD_CPU_INIT`), as much as is
//! missing to the mean (`calculate_imbalance`), nobody who ran within the last
//! 0.5 ms (`task_hot`) and nobody with twice the load that is to be moved (`move_tasks`). A busy pCPU looks every 64 to
//! 256 ms within the cache (`busy_factor` 64, `balance_interval` 1 to 4 ms, doubled whenever all is balanced), and
//! every 256 to 1,024 ms beyond (`SD_NODE_INIT`).
//!
//! Left out: `nr_balance_failed` and what follows of it (hot ones are moved after some failures, running ones are
//! pushed), loads averaged over ticks. Idle pCPUs take what waits when they become idle (`balance`).

use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx};
use crate::world::{Place, Pulls, World};
use std::ops::Range;

const MS: Time = 1_000_000;
/// `imbalance_pct`.
const PERCENT: u64 = 125;
/// `sysctl_sched_migration_cost`.
const HOT: Time = 500_000;
/// Most that one look moves (`sysctl_sched_nr_migrate`).
const MOVES_MAX: usize = 32;
/// Shortest and longest interval while busy: within the cache, and beyond it.
const INTERVALS: [(Time, Time); 2] = [(64 * MS, 256 * MS), (256 * MS, 1_024 * MS)];

/// pCPUs that are compared as one.
#[derive(Clone, Copy, Debug)]
struct Load {
    from: PcpuIx,
    /// The one behind its last.
    to: usize,
    pcpus: u64,
    /// Per pCPU.
    mean: u64,
    runnable: u64,
    per_vcpu: u64,
}

/// `find_busiest_group` and `calculate_imbalance`: which one to pull from, and how much. `this` is one of `all`.
fn imbalance(all: &[Load], this: &Load) -> Option<(Load, u64)> {
    let overloaded = all.iter().filter(|one| one.from != this.from && one.runnable > one.pcpus);
    // The first of equals, as the kernel's.
    let busiest = overloaded.fold(
        None,
        |most: Option<&Load>, one| {
            if most.is_none_or(|most| one.mean > most.mean) { Some(one) } else { most }
        },
    )?;
    let pcpus: u64 = all.iter().map(|one| one.pcpus).sum();
    let mean = all.iter().map(|one| one.mean * one.pcpus).sum::<u64>() / pcpus.max(1);
    if this.mean >= busiest.mean || this.mean >= mean || busiest.mean * 100 <= PERCENT * this.mean {
        return None;
    }
    let pull = ((busiest.mean.saturating_sub(mean)) * busiest.pcpus).min((mean - this.mean) * this.pcpus);
    if pull >= busiest.per_vcpu {
        return Some((*busiest, pull));
    }
    // `fix_small_imbalance`.
    let times = if this.runnable > 0 && busiest.per_vcpu > this.per_vcpu { 1 } else { 2 };
    let per_pcpu = busiest.per_vcpu / busiest.pcpus.max(1);
    let small = busiest.mean - this.mean + per_pcpu >= per_pcpu * times;
    (small || pull > 0).then_some((*busiest, if small { busiest.per_vcpu } else { pull }))
}

impl World {
    pub(crate) fn pulls_begin(&mut self) {
        if !self.host.config.rebalances || !self.scheduler().has_virtual_time() || self.host.classes_of.is_empty() {
            return;
        }
        for p in (0..self.host.pcpus.len()).map(PcpuIx::of) {
            // Pinned vCPUs alone: nothing to pull.
            if self.host.classes_of[p.at()].is_empty() {
                continue;
            }
            let interval = INTERVALS.map(|(least, _)| least);
            let beyond = self.llc_of(p).0 == p.at() && self.host.config.llc_pcpus > 0;
            let next = [interval[0], if beyond { interval[1] } else { Time::MAX }];
            self.host.pcpus[p.at()].pulls = Pulls { interval, next };
            self.pulls_at(p, next[0].min(next[1]));
        }
    }

    fn pulls_at(&mut self, p: PcpuIx, at: Time) {
        let at = self.scheduler().enforced(at);
        self.timers.set(self.slots.pulls(p), at);
    }

    /// `rebalance_domains`.
    pub(crate) fn pcpu_pulls(&mut self, p: PcpuIx) {
        for (level, (least, most)) in INTERVALS.into_iter().enumerate() {
            if self.host.pcpus[p.at()].pulls.next[level] > self.now {
                continue;
            }
            let pulled = self.pull_vcpus(p, level);
            let pulls = &mut self.host.pcpus[p.at()].pulls;
            pulls.interval[level] = if pulled { least } else { (2 * pulls.interval[level]).min(most) };
            pulls.next[level] = self.now + pulls.interval[level];
        }
        let [near, far] = self.host.pcpus[p.at()].pulls.next;
        self.pulls_at(p, near.min(far));
    }

    fn load_of(&self, range: Range<usize>) -> Load {
        let (from, to) = (PcpuIx::of(range.start), range.end);
        let pcpus = range.len() as u64;
        let (load, runnable) = range.fold((0, 0), |(load, n), p| {
            let here = self.load_on(PcpuIx::of(p));
            (load + here.0, n + here.1)
        });
        Load { from, to, pcpus, mean: load / pcpus.max(1), runnable, per_vcpu: load / runnable.max(1) }
    }

    /// `load_balance`: whether anybody moved.
    fn pull_vcpus(&mut self, p: PcpuIx, level: usize) -> bool {
        let size = self.host.config.llc_pcpus.max(1) as usize;
        let pcpus = self.host.pcpus.len();
        let all: Vec<Load> = match level {
            0 => {
                let (from, to) = self.llc_of(p);
                (from..to).map(|p| self.load_of(p..p + 1)).collect()
            }
            _ => (0..pcpus).step_by(size).map(|from| self.load_of(from..(from + size).min(pcpus))).collect(),
        };
        let Some(this) = all.iter().find(|one| (one.from.at()..one.to).contains(&p.at())) else {
            return false;
        };
        let Some((busiest, mut left)) = imbalance(&all, this) else { return false };
        let within = busiest.from.at()..busiest.to;
        // `find_busiest_queue`: the first of equals.
        let Some(source) = within.map(PcpuIx::of).rev().max_by_key(|q| self.load_on(*q).0) else { return false };
        let mut moved = false;
        for _ in 0..MOVES_MAX {
            let Some(v) = self.to_pull(p, source, left) else { break };
            left = left.saturating_sub(u64::from(self.vcpus[v.at()].weight));
            self.moves_to(v, source, p);
            moved = true;
            if left == 0 {
                break;
            }
        }
        moved
    }

    /// The first that waits on `source`, may run on `p`, is not hot, and not too much.
    fn to_pull(&self, p: PcpuIx, source: PcpuIx, left: u64) -> Option<VcpuIx> {
        let fits = |v: VcpuIx| {
            let vcpu = &self.vcpus[v.at()];
            let may = self.host.classes[vcpu.class as usize].allows(p);
            let hot = self.now - vcpu.placed_at < HOT;
            may && !hot && u64::from(vcpu.weight) / 2 <= left
        };
        self.host.pcpus[source.at()].queue.find(fits)
    }

    fn moves_to(&mut self, v: VcpuIx, source: PcpuIx, p: PcpuIx) {
        self.charge(v);
        debug_assert!(self.vcpus[v.at()].place == Place::Ready);
        let since = self.vcpus[v.at()].placed_at;
        self.host.pcpus[source.at()].queue.remove(v);
        self.dequeued(source, v);
        for curr in [source, p].into_iter().filter_map(|p| self.host.pcpus[p.at()].curr).collect::<Vec<_>>() {
            self.charge(curr);
        }
        self.move_virtual_time(v, p);
        let base = self.base(p);
        self.enqueue(p, v);
        // It has waited since it was preempted, or woke.
        self.vcpus[v.at()].placed_at = since;
        self.group_moves(v, p);
        self.arm_slice(source);
        self.check_preemption(p, v, base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(from: u32, mean: u64, runnable: u64) -> Load {
        Load { from: PcpuIx(from), to: from as usize + 1, pcpus: 1, mean, runnable, per_vcpu: mean / runnable.max(1) }
    }

    #[test]
    fn pulls_what_is_missing_to_the_mean_or_one() {
        // Loads 1,024, 3,072 and 2,048: the mean is 2,048, and 1,024 are missing here and too much there.
        let all = [one(0, 1_024, 1), one(1, 3_072, 3), one(2, 2_048, 2)];
        let (busiest, pull) = imbalance(&all, &all[0]).unwrap();
        assert_eq!((busiest.from, pull), (PcpuIx(1), 1_024));
        // The mean is not pulled to by those above it, or at it.
        assert!(imbalance(&all, &all[1]).is_none() && imbalance(&all, &all[2]).is_none());
        // 2,048 are within 125 % of 1,700; and who has one vCPU only has none to give.
        assert!(imbalance(&[one(0, 1_700, 2), one(1, 2_048, 2)], &one(0, 1_700, 2)).is_none());
        assert!(imbalance(&[one(0, 64, 1), one(1, 1_024, 1)], &one(0, 64, 1)).is_none());
        // 1,024 against 2 * 1,024: the mean is 512 away, less than a vCPU. Moving one would only turn it round, but
        // 1,024 + 1,024 is as much as twice 1,024: the kernel moves it.
        let all = [one(0, 1_024, 1), one(1, 2_048, 2)];
        assert_eq!(imbalance(&all, &all[0]).map(|(_, pull)| pull), Some(1_024));
    }
}
