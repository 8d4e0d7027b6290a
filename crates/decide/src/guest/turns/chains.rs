//! Chains: threads of a group that wake one another, and so take turns with one another and with nobody else.
//!
//! ```text
//!   who woke whom ---- weak ties dropped ----> groups of threads ---- too much for one vCPU? ----> chains
//! ```
//!
//! A tie is weak where it is less than a tenth of the wake-ups of the busier of the two. It may be much for a thread
//! that hardly wakes, such as one that writes a log, and nothing for those whose lines it writes. In a pool in which
//! everybody wakes everybody all ties are strong or all are weak: one chain, too large for a vCPU, or none.

use crate::guest::GuestParams;
use gleaner_model::{CpuSet, Nanos, ThreadTime, Ties, Topology, VcpuId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A thread with fewer wake-ups hangs together with nobody.
const WAKES_MIN: u64 = 10;
/// A tie with a smaller share of the wake-ups of the busier one is weak.
const WEAK: f64 = 0.1;
/// Threads that wait for their slices while others of their chain compute wait for longer than this, each time.
const WAITS_FOR_SLICES: Nanos = Nanos::from_millis(1);
/// ... and on average more of them than this run or wait at once.
const AT_ONCE_MAX: f64 = 1.5;

/// Threads that take turns, and the vCPU that they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Their ids, ascending.
    pub threads: Vec<i32>,
    /// How often they woke one another.
    pub wakes: u64,
    /// CPUs that they used.
    pub cpus: f64,
    /// Where they are kept.
    pub vcpu: VcpuId,
}

impl Chain {
    /// What its threads took; `None` where one of them is gone.
    fn time(&self, ties: &Ties) -> Option<ThreadTime> {
        self.threads.iter().try_fold(ThreadTime::default(), |mut all, tid| {
            all += *ties.threads.get(tid)?;
            Some(all)
        })
    }
}

/// The chains of a group that ran for `length`, by id. Those that are too much for a vCPU, or hand over too seldom, are
/// none. No vCPU is chosen yet.
fn found(ties: &Ties, length: Nanos, params: &GuestParams) -> Vec<Chain> {
    let mut pairs: BTreeMap<(i32, i32), u64> = BTreeMap::new();
    let mut all: BTreeMap<i32, u64> = BTreeMap::new();
    let known = |tid: &i32| ties.threads.contains_key(tid);
    for ((waker, woken), wakes) in ties.wakes.iter().filter(|((waker, woken), _)| waker != woken) {
        for tid in [waker, woken].into_iter().filter(|tid| known(tid)) {
            *all.entry(*tid).or_default() += wakes;
        }
        if known(waker) && known(woken) {
            *pairs.entry((*waker.min(woken), *waker.max(woken))).or_default() += wakes;
        }
    }
    pairs.retain(|(a, b), wakes| {
        let (less, more) = (all[a].min(all[b]), all[a].max(all[b]));
        less >= WAKES_MIN && *wakes as f64 >= WEAK * more as f64
    });
    let mut union = Union::default();
    for (a, b) in pairs.keys() {
        union.join(*a, *b);
    }
    let mut chains: BTreeMap<i32, Chain> = BTreeMap::new();
    for (tid, time) in &ties.threads {
        let Some(first) = union.first(*tid) else { continue };
        let empty = Chain { threads: Vec::new(), wakes: 0, cpus: 0.0, vcpu: VcpuId(0) };
        let chain = chains.entry(first).or_insert(empty);
        chain.threads.push(*tid);
        chain.cpus += time.ran.share_of(length);
    }
    for ((a, _), wakes) in &pairs {
        if let Some(chain) = union.first(*a).and_then(|first| chains.get_mut(&first)) {
            chain.wakes += wakes;
        }
    }
    // A wake-up that is answered is two switches.
    let wakes_min = super::SWITCHES_PER_S_MIN / 2.0 * length.as_secs_f64();
    let takes_turns = |chain: &Chain| chain.cpus <= params.turns_cpus_max && chain.wakes as f64 >= wakes_min;
    chains.into_values().filter(takes_turns).collect()
}

/// Several chains, each on one of `vcpus`, the busiest first; `None` where there are not several, or too many.
pub(super) fn placed(
    ties: &Ties,
    length: Nanos,
    vcpus: &CpuSet,
    topology: &Topology,
    params: &GuestParams,
) -> Option<Vec<Chain>> {
    let mut chains = found(ties, length, params);
    if chains.len() < 2 || chains.len() > vcpus.len() {
        return None;
    }
    chains.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then_with(|| a.threads.cmp(&b.threads)));
    let mut free = vcpus.clone();
    let mut taken: Vec<VcpuId> = Vec::new();
    for chain in &mut chains {
        let ran_on = |vcpu: VcpuId| -> Nanos {
            let of = chain.threads.iter().filter_map(|tid| ties.threads.get(tid));
            of.filter(|time| time.vcpu == Some(vcpu)).map(|time| time.ran).sum()
        };
        let beside = |vcpu: VcpuId, same: fn(&[u32; 3], &[u32; 3]) -> bool| {
            let at = |vcpu: VcpuId| {
                let place = topology.place(vcpu);
                [place.node, place.llc, place.core]
            };
            taken.iter().filter(|other| same(&at(**other), &at(vcpu))).count()
        };
        // No core has two while another has none. Where its threads ran, their data is.
        let rank = |vcpu: VcpuId| {
            let cores = beside(vcpu, |a, b| a == b);
            let caches = beside(vcpu, |a, b| a[..2] == b[..2]);
            (cores, Reverse(ran_on(vcpu)), caches, vcpu)
        };
        let vcpu = free.iter().min_by_key(|vcpu| rank(*vcpu))?;
        free.remove(vcpu);
        taken.push(vcpu);
        chain.vcpu = vcpu;
    }
    Some(chains)
}

/// How chains differ from what they were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Differs {
    /// A thread ended.
    Ended,
    /// Threads of a chain compute side by side: so many at once.
    SideBySide(f64),
}

/// Whether they still take turns. `packed`: each has one vCPU.
pub(super) fn differ(
    chains: &[Chain],
    ties: &Ties,
    length: Nanos,
    packed: bool,
    params: &GuestParams,
) -> Option<Differs> {
    for chain in chains {
        let Some(ThreadTime { ran, waited, stints, .. }) = chain.time(ties) else { return Some(Differs::Ended) };
        let at_once = (ran + waited).share_of(length);
        let waits = packed && waited.0 > WAITS_FOR_SLICES.0.saturating_mul(stints.max(1)) && at_once > AT_ONCE_MAX;
        if waits || ran.share_of(length) > params.turns_cpus_max * super::SIDE_BY_SIDE {
            return Some(Differs::SideBySide(at_once));
        }
    }
    None
}

/// Sets of threads, each known by its lowest id.
#[derive(Default)]
struct Union(BTreeMap<i32, i32>);

impl Union {
    /// The lowest id of the set that the thread is in; `None`: it is in none.
    fn first(&self, tid: i32) -> Option<i32> {
        let mut at = *self.0.get(&tid)?;
        while self.0[&at] != at {
            at = self.0[&at];
        }
        Some(at)
    }

    fn join(&mut self, a: i32, b: i32) {
        for tid in [a, b] {
            self.0.entry(tid).or_insert(tid);
        }
        if let (Some(a), Some(b)) = (self.first(a), self.first(b)) {
            self.0.insert(a.max(b), a.min(b));
        }
    }
}

#[cfg(test)]
mod tests;
