//! One vCPU for threads that take turns is tried before consolidation takes its first step.

mod common;

use common::{Guest, SLOW_WAKEUPS, WAKEUP_BOUND, policy_with};
use gleaner_model::{Policy, Reason, SystemCalls};

#[test]
fn one_vcpu_is_tried_while_consolidation_still_settles() {
    // Nothing is retained there, so consolidation is on, and passes over eight windows first.
    let mut guest = Guest::new(4, WAKEUP_BOUND, 1);
    let mut policy = policy_with(Policy::Full, 4, Some(SLOW_WAKEUPS));
    let counted = guest.run_changed(&mut policy, 7, |window, _| {
        let steady = window.group.voluntary_switches;
        window.group.system_calls = Some(Box::new(SystemCalls { steady, ..SystemCalls::default() }));
    });
    let tried = |reason: &Reason| matches!(reason, Reason::TurnsTrial { .. });
    assert!(counted.first().is_some_and(|first| tried(&first.reason)), "{counted:?}");
    assert!(counted.iter().any(|decision| matches!(decision.reason, Reason::Turns { pays: true, .. })), "{counted:?}");
    assert_eq!(policy.active().len(), 1);
}
