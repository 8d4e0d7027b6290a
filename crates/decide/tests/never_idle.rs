//! vCPUs that are never idle, against a fake guest that closes the loop (see `common`): nothing is retained there, and
//! trials know of it.

mod common;

use common::{COSTLY_HALTS, Guest, PIPELINE, Workload, policy_with, retaining_untried};
use gleaner_decide::guest::{GuestPolicy, NoStep};
use gleaner_model::{CpuSet, Decision, Nanos, Policy, Profile, Reason, VcpuId};

/// A program that computes on every vCPU, waits, and computes again.
#[test]
fn nothing_is_retained_where_no_vcpu_is_ever_idle() {
    let busy = Workload { demand: 4.0, ..PIPELINE };
    let waiting = Workload { demand: 2.0, piece: Nanos::from_millis(5), ..PIPELINE };
    for (profile, expected) in [(Profile::Balanced, [4, 4, 4]), (Profile::Latency, [0, 0, 0])] {
        let mut policy =
            GuestPolicy::new(Policy::Retain, profile, retaining_untried(), Some(COSTLY_HALTS), CpuSet::first(4));
        policy.begin();
        let mut guest = Guest::new(4, busy, 1);
        let full = guest.run(&mut policy, 3);
        guest.workload = waiting;
        let back = guest.run(&mut policy, 1);
        guest.workload = busy;
        let again = guest.run(&mut policy, 20);
        assert_eq!([&full, &back, &again].map(Vec::len), expected, "{profile:?}: {full:?} {back:?} {again:?}");
        assert!(full.iter().all(|found| matches!(found.reason, Reason::NeverIdle { .. })), "{full:?}");
        assert!(back.iter().all(|found| found.reason == Reason::IdleAgain), "{back:?}");
        // The stay of a second, and not the three windows.
        let since = |found: &Decision| (found.at - back[0].at).0 / 100_000_000;
        assert!(again.iter().all(|found| since(found) == 10), "{again:?}");
    }
}

#[test]
fn a_vcpu_that_is_never_idle_is_let_go_and_the_others_are_tried() {
    // One vCPU of four is never idle; wake-ups on the others cost less without retention.
    let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
    guest.wakeup = Some([Nanos::from_micros(300), Nanos::from_micros(5)]);
    let mut policy = policy_with(Policy::Retain, 4, Some(COSTLY_HALTS));
    policy.begin();
    let decisions = guest.run_changed(&mut policy, 100, |window, _| {
        let first = &mut window.vcpus[0];
        (first.busy, first.halted) = (window.length, Nanos::ZERO);
    });
    let of_the_first: Vec<_> = decisions.iter().filter(|found| found.action.vcpu() == Some(VcpuId(0))).collect();
    assert!(matches!(of_the_first[..], [Decision { reason: Reason::NeverIdle { .. }, .. }]), "{of_the_first:?}");
    let found = policy.explain();
    assert!(found.retention_stopped && found.retaining.is_empty(), "{found:?}");
}

#[test]
fn retention_is_not_tried_where_no_vcpu_is_ever_idle_nor_judged_while_it_is_tried() {
    let mut guest = Guest::new(4, Workload { demand: 4.0, ..PIPELINE }, 1);
    guest.wakeup = Some([Nanos::from_micros(300), Nanos::from_micros(5)]);
    let mut policy = policy_with(Policy::Retain, 4, Some(COSTLY_HALTS));
    policy.begin();
    guest.run(&mut policy, 200);
    let found = policy.explain();
    assert_eq!((found.never_idle.len(), found.retention_cost_ratio), (4, None), "{found:?}");
    // Idle again: tried after ten windows, and a vCPU that fills up meanwhile ends no trial.
    guest.workload = Workload { demand: 1.6, ..PIPELINE };
    guest.run(&mut policy, 12);
    assert_eq!(policy.explain().no_step, Some(NoStep::Trying));
    guest.run_changed(&mut policy, 14, |window, _| {
        let first = &mut window.vcpus[0];
        (first.busy, first.halted) = (window.length, Nanos::ZERO);
    });
    let found = policy.explain();
    assert!(found.retention_stopped && found.never_idle.is_empty(), "{found:?}");
}
