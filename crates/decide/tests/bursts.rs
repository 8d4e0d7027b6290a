//! A packed group that has more to do gets all vCPUs between two windows, and comes to be packed again.

mod common;

use common::{Guest, PIPELINE, Workload, policy, times};
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{Action, Burst, Decision, Nanos, Policy, Reason};

/// Packed, and a window or two after the step was judged.
fn packed(kind: Policy) -> (Guest, GuestPolicy) {
    let (mut guest, mut policy) = (Guest::new(4, PIPELINE, 1), policy(kind, 4));
    policy.begin();
    guest.run(&mut policy, 60);
    (guest, policy)
}

/// What the watch asks for, three windows' time after the last one.
fn burst(guest: &Guest, policy: &GuestPolicy) -> Burst {
    let watch = policy.burst_watch().unwrap();
    let runnable = u64::from(watch.active) + 2;
    Burst { at: guest.now + Nanos::from_millis(30), runnable, lasted: watch.after, delay: Nanos::ZERO }
}

#[test]
fn a_burst_gives_all_vcpus_back_at_once_and_says_why() {
    for kind in [Policy::Full, Policy::Consolidate] {
        let (guest, mut policy) = packed(kind);
        let active = policy.active().len();
        assert!(active < 4, "{:?}", policy.explain());
        let burst = burst(&guest, &policy);
        let decisions = policy.burst(&burst);
        let Decision { at, action, reason } = decisions[0];
        let because = Reason::Burst { runnable: burst.runnable, active, lasted: burst.lasted };
        assert_eq!((at, action, reason), (burst.at, Action::ActivateAll, because));
        assert_eq!(policy.active().len(), 4);
        assert_eq!(policy.burst_watch(), None, "there is nothing left to give");
        assert!(policy.burst(&burst).is_empty());
    }
}

#[test]
fn a_shorter_one_is_none() {
    let (guest, mut policy) = packed(Policy::Consolidate);
    let burst = burst(&guest, &policy);
    let before = policy.active().clone();
    for less in [
        Burst { lasted: Nanos(burst.lasted.0 - 1), ..burst },
        Burst { runnable: burst.runnable - 2, ..burst },
        Burst::default(),
    ] {
        assert!(policy.burst(&less).is_empty(), "{less:?}");
    }
    assert_eq!(*policy.active(), before);
}

#[test]
fn whoever_has_all_vcpus_is_not_watched() {
    for kind in [Policy::Off, Policy::Observe, Policy::Retain] {
        assert_eq!(packed(kind).1.burst_watch(), None);
    }
    let mut policy = policy(Policy::Consolidate, 4);
    policy.begin();
    assert_eq!(policy.burst_watch(), None);
    let (_, packed) = packed(Policy::Consolidate);
    assert!(packed.burst_watch().is_some());
}

#[test]
fn a_burst_that_was_one_holds_packing_off() {
    let (mut guest, mut policy) = packed(Policy::Consolidate);
    let after = policy.burst_watch().unwrap().after;
    policy.burst(&burst(&guest, &policy));
    guest.workload = Workload { demand: 3.0, ..PIPELINE };
    guest.run(&mut policy, 8);
    guest.workload = PIPELINE;
    assert!(policy.explain().hold_off > Nanos::ZERO);
    let decisions = guest.run(&mut policy, 60);
    assert!(times(&decisions, "deactivate") > 0, "it is packed again in the end");
    assert_eq!(policy.burst_watch().map(|watch| watch.after), Some(after));
}

#[test]
fn one_that_was_none_is_forgotten_and_the_next_has_to_last_longer() {
    let (mut guest, mut policy) = packed(Policy::Consolidate);
    let mut after = policy.burst_watch().unwrap().after;
    for _ in 0..3 {
        policy.burst(&burst(&guest, &policy));
        guest.run(&mut policy, 7);
        assert_eq!(policy.explain().hold_off, Nanos::ZERO);
        guest.run(&mut policy, 30);
        let now = policy.burst_watch().unwrap().after;
        assert_eq!(now, after.times(2));
        after = now;
    }
}
