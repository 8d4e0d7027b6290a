//! The guest policy against a fake guest that closes the loop (see `common`).

mod common;

use common::{Guest, PIPELINE, Workload, apply, count, one_at_a_time, policy, retaining_untried, times};
use gleaner_decide::guest::{GuestPolicy, NoStep};
use gleaner_model::{Action, CpuSet, Decision, Nanos, Policy, Profile, Reason, VcpuId, VcpuWindow, Window};

/// Windows from a step, or the start, to the next: 3 to settle, 5 of baseline (3 of them to judge).
const STEP_WINDOWS: usize = 8;

fn consolidated(workload: Workload) -> (Guest, GuestPolicy) {
    let mut guest = Guest::new(4, workload, 1);
    let mut policy = policy(Policy::Full, 4);
    policy.begin();
    guest.run(&mut policy, 3 * STEP_WINDOWS);
    (guest, policy)
}

#[test]
fn a_workload_that_consolidates_well_goes_from_four_to_one_vcpu_and_stays() {
    for workload in [PIPELINE, Workload { saving_per_vcpu: 0.1, ..PIPELINE }] {
        for (mut policy, windows) in
            [(policy(Policy::Full, 4), STEP_WINDOWS), (one_at_a_time(Policy::Full, 4), 3 * STEP_WINDOWS)]
        {
            let mut guest = Guest::new(4, workload, 1);
            guest.run(&mut policy, windows - 1);
            assert!(policy.active().len() > 1);
            guest.run(&mut policy, 1);
            assert_eq!(policy.active(), &CpuSet::first(1), "the highest ids go first");
            assert_eq!(guest.run(&mut policy, 1_000), []);
            assert_eq!(policy.explain().no_step, Some(NoStep::OneVcpu));
        }
    }
}

#[test]
fn several_vcpus_go_at_once_until_a_step_hurts_and_then_one_at_a_time() {
    // 16 vCPUs; each that is taken away costs 0.5 %: fifteen at once cost 7 %, and are taken back together.
    let mut guest = Guest::new(16, Workload { demand: 0.8, loss_per_vcpu: 0.005, ..PIPELINE }, 1);
    let mut policy = policy(Policy::Consolidate, 16);
    let decisions = guest.run(&mut policy, 14);
    assert_eq!((count(&decisions, "deactivate"), times(&decisions, "deactivate")), (15, 1), "{decisions:?}");
    assert!(
        matches!(decisions[0].reason, Reason::IdleFits { vcpus: 15, load_ratio, .. } if load_ratio < 1.0),
        "{decisions:?}"
    );
    assert_eq!((count(&decisions, "activate"), times(&decisions, "activate")), (15, 1), "{decisions:?}");
    let decisions = guest.run(&mut policy, 1_000);
    assert_eq!(count(&decisions, "deactivate"), times(&decisions, "deactivate"), "{decisions:?}");
    assert!((9..=11).contains(&policy.active().len()), "5 or 6 cost less than 3 % together: {}", policy.active());
}

#[test]
fn it_stops_where_a_condition_does_and_says_which() {
    let ms = Nanos::from_millis;
    let halted = |why: &NoStep| matches!(why, NoStep::TooFewIdlePeriods { .. });
    for (name, workload, vcpus, expected) in [
        (
            "half full",
            Workload { demand: 2.0, ..PIPELINE },
            3,
            "predicted utilization of the vCPUs that stay 100 %, above 95",
        ),
        ("full", Workload { demand: 3.9, ..PIPELINE }, 4, "busy: fewer vCPUs would be too few"),
        ("little idle time", Workload { demand: 2.5, ..PIPELINE }, 3, "condition 1 fails"),
        (
            "long pieces",
            Workload { piece: ms(5), demand: 1.5, ..PIPELINE },
            4,
            "too few idle periods (40/s per vCPU, needs 100)",
        ),
        ("few idle periods", Workload { demand: 0.01, ..PIPELINE }, 4, "too few idle periods"),
    ] {
        let mut guest = Guest::new(4, workload, 1);
        let mut policy = policy(Policy::Full, 4);
        guest.run(&mut policy, 100);
        let found = policy.explain();
        let why = found.no_step.unwrap();
        assert_eq!((found.active.len(), found.vcpus), (vcpus, 4), "{name}: {why}");
        assert!(why.to_string().contains(expected), "{name}: {why}");
        assert!(halted(&why) || found.no_step_windows[0].0.to_string().contains(expected), "{name}: mostly {why}");
    }
}

#[test]
fn figure_4_through_the_whole_policy() {
    // Three vCPUs, t = 1 ms; rho = eta = 1, conditions (1) and (2) only.
    let mut params = retaining_untried();
    params.tuning.predicted_utilization_max = 1.0;
    for (name, g_comp_ms, steps) in [("4(a)", 1, 1), ("4(b)", 2, 0)] {
        let mut policy = GuestPolicy::new(Policy::Full, Profile::Balanced, params.clone(), None, CpuSet::first(3));
        let mut guest = Guest::new(3, PIPELINE, 1);
        guest.length = Nanos::from_millis(300);
        let mut decisions = Vec::new();
        for _ in 0..STEP_WINDOWS {
            let mut window = guest.window(policy.active());
            for vcpu in &mut window.vcpus {
                vcpu.busy = Nanos::from_millis(200);
                vcpu.halted = Nanos::from_millis(100);
                vcpu.idle_entries = Some(100);
            }
            window.group.cpu_time = Nanos::from_millis(600);
            window.group.voluntary_switches = 600 / g_comp_ms;
            decisions.extend(policy.step(&window));
        }
        assert_eq!(count(&decisions, "deactivate"), steps, "figure {name}: {:?}", policy.explain());
    }
}

#[test]
fn a_step_that_hurts_is_taken_back_once_and_not_tried_again() {
    for loss_per_vcpu in [0.04, 0.1, 0.3] {
        let mut guest = Guest::new(4, Workload { loss_per_vcpu, ..PIPELINE }, 1);
        let mut policy = one_at_a_time(Policy::Full, 4);
        let decisions = guest.run(&mut policy, 6_000);
        let actions: Vec<_> = decisions.iter().map(|decision| decision.action.name()).collect();
        assert_eq!(actions, ["retain", "retain", "retain", "retain", "deactivate", "release", "activate", "retain"]);
        let Reason::StepHurt { cpu_loss, overloaded: false } = decisions[6].reason else { panic!("{decisions:?}") };
        assert!((cpu_loss - loss_per_vcpu).abs() < 0.01);
        assert_eq!(
            decisions[6].at - decisions[4].at,
            Nanos::from_millis(600),
            "three windows to settle, three to judge"
        );
        assert!((policy.explain().load_factor - 0.9 * 0.0588).abs() < 0.001);
    }
}

#[test]
fn small_losses_do_not_add_up() {
    let mut guest = Guest::new(8, Workload { loss_per_vcpu: 0.02, ..PIPELINE }, 1);
    let mut policy = policy(Policy::Full, 8);
    guest.run(&mut policy, 6_000);
    assert!(policy.active().len() >= 7, "each step loses less than 3 %, two lose more: {}", policy.active());
}

#[test]
fn a_full_vcpu_lowers_eta() {
    // Nearly all of the work on one vCPU: with one vCPU fewer it is full, and the group slows down.
    let mut guest = Guest::new(4, Workload { demand: 1.2, skew: 0.45, ..PIPELINE }, 1);
    let mut policy = one_at_a_time(Policy::Consolidate, 4);
    let mut decisions = guest.run(&mut policy, STEP_WINDOWS);
    assert_eq!(count(&decisions, "deactivate"), 1);
    guest.workload = Workload { demand: 1.1, skew: 0.9, ..guest.workload };
    decisions = guest.run(&mut policy, 6);
    assert!(matches!(decisions[0].reason, Reason::StepHurt { overloaded: true, .. }), "{decisions:?}");
    let found = policy.explain();
    assert!(found.granularity_factor < 0.4 && found.load_factor > 0.99, "{found:?}");
}

#[test]
fn a_vcpu_that_our_own_step_filled_is_relieved_without_forgetting() {
    // On one vCPU there is a tenth more to compute, and no room for all of it: 4 % less gets done.
    let mut guest = Guest::new(2, Workload { demand: 0.95, saving_per_vcpu: -0.1, ..PIPELINE }, 1);
    let mut policy = policy(Policy::Consolidate, 2);
    let decisions = guest.run(&mut policy, 2_000);
    let names: Vec<_> = decisions.iter().map(|decision| decision.action.name()).collect();
    assert_eq!(names, ["deactivate", "activate"], "{decisions:?}");
    assert!(matches!(decisions[1].reason, Reason::Saturated { .. }));
    assert!(policy.explain().granularity_factor < 1.0);
}

/// Rising concurrency gives every vCPU back within this many windows of a step that settles (3) and is judged (3),
/// wherever it comes after that.
const RISE_WINDOWS: usize = 7;
/// A rise that comes with a step looks like its gain, until there has been a look (after 10, once it has settled and is
/// judged).
const RISE_WITH_A_STEP: usize = 17;

#[test]
fn rising_concurrency_gets_every_vcpu_back_within_seven_windows_or_with_the_first_look() {
    for before in STEP_WINDOWS..60 {
        for (demand, needed) in [(1.8, 2), (3.5, 4)] {
            let mut guest = Guest::new(4, PIPELINE, 1);
            let mut policy = policy(Policy::Full, 4);
            guest.run(&mut policy, before);
            assert_eq!(policy.active().len(), 1);
            guest.workload.demand = demand;
            let with_the_step = before < STEP_WINDOWS + 5;
            let windows = if with_the_step { RISE_WITH_A_STEP } else { RISE_WINDOWS };
            let back = (1..=windows).find(|_| {
                guest.run(&mut policy, 1);
                policy.active().len() == 4
            });
            assert!(back.is_some(), "rise to {demand} after {before} windows: {:?}", policy.explain());
            guest.run(&mut policy, 600);
            assert!(policy.active().len() >= needed, "{demand}: {:?}", policy.explain());
        }
    }
}

#[test]
fn finer_pieces_give_nothing_back_and_what_was_learnt_is_forgotten() {
    let mut guest = Guest::new(4, Workload { loss_per_vcpu: 0.02, ..PIPELINE }, 1);
    let mut policy = policy(Policy::Consolidate, 4);
    guest.run(&mut policy, 200);
    let (active, learnt) = (policy.active().clone(), policy.explain().load_factor);
    assert!(active.len() == 3 && learnt < 1.0, "{:?}", policy.explain());
    guest.workload.piece = Nanos::from_micros(40);
    let decisions = guest.run(&mut policy, 3);
    assert_eq!((count(&decisions, "activate-all"), policy.explain().load_factor), (0, 1.0), "{decisions:?}");
}

#[test]
fn coarser_pieces_that_still_fit_give_nothing_back() {
    let (mut guest, mut policy) = consolidated(Workload { demand: 0.2, ..PIPELINE });
    guest.run(&mut policy, 20);
    guest.workload.piece = Nanos::from_micros(250);
    assert_eq!(guest.run(&mut policy, 50), []);
}

/// What happens to the window, in whose voluntary switches; in how many windows it is seen; as what.
type Change = (&'static str, usize, fn(&mut Window, u64), fn(&Reason) -> bool);

#[test]
fn each_indicator_of_a_workload_change_activates_everything() {
    let changes: [Change; 6] = [
        ("exec", 1, |w, _| w.group.execs = Some(1), |r| matches!(r, Reason::Exec)),
        ("threads", 1, |w, _| w.group.new_threads = 4, |r| matches!(r, Reason::ThreadBurst { new_threads: 4 })),
        ("CPU up", 2, |w, _| scale(w, 1.3), |r| matches!(r, Reason::UtilizationChanged { ratio } if *ratio > 1.2)),
        ("CPU down", 2, |w, _| scale(w, 0.7), |r| matches!(r, Reason::UtilizationChanged { ratio } if *ratio < 0.8)),
        (
            "coarser than idle periods are long",
            3,
            |w, s| w.group.voluntary_switches = s * 9 / 20,
            |r| matches!(r, Reason::GranularityChanged { ratio } if *ratio > 2.0),
        ),
        ("a full vCPU", 3, |w, _| w.vcpus[0].busy = Nanos::from_millis(91), |r| matches!(r, Reason::Saturated { .. })),
    ];
    for (name, windows, change, expected) in changes {
        let (mut guest, mut policy) = consolidated(PIPELINE);
        guest.run(&mut policy, 20);
        let mut decisions: Vec<Decision> = Vec::new();
        for _ in 0..windows {
            assert_eq!(decisions, [], "{name}: too early");
            let mut window = guest.window(policy.active());
            if name == "a full vCPU" {
                // Another program came: the group grew a little, too.
                scale(&mut window, 1.15);
            }
            let switches = window.group.voluntary_switches;
            change(&mut window, switches);
            decisions = policy.step(&window);
        }
        assert_eq!(decisions.first().map(|d| d.action), Some(Action::ActivateAll), "{name}");
        assert!(expected(&decisions[0].reason), "{name}: {:?}", decisions[0].reason);
        assert_eq!(policy.active(), &CpuSet::first(4));
        assert_eq!(policy.explain().hold_off, Nanos::from_secs(1), "{name}");
    }
}

fn scale(window: &mut Window, by: f64) {
    let group = &mut window.group;
    group.cpu_time = Nanos::from_f64(group.cpu_time.as_f64() * by);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let switches = (group.voluntary_switches as f64 * by) as u64;
    group.voluntary_switches = switches;
}

#[test]
fn smaller_moves_are_no_change() {
    for (cpu, switches) in [(1.15, 1.0), (0.85, 1.0), (1.0, 1.8), (1.0, 0.6)] {
        let (mut guest, mut policy) = consolidated(PIPELINE);
        guest.run(&mut policy, 20);
        guest.workload.demand *= cpu;
        guest.workload.piece = Nanos::from_f64(guest.workload.piece.as_f64() / switches);
        assert_eq!(guest.run(&mut policy, 50), [], "CPU x {cpu}, switches x {switches}");
    }
}

#[test]
fn the_hold_off_doubles_while_changes_keep_coming() {
    let (mut guest, mut policy) = consolidated(PIPELINE);
    let mut hold_offs = Vec::new();
    for _ in 0..8 {
        let mut window = guest.window(policy.active());
        window.group.execs = Some(1);
        policy.step(&window);
        let held = policy.explain().hold_off;
        hold_offs.push(held.0 / 1_000_000_000);
        let windows = usize::try_from(held.0 / guest.length.0).unwrap() + 3;
        guest.run(&mut policy, windows);
    }
    assert_eq!(hold_offs, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn threads_and_exec_at_the_start_are_the_program_itself() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    let mut policy = policy(Policy::Full, 4);
    for window_number in 0..2 + STEP_WINDOWS {
        let mut window = guest.window(policy.active());
        window.group.execs = Some(u64::from(window_number < 2));
        window.group.new_threads = if window_number < 4 { 8 } else { 0 };
        policy.step(&window);
    }
    assert_eq!(policy.active().len(), 1, "{:?}", policy.explain());
}

#[test]
fn a_thread_per_request_is_no_burst() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    let mut policy = policy(Policy::Full, 4);
    for number in 0..200 {
        let mut window = guest.window(policy.active());
        window.group.new_threads = 90 + number % 20;
        policy.step(&window);
    }
    assert_eq!(policy.active().len(), 1);
}

#[test]
fn growing_steal_ends_in_no_spinning() {
    for kind in [Policy::Retain, Policy::Full] {
        let mut guest = Guest::new(4, Workload { demand: 2.0, noise: 0.02, ..PIPELINE }, 1);
        let mut policy = policy(kind, 4);
        let mut retained = CpuSet::new();
        apply(&mut retained, &policy.begin());
        assert_eq!(retained.len(), 4);
        for percent in 0..60 {
            guest.steal = f64::from(percent) / 100.0;
            apply(&mut retained, &guest.run(&mut policy, 5));
            assert!(percent > 4 || !retained.is_empty(), "{kind:?}: quiet at {percent} % steal");
            assert!(percent < 18 || retained.is_empty(), "{kind:?}: spinning at {percent} % steal on {retained}");
        }
        apply(&mut retained, &guest.run(&mut policy, 600));
        assert!(retained.is_empty(), "{kind:?}: it lasts as long as the steal");
        assert_eq!(policy.explain().contended.len(), policy.active().len());
        guest.steal = 0.01;
        apply(&mut retained, &guest.run(&mut policy, 20));
        assert_eq!(&retained, policy.active(), "{kind:?}: and ends with it");
    }
}

#[test]
fn steal_on_one_vcpu_stops_spinning_on_that_one() {
    let mut guest = Guest::new(4, Workload { demand: 3.0, ..PIPELINE }, 1);
    let mut policy = policy(Policy::Retain, 4);
    policy.begin();
    let mut decisions = Vec::new();
    for _ in 0..2 {
        let mut window = guest.window(policy.active());
        window.vcpus[2].steal = Nanos::from_millis(20);
        decisions.extend(policy.step(&window));
    }
    let [
        Decision {
            action: Action::Release { vcpu: VcpuId(2) },
            reason: Reason::Contended { steal_share, hold_off },
            ..
        },
    ] = decisions[..]
    else {
        panic!("{decisions:?}")
    };
    assert!((steal_share - 0.2).abs() < 1e-9 && hold_off == Nanos::from_secs(1));
}

#[test]
fn steal_is_no_slow_down() {
    let (mut guest, mut policy) = consolidated(Workload { demand: 1.6, ..PIPELINE });
    guest.run(&mut policy, 20);
    let active = policy.active().clone();
    guest.steal = 0.3;
    let decisions = guest.run(&mut policy, 100);
    assert_eq!(policy.active(), &active, "{decisions:?}");
}

#[test]
fn each_policy_does_what_it_says() {
    for (kind, retains, consolidates) in [
        (Policy::Off, false, false),
        (Policy::Observe, false, false),
        (Policy::Retain, true, false),
        (Policy::Consolidate, false, true),
        (Policy::Full, true, true),
    ] {
        let mut guest = Guest::new(4, PIPELINE, 1);
        let mut policy = policy(kind, 4);
        let begun = policy.begin();
        assert_eq!(count(&begun, "retain"), if retains { 4 } else { 0 }, "{kind:?}");
        let decisions = guest.run(&mut policy, 100);
        assert_eq!(count(&decisions, "deactivate"), if consolidates { 3 } else { 0 }, "{kind:?}");
        assert_eq!(count(&decisions, "release"), if retains && consolidates { 3 } else { 0 }, "{kind:?}");
    }
}

#[test]
fn vcpus_may_come_and_go() {
    let (mut guest, mut policy) = consolidated(PIPELINE);
    let mut retained = policy.explain().retaining;
    assert_eq!((policy.active().len(), retained.len()), (1, 1));
    for list in ["1-3", "1", "1,5", "0-7", "2-3"] {
        guest.vcpus = list.parse().unwrap();
        let decisions = guest.run(&mut policy, 1);
        assert_eq!(count(&decisions, "activate-all"), 1);
        apply(&mut retained, &decisions);
        assert_eq!(policy.active(), &guest.vcpus, "{list}: {decisions:?}");
        assert!(retained.is_subset(&guest.vcpus), "{list}: {decisions:?}");
        // What came back is left to the kernel's balancing for a window.
        apply(&mut retained, &guest.run(&mut policy, 1));
        assert_eq!(retained, guest.vcpus, "{list}");
        guest.run(&mut policy, 1);
        let mut nothing = guest.window(policy.active());
        nothing.vcpus.clear();
        assert_eq!(policy.step(&nothing), [], "a window without vCPUs is ignored");
        retained = policy.explain().retaining;
    }
}

#[test]
fn a_vcpu_that_came_back_is_retained_a_window_later() {
    let (mut guest, mut policy) = consolidated(PIPELINE);
    guest.workload.demand = 3.5;
    let back =
        (0..RISE_WINDOWS).map(|_| guest.run(&mut policy, 1)).find(|decisions| count(decisions, "activate-all") == 1);
    let retained = |decisions: &[Decision]| -> Vec<u32> {
        let retains = decisions.iter().filter(|found| found.action.name() == "retain");
        retains.filter_map(|found| found.action.vcpu()).map(|vcpu| vcpu.0).collect()
    };
    assert_eq!(back.map(|decisions| retained(&decisions)), Some(vec![]));
    assert_eq!(retained(&guest.run(&mut policy, 1)), [1, 2, 3], "and the one that stayed had been all the time");
}

#[test]
fn a_vcpu_that_a_thread_is_bound_to_stays_active() {
    for (pinned, active, why) in
        [("", "0", NoStep::OneVcpu), ("2", "2", NoStep::OneVcpu), ("1,3", "1,3", NoStep::Pinned)]
    {
        let mut guest = Guest::new(4, PIPELINE, 1);
        let mut policy = policy(Policy::Full, 4);
        for _ in 0..4 * STEP_WINDOWS {
            let mut window = guest.window(policy.active());
            window.group.pinned = pinned.parse().unwrap();
            policy.step(&window);
        }
        assert_eq!((policy.active().to_string().as_str(), policy.explain().no_step), (active, Some(why)), "{pinned}");
    }
}

#[test]
fn unknown_idle_periods_bring_no_step() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    let mut policy = policy(Policy::Full, 4);
    for _ in 0..50 {
        let mut window = guest.window(policy.active());
        window.idle_entries = None;
        window.vcpus = window.vcpus.into_iter().map(|vcpu| VcpuWindow { idle_entries: None, ..vcpu }).collect();
        policy.step(&window);
    }
    assert_eq!((policy.active().len(), policy.explain().no_step), (4, Some(NoStep::Unmeasured)));
}

#[test]
fn windows_may_vary_in_length() {
    let mut guest = Guest::new(4, PIPELINE, 1);
    let mut policy = policy(Policy::Full, 4);
    for number in 0..200 {
        guest.length = Nanos::from_millis([100, 250, 1_000, 37][number % 4]);
        guest.run(&mut policy, 1);
    }
    assert_eq!(policy.active().len(), 1, "{:?}", policy.explain());
}
