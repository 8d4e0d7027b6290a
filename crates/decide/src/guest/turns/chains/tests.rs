//! Made-up groups: who wakes whom, and what each thread takes.

use super::*;
use proptest::prelude::*;

const SECOND: Nanos = Nanos::from_secs(1);

/// A thread that ran for so many hundredths of the second.
fn thread(percent: u64) -> ThreadTime {
    ThreadTime { ran: Nanos::from_millis(10 * percent), stints: 1_000, ..ThreadTime::default() }
}

fn ties(threads: &[(i32, u64)], wakes: &[(i32, i32, u64)]) -> Ties {
    Ties {
        threads: threads.iter().map(|(tid, percent)| (*tid, thread(*percent))).collect(),
        wakes: wakes.iter().map(|(waker, woken, count)| ((*waker, *woken), *count)).collect(),
    }
}

fn chains_of(ties: &Ties) -> Vec<Vec<i32>> {
    found(ties, SECOND, &GuestParams::default()).into_iter().map(|chain| chain.threads).collect()
}

/// Threads 1 to `n`, each `percent` busy, of which each wakes each.
fn pool(n: i32, percent: u64) -> Ties {
    let all: Vec<(i32, u64)> = (1..=n).map(|tid| (tid, percent)).collect();
    let wakes: Vec<(i32, i32, u64)> =
        (1..=n).flat_map(|a| (1..=n).filter(move |b| *b != a).map(move |b| (a, b, 5_000))).collect();
    ties(&all, &wakes)
}

/// So many pairs, of threads 10 and 11, 20 and 21 and so on, each thread half busy.
fn pairs(n: i32) -> Ties {
    let threads: Vec<_> = (1..=n).flat_map(|pair| [(10 * pair, 45), (10 * pair + 1, 45)]).collect();
    let wakes: Vec<_> =
        (1..=n).flat_map(|pair| [(10 * pair, 10 * pair + 1, 50_000), (10 * pair + 1, 10 * pair, 50_000)]).collect();
    ties(&threads, &wakes)
}

fn with(mut one: Ties, threads: &[(i32, u64)], wakes: &[(i32, i32, u64)]) -> Ties {
    one += ties(threads, wakes);
    one
}

#[test]
fn pairs_are_chains_and_what_they_hardly_wake_is_none() {
    let two = [vec![10, 11], vec![20, 21]];
    assert_eq!(chains_of(&pairs(2)), two);
    let log = [(10, 1, 500), (20, 1, 700), (21, 1, 200), (1, 10, 3)];
    assert_eq!(chains_of(&with(pairs(2), &[(1, 5)], &log)), two, "a thread that writes the log");
    assert_eq!(chains_of(&with(pairs(2), &[(1, 100), (2, 100)], &[])), two, "two that compute alone");
    assert_eq!(chains_of(&with(pairs(2), &[], &[(11, 20, 900)])), two, "one pair nudges the other");
    assert_eq!(chains_of(&with(pairs(2), &[], &[(99, 20, 50_000)])), two, "one that is gone");
}

#[test]
fn threads_that_hand_on_in_a_ring_are_one_chain() {
    let ring: Vec<_> = (1..=4).map(|tid| (tid, tid % 4 + 1, 20_000)).collect();
    let threads: Vec<_> = (1..=4).map(|tid| (tid, 24)).collect();
    assert_eq!(chains_of(&ties(&threads, &ring)), [[1, 2, 3, 4]]);
}

#[test]
fn what_runs_side_by_side_is_no_chain() {
    assert_eq!(chains_of(&pool(4, 90)), [[0; 0]; 0], "a small pool is one chain, and too much for a vCPU");
    assert_eq!(chains_of(&pool(16, 90)), [[0; 0]; 0], "in a large one all ties are weak");
    for workers in [3, 8, 20] {
        let threads: Vec<_> = std::iter::once((1, 60)).chain((2..2 + workers).map(|tid| (tid, 80))).collect();
        let wakes: Vec<_> = (2..2 + workers).flat_map(|tid| [(1, tid, 9_000), (tid, 1, 9_000)]).collect();
        assert_eq!(chains_of(&ties(&threads, &wakes)), [[0; 0]; 0], "one that hands out work to {workers}");
    }
    let mut seldom = pairs(2);
    seldom.wakes.values_mut().for_each(|wakes| *wakes = 200);
    assert_eq!(chains_of(&seldom), [[0; 0]; 0], "pairs that seldom hand over");
}

fn places(ties: &Ties, vcpus: u32, topology: &Topology) -> Option<Vec<(i32, u32)>> {
    let placed = placed(ties, SECOND, &CpuSet::first(vcpus), topology, &GuestParams::default())?;
    Some(placed.iter().map(|chain| (chain.threads[0], chain.vcpu.0)).collect())
}

#[test]
fn each_chain_has_a_vcpu_where_it_ran_and_a_core_if_there_is_one() {
    let none = Topology::default();
    assert_eq!(places(&pairs(2), 2, &none), Some(vec![(10, 0), (20, 1)]));
    assert_eq!(places(&pairs(1), 4, &none), None, "one is no several");
    assert_eq!(places(&pairs(3), 2, &none), None, "more than vCPUs");
    let mut there = pairs(2);
    there.threads.iter_mut().for_each(|(tid, time)| time.vcpu = Some(VcpuId(if *tid < 20 { 3 } else { 2 })));
    assert_eq!(places(&there, 4, &none), Some(vec![(10, 3), (20, 2)]), "where they ran");
    there.threads.iter_mut().for_each(|(_, time)| time.vcpu = Some(VcpuId(3)));
    assert_eq!(places(&there, 4, &none), Some(vec![(10, 3), (20, 0)]), "both on one");
    let siblings: Topology =
        (0..4).map(|vcpu| (VcpuId(vcpu), gleaner_model::VcpuPlace { node: 0, llc: 0, core: vcpu / 2 })).collect();
    assert_eq!(places(&pairs(2), 4, &siblings), Some(vec![(10, 0), (20, 2)]), "a core each");
    let busy = with(pairs(2), &[(20, 10)], &[]);
    assert_eq!(places(&busy, 2, &none), Some(vec![(20, 0), (10, 1)]), "the busiest first");
}

#[test]
fn a_chain_that_splits_or_runs_side_by_side_differs() {
    let params = GuestParams::default();
    let chains = placed(&pairs(2), SECOND, &CpuSet::first(2), &Topology::default(), &params).unwrap();
    let differs = |ties: &Ties, packed| differ(&chains, ties, SECOND, packed, &params);
    assert_eq!(differs(&pairs(2), true), None);
    let mut waits = pairs(2);
    waits.threads.values_mut().for_each(|time| time.waited = Nanos::from_millis(450));
    assert_eq!(differs(&waits, true), None, "who was woken waits for a moment, often");
    waits.threads.values_mut().for_each(|time| time.stints = 100);
    assert!(matches!(differs(&waits, true), Some(Differs::SideBySide(_))), "... and for slices");
    assert_eq!(differs(&waits, false), None, "apart that is somebody else's doing");
    let mut ended = pairs(2);
    ended.threads.remove(&21);
    assert_eq!(differs(&ended, true), Some(Differs::Ended));
    assert!(matches!(differs(&with(pairs(2), &[(10, 90)], &[]), false), Some(Differs::SideBySide(_))));
}

proptest! {
    #[test]
    fn chains_share_no_thread_and_fit_a_vcpu_whatever_wakes_whom(
        threads in proptest::collection::btree_map(1..40_i32, 0..120_u64, 0..40),
        wakes in proptest::collection::btree_map((1..40_i32, 1..40_i32), 0..100_000_u64, 0..200),
        vcpus in 1..10_u32,
    ) {
        let threads: Vec<_> = threads.into_iter().collect();
        let ties = Ties { wakes, ..ties(&threads, &[]) };
        let params = GuestParams::default();
        let Some(placed) = placed(&ties, SECOND, &CpuSet::first(vcpus), &Topology::default(), &params) else {
            return Ok(());
        };
        prop_assert!((2..=vcpus as usize).contains(&placed.len()));
        let mut seen = std::collections::BTreeSet::new();
        let mut on = std::collections::BTreeSet::new();
        for chain in &placed {
            prop_assert!(chain.threads.len() > 1 && chain.cpus <= params.turns_cpus_max);
            prop_assert!(chain.vcpu.0 < vcpus && on.insert(chain.vcpu), "a vCPU for each");
            for tid in &chain.threads {
                prop_assert!(ties.threads.contains_key(tid) && seen.insert(*tid), "in one chain alone");
            }
        }
    }
}
