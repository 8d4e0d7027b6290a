//! Which vCPUs go first: domain by domain, so that those that stay share caches and memory, and a core that is given
//! away is given away whole (ours; the paper takes the vCPU with the least work).
//!
//! A memory node that has begun to empty is emptied before another one is begun, within it a last-level cache, within
//! that a core. Among equals the least busy one goes.

use super::Consolidation;
use gleaner_model::{CpuSet, Nanos, Topology, VcpuId, VcpuPlace};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What speaks for emptying one domain before another; the lower, the sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Somebody is bound to a vCPU in it: it cannot be emptied.
    stays: bool,
    /// Active vCPUs that are left in it.
    left: usize,
    /// What they worked: the least moves the fewest threads.
    busy: Nanos,
    /// Low ones take the interrupts.
    highest: Reverse<VcpuId>,
}

/// The next `count` vCPUs of `active` to be deactivated, in that order. `busy`: what each worked lately. A thread that
/// has bound itself to some vCPUs keeps one of them, in `pinned`: on a deactivated one it would stay, and wait there
/// for every wake-up of a vCPU that nobody retains.
pub fn deactivation_order(
    active: &CpuSet,
    pinned: &CpuSet,
    topology: &Topology,
    busy: impl Fn(VcpuId) -> Nanos,
    count: usize,
) -> Vec<VcpuId> {
    let mut left: BTreeMap<VcpuId, VcpuPlace> = active.iter().map(|vcpu| (vcpu, topology.place(vcpu))).collect();
    let next = |left: &BTreeMap<VcpuId, VcpuPlace>| {
        let ranks = |domain: fn(&VcpuPlace) -> [u32; 3]| ranks(left, pinned, &busy, domain);
        let (nodes, caches, cores) = (ranks(node), ranks(cache), ranks(core));
        let rank = |vcpu: VcpuId, place: &VcpuPlace| {
            let of = [nodes.get(&node(place)), caches.get(&cache(place)), cores.get(&core(place))];
            (of, busy(vcpu), Reverse(vcpu))
        };
        let candidates = left.iter().filter(|(vcpu, _)| !pinned.contains(**vcpu));
        candidates.min_by_key(|(vcpu, place)| rank(**vcpu, place)).map(|(vcpu, _)| *vcpu)
    };
    let mut order = Vec::new();
    while order.len() < count
        && let Some(vcpu) = next(&left)
    {
        left.remove(&vcpu);
        order.push(vcpu);
    }
    order
}

// Domains lie in one another, whatever the hypervisor says: numbers of cores may repeat from socket to socket.
fn node(place: &VcpuPlace) -> [u32; 3] {
    [place.node, 0, 0]
}

fn cache(place: &VcpuPlace) -> [u32; 3] {
    [place.node, place.llc, 0]
}

fn core(place: &VcpuPlace) -> [u32; 3] {
    [place.node, place.llc, place.core]
}

fn ranks(
    left: &BTreeMap<VcpuId, VcpuPlace>,
    pinned: &CpuSet,
    busy: &impl Fn(VcpuId) -> Nanos,
    domain: fn(&VcpuPlace) -> [u32; 3],
) -> BTreeMap<[u32; 3], Rank> {
    let mut ranks = BTreeMap::new();
    for (vcpu, place) in left {
        let empty = Rank { stays: false, left: 0, busy: Nanos::ZERO, highest: Reverse(*vcpu) };
        let rank = ranks.entry(domain(place)).or_insert(empty);
        rank.stays |= pinned.contains(*vcpu);
        rank.left += 1;
        rank.busy += busy(*vcpu);
        // They come in ascending order.
        rank.highest = Reverse(*vcpu);
    }
    ranks
}

impl Consolidation {
    /// The next `k` to be deactivated.
    pub(super) fn first_to_go(&self, k: usize) -> CpuSet {
        let busy = |id: VcpuId| self.loads.get(&id).map_or(Nanos::ZERO, |load| load.busy);
        deactivation_order(&self.active, &self.pinned, &self.topology, busy, k).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// 2 sockets, each a node and a cache, of 8 cores of 2 threads. Siblings are 16 apart, as Linux numbers them.
    fn two_sockets(vcpu: u32) -> VcpuPlace {
        let core = vcpu % 16;
        VcpuPlace { node: core / 8, llc: core / 8 * 8, core }
    }

    /// One node, 16 cores without siblings, a cache for each 4.
    fn four_caches(vcpu: u32) -> VcpuPlace {
        VcpuPlace { node: 0, llc: vcpu / 4 * 4, core: vcpu }
    }

    /// 2 nodes of 2 caches of 2 cores of 2 neighbouring threads.
    fn all_kinds(vcpu: u32) -> VcpuPlace {
        VcpuPlace { node: vcpu / 8, llc: vcpu / 4 * 4, core: vcpu / 2 * 2 }
    }

    fn order(places: fn(u32) -> VcpuPlace, n: u32, pinned: &str, busy: fn(VcpuId) -> Nanos) -> Vec<u32> {
        let topology: Topology = (0..n).map(|vcpu| (VcpuId(vcpu), places(vcpu))).collect();
        let order = deactivation_order(&CpuSet::first(n), &set(pinned), &topology, busy, n as usize - 1);
        order.into_iter().map(|vcpu| vcpu.0).collect()
    }

    fn equally(_: VcpuId) -> Nanos {
        Nanos(7)
    }

    #[test]
    fn siblings_go_together_and_a_node_before_the_other() {
        let order = order(two_sockets, 32, "", equally);
        assert_eq!(order[..4], [31, 15, 30, 14]);
        assert!(order.chunks_exact(2).all(|pair| two_sockets(pair[0]) == two_sockets(pair[1])), "{order:?}");
        assert!(order[..16].iter().all(|vcpu| two_sockets(*vcpu).node == 1), "{order:?}");
        assert_eq!(order.len(), 31);
        assert_eq!(order[30], 16, "vCPU 0 stays");
    }

    #[test]
    fn a_cache_is_emptied_before_the_next() {
        assert_eq!(order(four_caches, 16, "", equally)[..8], [15, 14, 13, 12, 11, 10, 9, 8]);
        // The least busy cache first, and in it the least busy vCPU.
        let busy = |vcpu: VcpuId| Nanos(if vcpu.0 / 4 == 1 { 10 + u64::from(vcpu.0 % 3) } else { 20 });
        assert_eq!(order(four_caches, 16, "", busy)[..5], [6, 7, 4, 5, 15]);
        // One that works less elsewhere does not tempt it out of a cache that it has begun.
        let busy = |vcpu: VcpuId| Nanos(if vcpu.0 >= 12 { 3 } else { 5 - u64::from(vcpu.0 == 0) * 4 });
        assert_eq!(order(four_caches, 16, "", busy)[..6], [15, 14, 13, 12, 0, 3]);
    }

    #[test]
    fn all_kinds_of_domains_lie_in_one_another() {
        let order = order(all_kinds, 16, "", equally);
        assert_eq!(order, [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn where_somebody_is_bound_goes_last() {
        // Node 1 cannot be emptied, so node 0 is; in node 1 the core and the cache of the bound one are the last.
        let order = order(all_kinds, 16, "14", equally);
        assert_eq!(order, [7, 6, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 13, 12, 15]);
    }

    #[test]
    fn without_domains_the_least_busy_goes_first_and_of_equals_the_highest() {
        let busy = |vcpu: VcpuId| Nanos([5, 3, 5, 3][vcpu.0 as usize]);
        let found = deactivation_order(&CpuSet::first(4), &set("3"), &Topology::default(), busy, 9);
        assert_eq!(found, [VcpuId(1), VcpuId(2), VcpuId(0)]);
        // As many hypervisors say: each vCPU a socket.
        assert_eq!(order(|vcpu| VcpuPlace { node: 0, llc: vcpu, core: vcpu }, 4, "", busy), [3, 1, 2]);
    }
}
