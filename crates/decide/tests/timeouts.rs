//! Time-outs follow what idle periods are like, within a budget, where the idle task polls.

use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{
    Action, CpuSet, Decision, GroupWindow, Nanos, Policy, Profile, Reason, RetainMeans, Source, VcpuId, VcpuWindow,
    Window,
};

const WINDOW: Nanos = Nanos::from_millis(100);
const US: fn(u64) -> Nanos = Nanos::from_micros;

fn policy(profile: Profile, timeout: Option<Nanos>) -> GuestPolicy {
    let params = GuestParams { retention_trials: false, ..GuestParams::default() };
    GuestPolicy::new(Policy::Retain, profile, params, None, CpuSet::first(1)).by(RetainMeans::Haltpoll, timeout)
}

/// One vCPU, idle for `idle_us` between two computations of 50 us, as cpuidle's counts tell it: the window after
/// `before`.
fn window(before: Nanos, idle_us: u64, retained: Option<Nanos>) -> Window {
    let periods = WINDOW.0 / US(idle_us + 50).0;
    let polled = retained.unwrap_or(Nanos::ZERO).min(US(idle_us));
    let held = retained.is_some_and(|timeout| US(idle_us) <= timeout);
    let vcpu = VcpuWindow {
        busy: Nanos(periods * US(50).0),
        retained: Nanos(periods * polled.0),
        halted: Nanos(periods * (US(idle_us) - polled).0),
        halts: Some(if held { 0 } else { periods }),
        polls_held: Some(if held { periods } else { 0 }),
        ..VcpuWindow::new(VcpuId(0))
    };
    Window {
        at: before + WINDOW,
        length: WINDOW,
        source: Source::Procfs,
        vcpus: vec![vcpu],
        idle_entries: None,
        halts: None,
        group: GroupWindow {
            voluntary_switches: periods,
            cpu_time: Nanos(periods * US(50).0),
            ..GroupWindow::default()
        },
    }
}

/// Plays windows of such idle periods; the time-out in force after each.
fn play(policy: &mut GuestPolicy, idle_us: &[u64]) -> (Vec<Option<Nanos>>, Vec<Decision>) {
    let (mut in_force, mut at, mut all) = (None, Nanos::ZERO, Vec::new());
    let mut follow = |decisions: Vec<Decision>, in_force: &mut Option<Nanos>| {
        for decision in decisions {
            match decision.action {
                Action::Retain { timeout, .. } => *in_force = Some(timeout),
                Action::Release { .. } => *in_force = None,
                _ => {}
            }
            all.push(decision);
        }
    };
    follow(policy.begin(), &mut in_force);
    let mut seen = Vec::new();
    for idle in idle_us {
        let next = window(at, *idle, in_force);
        at = next.at;
        follow(policy.step(&next), &mut in_force);
        seen.push(in_force);
    }
    (seen, all)
}

#[test]
fn a_vcpu_polls_for_as_long_as_its_idle_periods_are_worth_it() {
    let mut policy = policy(Profile::Balanced, None);
    let (seen, decisions) = play(&mut policy, &[40, 40, 950, 950, 30, 30]);
    // What costs the same is left as it is.
    assert_eq!(seen, [Some(US(200)), Some(US(200)), None, None, Some(US(50)), Some(US(50))]);
    let by_lengths = decisions.iter().filter(|decision| matches!(decision.reason, Reason::IdleLengths { .. }));
    assert_eq!(by_lengths.count(), 2, "{decisions:?}");
}

#[test]
fn profile_latency_reaches_a_server_that_answers_every_millisecond() {
    let (seen, _) = play(&mut policy(Profile::Latency, None), &[950; 3]);
    assert_eq!(seen, [Some(Nanos::from_millis(5)); 3]);
    let (seen, _) = play(&mut policy(Profile::Balanced, None), &[950; 3]);
    assert_eq!(seen, [None; 3]);
}

#[test]
fn a_given_timeout_stays() {
    let given = Some(US(700));
    let (seen, _) = play(&mut policy(Profile::Balanced, given), &[40, 950, 5_000]);
    assert_eq!(seen, [given; 3]);
}

/// A third of the time polled, where a twentieth is allowed: polling stops; and is tried again, for a vCPU that halts
/// uses no budget.
#[test]
fn what_is_polled_is_kept_to_the_budget() {
    let share = |budget: Option<f64>| {
        let mut policy = policy(Profile::Balanced, None);
        if let Some(budget) = budget {
            policy = policy.within_budget(budget);
        }
        let (seen, _) = play(&mut policy, &[30; 400]);
        let polled = seen.iter().skip(200).filter(|timeout| timeout.is_some()).count();
        polled as f64 / 200.0 * 30.0 / 80.0
    };
    assert!(share(None) > 0.35);
    let kept = share(Some(0.05));
    assert!((0.0..0.08).contains(&kept), "{kept}");
}
