//! A vCPU that a step filled: it stays full where the program is no slower for it, and there is a look now and then.

mod common;

use common::{Guest, SLOW_WAKEUPS, WAKEUP_BOUND, Workload, count, policy_with};
use gleaner_decide::guest::{GuestPolicy, NoStep};
use gleaner_model::{CpuSet, Policy, Reason};

/// Windows from a step, or the start, to the next: 3 to settle, 5 of baseline (3 of them to judge).
const STEP_WINDOWS: usize = 8;

fn calibrated(vcpus: u32) -> GuestPolicy {
    policy_with(Policy::Full, vcpus, Some(SLOW_WAKEUPS))
}

#[test]
fn a_full_vcpu_stays_where_the_program_is_no_slower_for_it() {
    let mut guest = Guest::new(4, WAKEUP_BOUND, 1);
    let mut policy = calibrated(4);
    let decisions = guest.run(&mut policy, 4 * STEP_WINDOWS);
    assert_eq!((count(&decisions, "deactivate"), policy.active()), (3, &CpuSet::first(1)), "{decisions:?}");
    guest.run(&mut policy, 20);
    assert!(matches!(policy.explain().no_step, Some(NoStep::FullAndNoSlower { gain }) if (gain - 0.7).abs() < 0.1));
    // By the book, without knowing what a wake-up costs: too little idle time for the last step.
    let mut by_the_book = common::policy(Policy::Full, 4);
    Guest::new(4, WAKEUP_BOUND, 1).run(&mut by_the_book, 4 * STEP_WINDOWS);
    assert_eq!(by_the_book.active().len(), 2);
}

#[test]
fn a_full_vcpu_is_given_up_where_the_program_is_slower_for_it() {
    for gain_on_one in [0.0, 0.02, -0.2] {
        let mut guest = Guest::new(2, Workload { gain_on_one, ..WAKEUP_BOUND }, 1);
        let mut policy = calibrated(2);
        let decisions = guest.run(&mut policy, 3_000);
        assert_eq!(policy.active().len(), 2, "{gain_on_one}: {decisions:?}");
        assert!(count(&decisions, "deactivate") <= 2, "{gain_on_one}: tried once or twice: {decisions:?}");
    }
}

/// On a full vCPU nothing can be seen to grow, so Gleaner looks: after 15 s, 30 s, ... and in the end every 4 minutes.
#[test]
fn it_looks_whether_more_vcpus_would_be_faster_and_ever_more_seldom() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let mut policy = calibrated(2);
    let decisions = guest.run(&mut policy, 36_000);
    let looks: Vec<u64> = decisions
        .iter()
        .filter(|decision| decision.reason == Reason::Recheck)
        .map(|decision| decision.at.0 / 1_000_000_000)
        .collect();
    let gaps: Vec<u64> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 17, "an hour: {looks:?}");
    let expected = [30, 60, 120].into_iter().chain(std::iter::repeat(240));
    assert!(gaps.iter().zip(expected).all(|(gap, expected)| gap.abs_diff(expected) <= 3), "{gaps:?}");
    // Meanwhile it has become a program that is better off on two.
    guest.workload.gain_on_one = -0.3;
    let decisions = guest.run(&mut policy, 60);
    assert_eq!(policy.active().len(), 2, "a gain that is lost is noticed without a look: {decisions:?}");
}

/// Packed it cannot be seen to want more; the look shows it, and that it hands over more often packed is then no
/// reason.
#[test]
fn a_look_that_shows_much_more_work_leaves_it_to_the_conditions() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let mut policy = calibrated(2);
    guest.run(&mut policy, 300);
    assert_eq!(policy.active().len(), 1);
    guest.workload = Workload { demand: 1.6, gain_on_one: 1.5, ..guest.workload };
    let decisions = guest.run(&mut policy, 2_500);
    assert!(decisions.iter().any(|decision| decision.reason == Reason::Recheck), "{decisions:?}");
    assert_eq!(policy.active().len(), 2, "{decisions:?}");
}

#[test]
fn an_exec_during_a_look_is_another_workload() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let mut policy = calibrated(2);
    let looks = |decisions: &[gleaner_model::Decision]| decisions.iter().any(|found| found.reason == Reason::Recheck);
    assert!((0..3_000).any(|_| looks(&guest.run(&mut policy, 1))));
    guest.run_changed(&mut policy, 1, |window, _| window.group.execs = Some(1));
    assert!(policy.explain().hold_off > gleaner_model::Nanos::ZERO, "{:?}", policy.explain());
}

/// Three of four at once fill the last vCPU and slow the program down; two do not.
#[test]
fn too_many_at_once_does_not_forbid_fewer() {
    let workload = Workload { demand: 0.94, gain_on_one: -0.1, ..common::PIPELINE };
    let mut guest = Guest::new(4, workload, 1);
    let mut policy = common::policy(Policy::Full, 4);
    let decisions = guest.run(&mut policy, 1_000);
    let three = |reason| matches!(reason, Reason::IdleFits { vcpus: 3, .. });
    assert!(decisions.iter().any(|decision| three(decision.reason)), "{decisions:?}");
    assert_eq!(policy.active().len(), 2, "{decisions:?}");
}
