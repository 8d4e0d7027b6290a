//! Parameters can be replaced while the policy runs.

mod common;

use common::{Guest, PIPELINE, Workload, count, policy, retaining_untried};
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{Action, CpuSet, Nanos, Policy, Profile, RetainMeans};

#[test]
fn the_same_parameters_set_after_each_window_change_nothing() {
    for workload in [PIPELINE, Workload { loss_per_vcpu: 0.05, ..PIPELINE }, Workload { demand: 3.5, ..PIPELINE }] {
        let (mut one, mut other) = (Guest::new(4, workload, 1), Guest::new(4, workload, 1));
        let (mut left_alone, mut set) = (policy(Policy::Full, 4), policy(Policy::Full, 4));
        assert_eq!(left_alone.begin(), set.begin());
        for window in 0..600 {
            assert_eq!(one.run(&mut left_alone, 1), other.run(&mut set, 1), "window {window}");
            set.set_params(retaining_untried());
        }
    }
}

#[test]
fn a_step_is_taken_once_its_condition_is_loosened_and_none_before() {
    let strict = GuestParams { min_time_slice_us: 100, ..retaining_untried() };
    let mut guest = Guest::new(4, Workload { demand: 0.8, ..PIPELINE }, 1);
    let fits = |params: GuestParams| GuestPolicy::new(Policy::Full, Profile::Balanced, params, None, CpuSet::first(4));
    let mut policy = fits(GuestParams { load_factor: 0.01, granularity_factor: 0.01, ..strict });
    policy.begin();
    assert_eq!(count(&guest.run(&mut policy, 60), "deactivate"), 0);
    policy.set_params(retaining_untried());
    assert!(count(&guest.run(&mut policy, 60), "deactivate") > 0, "{:?}", policy.explain());
}

#[test]
fn another_time_out_is_in_force_after_the_next_window() {
    let us = Nanos::from_micros;
    let with = |poll_timeout_balanced_us| GuestParams {
        poll_timeout_balanced_us,
        learn_timeouts: false,
        retention_trials: false,
        ..retaining_untried()
    };
    let policy = GuestPolicy::new(Policy::Retain, Profile::Balanced, with(200), None, CpuSet::first(2));
    let mut policy = policy.by(RetainMeans::Haltpoll, None);
    let timeouts = |decisions: Vec<gleaner_model::Decision>| -> Vec<Nanos> {
        let timeout = |action| match action {
            Action::Retain { timeout, .. } => timeout,
            other => panic!("{other:?}"),
        };
        decisions.into_iter().map(|decision| timeout(decision.action)).collect()
    };
    assert_eq!(timeouts(policy.begin()), [us(200); 2]);
    let mut guest = Guest::new(2, PIPELINE, 1);
    assert_eq!(guest.run(&mut policy, 1), []);
    policy.set_params(with(700));
    assert_eq!(timeouts(guest.run(&mut policy, 1)), [us(700); 2]);
    assert_eq!(policy.timeout(), us(700));
}
