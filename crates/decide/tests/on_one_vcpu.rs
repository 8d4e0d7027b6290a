//! A group whose threads take turns on one vCPU may still wait, all of them: that vCPU is kept awake meanwhile.

mod common;

use common::{Guest, SLOW_WAKEUPS, WAKEUP_BOUND, policy_with};
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{
    Action, CpuSet, Decision, Nanos, Policy, Profile, Reason, RetainMeans, SystemCalls, VcpuId, Window,
};

const US: fn(u64) -> Nanos = Nanos::from_micros;

fn count_calls(window: &mut Window) {
    let steady = window.group.voluntary_switches;
    window.group.system_calls = Some(Box::new(SystemCalls { steady, ..SystemCalls::default() }));
}

/// By haltpoll, with a trial of one vCPU that is over.
fn packed(guest: &mut Guest) -> (GuestPolicy, Vec<Decision>) {
    let params = GuestParams { retention_trials: false, ..GuestParams::default() };
    let mut policy = GuestPolicy::new(Policy::Full, Profile::Balanced, params, None, CpuSet::first(2))
        .by(RetainMeans::Haltpoll, None);
    let mut decisions = policy.begin();
    decisions.extend(guest.run_changed(&mut policy, 12, |window, _| count_calls(window)));
    assert_eq!(policy.active().len(), 1, "{decisions:?}");
    (policy, decisions)
}

/// All idle periods of the vCPU that is left are so long.
fn idle_for(window: &mut Window, active: &CpuSet, idle: Nanos, timeout: Nanos) {
    count_calls(window);
    for vcpu in window.vcpus.iter_mut().filter(|vcpu| active.contains(vcpu.id)) {
        let (periods, held) = (30, idle <= timeout);
        let polled = idle.min(timeout).times(periods);
        (vcpu.halts, vcpu.polls_held) = (Some(if held { 0 } else { periods }), Some(if held { periods } else { 0 }));
        (vcpu.retained, vcpu.halted) = (polled, idle.times(periods) - polled);
    }
}

fn timeout_of(decisions: &[Decision], id: VcpuId) -> Option<Nanos> {
    let last = decisions.iter().rev().find_map(|decision| match decision.action {
        Action::Retain { vcpu, timeout } if vcpu == id => Some(Some(timeout)),
        Action::Release { vcpu } if vcpu == id => Some(None),
        _ => None,
    });
    last.flatten()
}

#[test]
fn the_one_vcpu_stays_awake_and_follows_its_own_idle_lengths() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let (mut policy, mut all) = packed(&mut guest);
    let one = policy.active().iter().next().unwrap();
    let before = timeout_of(&all, one).expect("kept awake");
    // Waits for a disk: 60 us are worth polling for, 3 ms are not.
    for (idle, kept) in [(US(60), true), (US(3_000), false), (US(60), true)] {
        let in_force = timeout_of(&all, one).unwrap_or(Nanos::ZERO);
        all.extend(guest.run_changed(&mut policy, 60, |window, active| idle_for(window, active, idle, in_force)));
        assert_eq!(timeout_of(&all, one).is_some(), kept, "{idle}, {before} before: {all:?}");
    }
    let other = policy.explain().retaining.iter().find(|id| *id != one);
    assert_eq!(other, None, "nobody of the group runs there");
}

#[test]
fn a_yielding_thread_leaves_the_one_vcpu() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let costs = gleaner_model::WakeupCosts { halted_p50: US(300), halted_mean: US(300), ..SLOW_WAKEUPS };
    let mut policy = policy_with(Policy::Full, 2, Some(costs));
    let mut all = policy.begin();
    assert!(!policy.explain().retaining.is_empty(), "{all:?}");
    all.extend(guest.run_changed(&mut policy, 12, |window, _| count_calls(window)));
    assert_eq!(policy.active().len(), 1, "{all:?}");
    assert!(policy.explain().retaining.is_empty());
    assert!(all.iter().any(|decision| decision.reason == Reason::OnOneVcpu), "{all:?}");
}
