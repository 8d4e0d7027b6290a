//! What holds once a step was taken back: how long nothing is tried, who may be taken again, and what a vCPU that was
//! out of use is remembered for.

mod common;

use common::{Guest, PIPELINE, SLOW_WAKEUPS, WAKEUP_BOUND, Workload, count, policy, policy_with};
use gleaner_decide::guest::{GuestParams, GuestPolicy, NoStep};
use gleaner_model::{Decision, Nanos, Policy, Reason};

/// Each vCPU that is taken away slows the program down.
const HURT: Workload = Workload { loss_per_vcpu: 0.2, ..PIPELINE };

fn hurt(decision: &Decision) -> bool {
    matches!(decision.reason, Reason::StepHurt { .. })
}

/// Runs until a step was found to hurt; what is held off then.
fn hold_off_after_hurt(guest: &mut Guest, policy: &mut GuestPolicy) -> Nanos {
    let mut windows = 0..3_000;
    assert!(windows.any(|_| guest.run(policy, 1).iter().any(hurt)), "no step hurt: {:?}", policy.explain());
    policy.explain().hold_off
}

#[test]
fn after_a_step_that_hurt_none_is_tried_for_a_while_and_for_longer_the_next_time() {
    let (mut guest, mut policy) = (Guest::new(4, HURT, 1), policy(Policy::Full, 4));
    let min = Nanos::from_millis(GuestParams::default().tuning.hold_off_min_ms);
    // First three vCPUs at once, then one: each hurts.
    assert_eq!(hold_off_after_hurt(&mut guest, &mut policy), min);
    let (mut patient, mut patient_policy) = (guest.clone(), policy.clone());
    guest.run(&mut policy, 4);
    assert!(matches!(policy.explain().no_step, Some(NoStep::HoldingOff { .. })), "{:?}", policy.explain());
    assert_eq!(hold_off_after_hurt(&mut guest, &mut policy), min.times(2));
    // Where it was quiet meanwhile, because nobody could tell idle periods, it starts small again.
    let blind = |window: &mut gleaner_model::Window, _: &_| {
        window.idle_entries = None;
        window.vcpus.iter_mut().for_each(|vcpu| vcpu.idle_entries = None);
    };
    let meanwhile = patient.run_changed(&mut patient_policy, 2_000, blind);
    assert_eq!(count(&meanwhile, "deactivate"), 0, "{meanwhile:?}");
    assert_eq!(hold_off_after_hurt(&mut patient, &mut patient_policy), min);
}

#[test]
fn a_vcpu_that_a_thread_bound_itself_to_during_a_look_is_not_taken_again() {
    let mut guest = Guest::new(2, WAKEUP_BOUND, 1);
    let mut policy = policy_with(Policy::Full, 2, Some(SLOW_WAKEUPS));
    let look_out = |decision: &Decision| decision.reason == Reason::Recheck;
    let look = (0..3_000).find_map(|_| guest.run(&mut policy, 1).into_iter().find(look_out));
    let vcpu = look.and_then(|look| look.action.vcpu()).expect("there is a look");
    for bound in [false, true] {
        let (mut guest, mut policy) = (guest.clone(), policy.clone());
        let decisions = guest.run_changed(&mut policy, 30, |window, _| {
            if bound {
                window.group.pinned.insert(vcpu);
            }
        });
        let again = decisions.iter().any(|decision| matches!(decision.reason, Reason::RecheckSlower { .. }));
        assert_eq!((again, policy.active().contains(vcpu)), (!bound, bound), "{decisions:?}");
    }
}
