//! A trial of retention is judged by its median and by how many of its pairs say so.

mod common;

use common::{COSTLY_HALTS, Guest, PIPELINE, Workload, policy_with};
use gleaner_decide::guest::Explanation;
use gleaner_model::{Nanos, Policy};

/// Tries retention where a synchronization costs so many times as much with it, pair of blocks by pair of blocks.
fn tried(ratios: [f64; 4]) -> Explanation {
    const WITHOUT_US: f64 = 100.0;
    let windows_per_pair = 4;
    let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
    let mut policy = policy_with(Policy::Retain, 4, Some(COSTLY_HALTS));
    policy.begin();
    let mut windows = 0;
    for _ in 0..100 {
        // A trial begins with a block without.
        windows += usize::from(windows > 0 || policy.explain().retaining.is_empty());
        let pair = windows.saturating_sub(1) / windows_per_pair;
        // Computing takes 100 us a synchronization, with and without.
        let with_us = (100.0 + WITHOUT_US) * ratios[pair.min(3)] - 100.0;
        guest.wakeup = Some([with_us, WITHOUT_US].map(|us| Nanos::from_f64(us * 1e3)));
        guest.run(&mut policy, 1);
        if policy.explain().retention_cost_ratio.is_some() {
            assert_eq!(windows, 4 * windows_per_pair);
            return policy.explain();
        }
    }
    panic!("no trial came to an end: {:?}", policy.explain());
}

#[test]
fn retention_stops_only_where_it_costs_more_in_most_of_the_pairs() {
    for (ratios, median, stopped) in [
        // Two that cost half as much again move the median of four, and are not most of them.
        ([1.5, 1.5, 0.96, 0.98], 1.24, false),
        ([0.96, 1.5, 0.98, 1.5], 1.24, false),
        ([1.5, 1.5, 1.02, 0.98], 1.26, true),
        ([1.3, 1.3, 1.3, 1.3], 1.3, true),
        ([0.9, 0.9, 0.9, 0.9], 0.9, false),
    ] {
        let found = tried(ratios);
        let ratio = found.retention_cost_ratio.unwrap();
        assert!((ratio - median).abs() < 0.01, "{ratios:?}: {ratio}");
        assert_eq!(found.retention_stopped, stopped, "{ratios:?}: {found:?}");
    }
}
