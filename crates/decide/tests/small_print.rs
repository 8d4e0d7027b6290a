//! Lines that a mutation of the source showed to be watched by nobody: each test fails where its line is broken.

mod common;

use common::{COSTLY_HALTS, Guest, PIPELINE, Workload, all_alike, policy, policy_with};
use gleaner_decide::guest::{GuestPolicy, NoStep};
use gleaner_model::{CpuSet, Decision, Nanos, Policy, Reason, RetainMeans, WakeupCosts, Window};
use std::collections::HashSet;
use std::mem::discriminant;

/// Windows of a program that is another one while idle vCPUs are retained.
fn run_otherwise_while_retained(
    guest: &mut Guest,
    policy: &mut GuestPolicy,
    windows: usize,
    change: fn(&mut Window),
) -> Vec<Decision> {
    let window = |_| {
        let retained = !policy.explain().retaining.is_empty();
        guest.retained = retained;
        let mut window = guest.window(policy.active());
        if retained {
            change(&mut window);
        }
        policy.step(&window)
    };
    (0..windows).flat_map(window).collect()
}

/// Retains by polling in the idle task, which is tried from the first quiet windows on.
fn polling(kind: Policy) -> GuestPolicy {
    let mut policy = policy(kind, 4).by(RetainMeans::IdlePoll, Some(Nanos::from_micros(200)));
    policy.begin();
    policy
}

/// `NoStep::kind`: what is counted together is of one kind, and what is not is not.
#[test]
fn reasons_against_a_step_are_counted_apart() {
    let (mut guest, mut policy) = (Guest::new(4, PIPELINE, 1), policy(Policy::Full, 4));
    let (mut stepped, mut seen) = (0, HashSet::new());
    for _ in 0..100 {
        guest.run(&mut policy, 1);
        match policy.explain().no_step {
            Some(why) => _ = seen.insert(discriminant(&why)),
            None => stepped += 1,
        }
    }
    let counted = policy.explain().no_step_windows;
    let kinds: HashSet<_> = counted.iter().map(|(why, _)| discriminant(why)).collect();
    assert!(seen.len() >= 3 && kinds == seen && kinds.len() == counted.len(), "{counted:?}");
    assert_eq!(counted.iter().map(|(_, windows)| windows).sum::<u64>() + stepped, 100, "{counted:?}");
}

/// `Measure::of`: lengths of a group that does nothing say that anything fits.
#[test]
fn a_group_that_does_not_compute_is_not_measured() {
    let (mut guest, mut policy) = (Guest::new(4, PIPELINE, 1), policy(Policy::Full, 4));
    let asleep = |window: &mut Window, _: &CpuSet| window.group.cpu_time = Nanos::ZERO;
    guest.run_changed(&mut policy, 50, asleep);
    assert_eq!((policy.active().len(), policy.explain().no_step), (4, Some(NoStep::Unmeasured)));
}

/// `GuestPolicy::wants_wakeups`: BPF, which alone sees wake-ups, is kept for a trial, and not for longer.
#[test]
fn wakeups_are_wanted_until_retention_was_tried() {
    let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
    guest.wakeup = Some([Nanos::from_micros(50), Nanos::from_micros(100)]);
    let mut policy = policy_with(Policy::Retain, 4, Some(COSTLY_HALTS));
    policy.begin();
    for _ in 0..200 {
        assert_eq!(policy.wants_wakeups(), policy.explain().retention_cost_ratio.is_none());
        guest.run(&mut policy, 1);
    }
    assert!(policy.explain().retention_cost_ratio.is_some(), "{:?}", policy.explain());
    assert!(!policy_with(Policy::Consolidate, 4, Some(COSTLY_HALTS)).wants_wakeups(), "there is nothing to try");
}

/// `GuestPolicy::pack`: where polling holds idle periods, packing has nothing to win; during a trial it waits for that.
#[test]
fn idle_periods_that_polling_holds_are_not_packed() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    guest.wakeup = Some([Nanos::from_micros(10), Nanos::from_micros(100)]);
    let mut held = polling(Policy::Full);
    guest.run(&mut held, 100);
    assert_eq!((held.active().len(), held.explain().no_step), (4, Some(NoStep::HeldCheaply)));
    // Without retention the same program is packed.
    let mut packed = polling(Policy::Consolidate);
    guest.run(&mut packed, 100);
    assert_eq!(packed.active().len(), 1);
}

/// `Block::granularity`, and how many pairs are `by_cpu_time`: where computations grow longer, the CPU time that the
/// program gets to use tells.
#[test]
fn a_program_that_hardly_blocks_any_more_is_judged_by_its_cpu_time() {
    fn longer(window: &mut Window, percent: u64) {
        window.group.cpu_time = Nanos(window.group.cpu_time.0 * percent / 100);
        window.group.voluntary_switches /= 8;
    }
    // Not so much less that the trial ends early: then it ends while nothing is retained, and nothing is left to say.
    let changes: [fn(&mut Window); 2] = [|window| longer(window, 150), |window| longer(window, 90)];
    for (change, pays) in changes.into_iter().zip([true, false]) {
        let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
        guest.wakeup = Some([Nanos::from_micros(100); 2]);
        let mut policy = polling(Policy::Retain);
        let said = run_otherwise_while_retained(&mut guest, &mut policy, 30, change);
        assert_eq!(policy.explain().retention_stopped, !pays, "{said:?}");
        let by_cpu_time =
            |decision: &Decision| matches!(decision.reason, Reason::RetentionAndCpuTime { pays: false, .. });
        assert_eq!(said.iter().any(by_cpu_time), !pays, "{said:?}");
    }
}

/// `median`: of the two pairs of a trial that ended early it is the mean.
#[test]
fn a_trial_that_ends_early_tells_the_mean_of_its_pairs() {
    let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
    let mut policy = polling(Policy::Retain);
    let (mut began, mut retained) = (false, 0);
    while policy.explain().retention_cost_ratio.is_none() && retained < 10 {
        let retains = !policy.explain().retaining.is_empty();
        began |= !retains;
        retained += usize::from(began && retains);
        // Computing takes 100 us a synchronization; with it 200 us in all, then 300 us, and 400 us without.
        let wait_us = if retains { 100 * retained.max(1) } else { 300 };
        guest.wakeup = Some([Nanos::from_micros(wait_us as u64); 2]);
        guest.run(&mut policy, 1);
    }
    let ratio = policy.explain().retention_cost_ratio.unwrap();
    assert!((ratio - 0.625).abs() < 0.01, "{ratio}");
}

/// `measured`: a cost that few wake-ups tell is none.
#[test]
fn a_trial_waits_for_wakeups_that_can_be_compared() {
    for (wakeups, tried) in [(1, false), (49, false), (50, true)] {
        let mut guest = Guest::new(4, Workload { demand: 1.6, ..PIPELINE }, 1);
        let mut policy = policy_with(Policy::Retain, 4, Some(COSTLY_HALTS));
        policy.begin();
        for _ in 0..200 {
            let mut window = guest.window(policy.active());
            window.group.wake_to_run = Some(all_alike(wakeups, Nanos::from_micros(100)));
            policy.step(&window);
        }
        assert_eq!(policy.explain().retention_cost_ratio.is_some(), tried, "{wakeups}: {:?}", policy.explain());
    }
}

/// `GuestPolicy::nothing_to_win`: where a halted vCPU answers at once, packing has nothing to win; who asks for it by
/// name has it.
#[test]
fn what_wakes_for_nothing_is_not_packed() {
    let us = Nanos::from_micros;
    let halted = |halted_us| WakeupCosts {
        retained_p50: us(6),
        retained_p99: us(20),
        halted_p50: us(halted_us),
        halted_p99: us(20),
        ..WakeupCosts::default()
    };
    for (policy, halted_us, left, why) in
        [(Policy::Full, 6, 4, Some(NoStep::WakesForNothing)), (Policy::Full, 60, 1, Some(NoStep::OneVcpu))]
    {
        let mut guest = Guest::new(4, PIPELINE, 1);
        let mut policy = policy_with(policy, 4, Some(halted(halted_us)));
        guest.run(&mut policy, 100);
        assert_eq!((policy.active().len(), policy.explain().no_step), (left, why), "{halted_us}");
    }
}
