//! A change of the workload that comes together with something of ours: what is seen of it, how soon, and what is not.
//!
//! Where nothing of ours goes on, `properties.rs` says that every change gives everything back at once or within three
//! windows. A step, its judging and a trial of retention change what is measured themselves, so for those windows less
//! can be promised; the tables here are that promise, window by window (docs/decisions/0006).

mod common;

use common::changes::{CHANGES, Change, WITH_A_STEP, WITH_A_TRIAL, all_given_back};
use common::{COSTLY_HALTS, Guest, PIPELINE, count, one_at_a_time, policy_with};
use gleaner_decide::guest::{GuestPolicy, NoStep};
use gleaner_model::{Action, Decision, Nanos, Policy, Reason};

/// Windows from a step, or the start, to the next.
const STEP_WINDOWS: usize = 8;

/// All but the one that our own steps answer.
fn changes() -> impl Iterator<Item = &'static Change> {
    CHANGES.iter().filter(|change| change.name != "a full vCPU")
}

/// How many windows of the change it took until everything was given back and forgotten; `None`: more than `most`.
fn seen_after(guest: &mut Guest, policy: &mut GuestPolicy, change: &Change, most: usize) -> Option<usize> {
    (1..=most).find(|_| {
        guest.run_changed(policy, 1, change.apply);
        all_given_back(policy)
    })
}

/// What was not seen: the steps stand, and when the change goes away again, that is seen. A program that does less is
/// compared with itself before the first step, too, so that the next step may be blamed and taken back.
fn missed_and_the_next_is_seen(name: &str, guest: &mut Guest, policy: &mut GuestPolicy, change: &Change) {
    let decisions = guest.run_changed(policy, 60, change.apply);
    let blamed = usize::from(change.name == "CPU use down");
    assert!(count(&decisions, "activate") <= blamed && count(&decisions, "activate-all") == 0, "{name}: {decisions:?}");
    assert!(policy.active().len() < 4, "{name}");
    let back = (1..=3).find(|_| {
        guest.run(policy, 1);
        all_given_back(policy)
    });
    assert!(back.is_some(), "{name}: it went away: {:?}", policy.explain());
}

#[test]
fn a_change_that_comes_with_a_step_is_told_from_the_step_where_that_can_be() {
    for change in changes() {
        for (step, offset) in (1..=3).flat_map(|step| (0..STEP_WINDOWS).map(move |offset| (step, offset))) {
            let name = format!("{}, {offset} windows after step {step}", change.name);
            let mut guest = Guest::new(4, PIPELINE, 1);
            let mut policy = one_at_a_time(Policy::Full, 4);
            guest.run(&mut policy, step * STEP_WINDOWS - 1 + offset);
            assert_eq!(policy.active().len(), if offset == 0 { 5 - step } else { 4 - step }, "{name}");
            let expected = match (change.name, offset) {
                // New threads and an exec are no figures that a step could move.
                ("exec" | "thread burst", _) => Some(1),
                // Less looks like a step that hurt, until it is still less without it.
                ("CPU use down", 0..=5) => Some(WITH_A_STEP - offset),
                // More, and more switches with it, looks like the step's gain where no vCPU is full.
                ("CPU use up", 0..=5) | ("CPU use down", 6) => None,
                _ => Some(2),
            };
            let found = seen_after(&mut guest, &mut policy, change, WITH_A_STEP);
            assert_eq!(found, expected, "{name}: {:?}", policy.explain());
            if found.is_none() {
                assert!(change.may_be_missed, "{name}");
                missed_and_the_next_is_seen(&name, &mut guest, &mut policy, change);
            }
        }
    }
}

#[test]
fn a_step_blamed_for_a_change_is_taken_back_at_once_and_its_lesson_forgotten_with_the_change() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    let mut policy = one_at_a_time(Policy::Full, 4);
    guest.run(&mut policy, 2 * STEP_WINDOWS);
    let down = changes().find(|change| change.name == "CPU use down").unwrap();
    let decisions = guest.run_changed(&mut policy, 6, down.apply);
    assert!(decisions.iter().any(|decision| matches!(decision.reason, Reason::StepHurt { .. })), "{decisions:?}");
    assert!(policy.active().len() == 3 && policy.explain().load_factor < 1.0);
    let decisions = guest.run_changed(&mut policy, 6, down.apply);
    let ratio = decisions.iter().find_map(|decision| match decision.reason {
        Reason::UtilizationChanged { ratio } => Some(ratio),
        _ => None,
    });
    assert!(ratio.is_some_and(|ratio| (ratio - 0.5).abs() < 0.01), "{decisions:?}");
    assert!(all_given_back(&policy));
}

/// On one vCPU, in the window `offset` windows after that which began a trial.
fn in_a_trial(offset: usize) -> (Guest, GuestPolicy) {
    let mut guest = Guest::new(4, PIPELINE, 1);
    guest.wakeup = Some([Nanos::from_micros(11), Nanos::from_micros(24)]);
    let mut policy = policy_with(Policy::Full, 4, Some(COSTLY_HALTS));
    policy.begin();
    let began = (0..100).any(|_| {
        guest.run(&mut policy, 1);
        policy.explain().retaining.is_empty()
    });
    assert!(began && policy.active().len() == 1, "{:?}", policy.explain());
    guest.run(&mut policy, offset);
    (guest, policy)
}

#[test]
fn a_change_that_comes_with_a_trial_of_retention_is_seen_at_once_or_after_it() {
    for change in changes() {
        for offset in 0..16 {
            let name = format!("{}, {offset} windows after a trial began", change.name);
            let (mut guest, mut policy) = in_a_trial(offset);
            assert!(offset == 0 || policy.explain().no_step == Some(NoStep::Trying), "{name}");
            let found = seen_after(&mut guest, &mut policy, change, WITH_A_TRIAL);
            match change.name {
                "exec" | "thread burst" => assert_eq!(found, Some(1), "{name}"),
                // What is left of the trial, and three windows to settle.
                "CPU use up" => assert_eq!(found, Some(16 - offset + 3 + 1), "{name}"),
                _ => {
                    assert_eq!(found, None, "{name}");
                    missed_and_the_next_is_seen(&name, &mut guest, &mut policy, change);
                }
            }
        }
    }
}

#[test]
fn a_trial_ends_with_the_program_it_was_made_of() {
    for offset in [0, 3, 9] {
        let (mut guest, mut policy) = in_a_trial(offset);
        guest.run_changed(&mut policy, 1, |window, _| window.group.execs = Some(1));
        let found = policy.explain();
        assert_eq!((found.active.len(), found.retention_cost_ratio), (4, None), "{offset}");
        assert_eq!(guest.run(&mut policy, 1).len(), 3, "{offset}: what came back is retained");
        assert_eq!(policy.explain().retaining.len(), 4, "{offset}");
    }
}

#[test]
fn a_trial_is_not_told_as_contention_that_is_long_over() {
    let (mut guest, mut policy) = in_a_trial(16);
    guest.steal = 0.3;
    let stopped = guest.run(&mut policy, 5);
    assert!(stopped.iter().any(|found| matches!(found.reason, Reason::Contended { .. })), "{stopped:?}");
    guest.steal = 0.0;
    let later = guest.run(&mut policy, 1_000);
    let over = later.iter().position(|found| found.reason == Reason::ContentionOver).expect("the guard's stop ends");
    let released: Vec<&Decision> =
        later[over..].iter().filter(|found| matches!(found.action, Action::Release { .. })).collect();
    assert!(!released.is_empty(), "another trial: {later:?}");
    assert!(released.iter().all(|found| found.reason == Reason::RetentionTrial), "{released:?}");
}
