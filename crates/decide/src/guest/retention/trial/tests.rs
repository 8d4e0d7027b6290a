use super::*;
use gleaner_model::{Distribution, GroupWindow, Source};

/// A program that synchronizes 10,000 times a second, and what each costs: with retention, without.
struct Program {
    cost_us: [f64; 2],
    rate: [u64; 2],
    /// By how much the cost grows from window to window.
    drift: f64,
}

fn window(at_ms: u64, cost_us: f64, rate: u64) -> Window {
    let switches = rate / 10;
    let mut delay = Distribution::new();
    // Half of the cost is waiting.
    (0..switches).for_each(|_| delay.record(Nanos::from_f64(cost_us * 500.0)));
    let cpu_time = Nanos::from_f64(cost_us * 1e3 * switches as f64) - delay.sum();
    Window {
        at: Nanos::from_millis(at_ms),
        length: Nanos::from_millis(100),
        source: Source::Bpf,
        vcpus: Vec::new(),
        idle_entries: None,
        halts: None,
        group: GroupWindow {
            cpu_time,
            voluntary_switches: switches,
            wake_to_run: Some(delay),
            ..GroupWindow::default()
        },
    }
}

/// Runs the program for so many windows; the reasons given, and whether it retained after each window.
fn run(trial: &mut Trial, program: &Program, windows: u64) -> (Vec<Reason>, Vec<bool>) {
    let mut reasons = Vec::new();
    let mut retained = Vec::new();
    for n in 0..windows {
        let off = usize::from(!trial.retains());
        let cost = program.cost_us[off] * (1.0 + program.drift * n as f64);
        reasons.extend(trial.step(&window((n + 1) * 100, cost, program.rate[off]), true));
        retained.push(trial.retains());
    }
    (reasons, retained)
}

/// Of yielding threads that retain from the beginning.
fn trial() -> Trial {
    let mut params = GuestParams::default();
    params.tuning.yielding_waits_for_trial = false;
    Trial::new(true, RetainMeans::Yielding, &params)
}

#[test]
fn what_costs_more_than_it_saves_is_stopped_and_what_saves_is_kept() {
    for (name, cost_us, rate, drift, pays) in [
        ("wake-ups cheaper", [10.0, 15.0], [10_000, 10_000], 0.0, true),
        ("dearer", [16.0, 15.0], [10_000, 10_000], 0.0, false),
        ("the same", [15.0, 15.0], [10_000, 10_000], 0.0, true),
        ("dearer by less than the least", [15.1, 15.0], [10_000, 10_000], 0.0, true),
        ("dearer, but clearly faster", [16.0, 15.0], [10_400, 10_000], 0.0, true),
        ("the same while the load drifts", [15.0, 15.0], [10_000, 10_000], 0.02, true),
        ("dearer while the load drifts", [15.9, 15.0], [10_000, 10_000], 0.01, false),
        ("cheaper while the load drifts", [14.0, 15.0], [10_000, 10_000], 0.02, true),
    ] {
        let mut trial = trial();
        let (reasons, _) = run(&mut trial, &Program { cost_us, rate, drift }, 40);
        assert_eq!((trial.pays(), trial.retains(), trial.is_running()), (pays, pays, false), "{name}: {reasons:?}");
        assert!(trial.is_settled(), "{name}");
    }
}

#[test]
fn polling_is_tried_once_a_program_has_lasted_half_a_second() {
    let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
    for n in 1..=5 {
        assert!(trial.retains() && !trial.is_running(), "{n}");
        if n > 1 {
            assert!(trial.urgency() == Urgency::None, "nobody waits for short windows yet");
        }
        trial.step(&window(n * 100, 15.0, 10_000), true);
    }
    assert!(trial.is_running());
}

#[test]
fn a_trial_is_short_and_comes_back_ever_less_often() {
    let mut trial = trial();
    let dear = Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 };
    let (_, retained) = run(&mut trial, &dear, 6000);
    // Ten minutes: the ten windows before the first trial, and half of each trial of 16 windows, at 0, 30, 90, 210
    // and 450 s.
    assert_eq!(retained.iter().filter(|retained| **retained).count(), 9 + 5 * 8);
    let cheap = Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 };
    let (_, retained) = run(&mut self::trial(), &cheap, 6000);
    assert_eq!(retained.iter().filter(|retained| !**retained).count(), 5 * 8);
}

#[test]
fn nothing_is_tried_in_the_dark_or_in_trouble() {
    let dear = Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 };
    let blind = |mut window: Window| {
        window.group.wake_to_run = None;
        window
    };
    let mut trial = trial();
    for n in 1..100 {
        assert_eq!(trial.step(&window(n * 100, 15.0, 400), true), None, "40 wake-ups a window");
        assert_eq!(trial.step(&window(n * 100, 15.0, 10_000), n % 9 > 0), None, "a step now and then");
    }
    assert!(trial.retains() && !trial.is_settled());
    // In the middle of a trial: it ends without an answer, and retention is as before.
    run(&mut trial, &dear, 11);
    assert!(trial.is_running() && !trial.retains());
    assert_eq!(trial.step(&window(1200, 15.0, 10_000), false), Some(Reason::RetentionTrial));
    assert!(trial.retains() && !trial.is_running() && !trial.is_settled());
    // Who sees no wake-ups does not retain what has not been tried, and keeps to what has.
    let mut unseen = self::trial();
    assert_eq!(unseen.step(&blind(window(100, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
    assert!(!unseen.retains() && !unseen.pays());
    let mut tried = self::trial();
    run(&mut tried, &Program { cost_us: [14.0, 15.0], rate: [10_000; 2], drift: 0.0 }, 40);
    assert_eq!(tried.step(&blind(window(4100, 15.0, 10_000)), true), None);
    assert!(tried.retains());
    tried.workload_changed();
    assert_eq!(tried.step(&blind(window(4200, 15.0, 10_000)), true), Some(Reason::RetentionUnseen));
    // The user does not want to be asked.
    let params = GuestParams { retention_trials: false, ..GuestParams::default() };
    for mut trial in [
        Trial::new(true, RetainMeans::Yielding, &params),
        Trial::new(false, RetainMeans::Yielding, &GuestParams::default()),
    ] {
        assert_eq!(run(&mut trial, &dear, 100).0, []);
        assert!(trial.retains() && trial.is_settled());
    }
}

#[test]
fn another_workload_is_another_trial() {
    let mut trial = trial();
    run(&mut trial, &Program { cost_us: [16.0, 15.0], rate: [10_000; 2], drift: 0.0 }, 40);
    assert!(!trial.retains());
    trial.workload_changed();
    assert!(trial.retains());
}

/// A window seen through `/proc`: CPU use in vCPUs, and synchronizations per second.
fn unseen(at_ms: u64, cpu: f64, rate: u64) -> Window {
    let length = Nanos::from_millis(100);
    let cpu_time = Nanos::from_f64(cpu * length.as_f64());
    let group = GroupWindow { cpu_time, voluntary_switches: rate / 10, ..GroupWindow::default() };
    Window { group, ..window(at_ms, 15.0, 10_000) }
}

#[test]
fn polling_is_kept_by_what_the_program_gets_done() {
    // CPU use and rate: with retention, without.
    for (name, with, without, pays) in [
        ("faster", (0.9, 14_000), (0.9, 10_000), true),
        ("no faster", (0.9, 10_100), (0.9, 10_000), false),
        ("slower", (0.9, 8_000), (0.9, 10_000), false),
        ("relay on the live guest: looks before it blocks, and hardly blocks", (1.9, 600), (0.9, 60_000), true),
        ("hardly blocks, and computes less", (0.5, 600), (0.9, 60_000), false),
    ] {
        let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
        assert!(trial.retains(), "{name}");
        for n in 1..40 {
            let (cpu, rate) = if trial.retains() { with } else { without };
            trial.step(&unseen(n * 100, cpu, rate), true);
        }
        assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}");
    }
}

#[test]
fn where_latency_counts_polling_stays_unless_the_program_is_slower() {
    // Rates: with retention, without.
    for (name, with, without, pays) in [
        ("a fixed rate of requests", 10_000, 10_000, true),
        ("a little less by chance", 9_950, 10_000, true),
        ("faster", 14_000, 10_000, true),
        ("slower", 9_000, 10_000, false),
        ("much slower", 6_000, 10_000, false),
    ] {
        for means in [RetainMeans::Haltpoll, RetainMeans::Yielding] {
            let mut trial = Trial::new(true, means, &GuestParams::default()).unless_slower(true);
            for n in 1..60 {
                let rate = if trial.retains() { with } else { without };
                trial.step(&unseen(n * 100, 0.9, rate), true);
            }
            assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}, {means}");
        }
    }
}

#[test]
fn a_program_that_counts_what_it_gets_done_is_judged_by_that_alone() {
    // Hand-overs say the opposite. Progress a window: with retention, without.
    for (name, with, without, pays) in
        [("faster", 150, 100, true), ("slower", 100, 150, false), ("no faster", 100, 100, false)]
    {
        let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
        for n in 1..60 {
            let retains = trial.retains();
            let mut window = unseen(n * 100, 0.9, if retains == pays { 10_000 } else { 40_000 });
            window.group.progress = Some(if retains { with } else { without });
            trial.step(&window, true);
        }
        assert_eq!((trial.pays(), trial.is_running()), (pays, false), "{name}");
    }
}

#[test]
fn too_little_progress_ends_a_trial_without_an_answer() {
    let mut trial = Trial::new(true, RetainMeans::Haltpoll, &GuestParams::default());
    for n in 1..100 {
        let mut window = unseen(n * 100, 0.9, if trial.retains() { 10_000 } else { 40_000 });
        window.group.progress = Some(3);
        trial.step(&window, true);
    }
    assert!(!trial.is_settled() && trial.retains());
}

#[test]
fn a_clear_trial_of_polling_costs_the_program_two_windows_and_one_beyond_doubt_one() {
    for (with, windows) in [(15_000, 2), (30_000, 1)] {
        let mut trial = Trial::new(true, RetainMeans::PmQos, &GuestParams::default());
        let off = (1..100).filter(|n| {
            let retained = trial.retains();
            trial.step(&unseen(n * 100, 0.9, if retained { with } else { 10_000 }), true);
            !retained
        });
        assert_eq!(off.count(), windows, "{with}");
    }
}

#[test]
fn a_yielding_thread_waits_for_its_trial_where_nobody_sees_wakeups() {
    let mut trial = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
    let mut retained = Vec::new();
    for n in 1..60 {
        trial.step(&unseen(n * 100, 0.9, if trial.retains() { 14_000 } else { 10_000 }), true);
        retained.push(trial.retains());
    }
    assert!(retained[..9].iter().all(|retained| !retained), "not before it was tried");
    assert!(trial.pays() && trial.retains());
}

#[test]
fn a_yielding_thread_has_to_show_a_gain_and_waits_until_it_has() {
    // What a synchronization costs, and how many there are a second: with retention, without.
    for (name, cost_us, rate, pays) in [
        ("wake-ups cheaper", [10.0, 15.0], [10_000, 10_000], true),
        ("the same", [15.0, 15.0], [10_000, 10_000], false),
        ("a little cheaper", [14.9, 15.0], [10_000, 10_000], false),
        ("dearer, but clearly faster", [16.0, 15.0], [10_400, 10_000], true),
        ("cheaper, but slower", [10.0, 15.0], [9_000, 10_000], false),
        ("dearer", [16.0, 15.0], [10_000, 10_000], false),
    ] {
        let mut trial = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
        assert!(!trial.retains(), "{name}");
        let (reasons, retained) = run(&mut trial, &Program { cost_us, rate, drift: 0.0 }, 40);
        assert!(retained[..10].iter().all(|retained| !retained), "{name}: not before it was tried");
        assert_eq!((trial.pays(), trial.retains(), trial.is_running()), (pays, pays, false), "{name}: {reasons:?}");
        trial.workload_changed();
        assert!(!trial.retains(), "{name}: another workload is another trial");
    }
}

#[test]
fn where_latency_counts_what_wakes_too_seldom_for_a_trial_is_retained() {
    let mut trial = Trial::new(true, RetainMeans::Yielding, &GuestParams::default()).unless_slower(true);
    assert!(!trial.retains(), "nothing was seen yet");
    trial.step(&window(100, 15.0, 400), true);
    assert!(trial.retains(), "40 wake-ups a window");
    assert_eq!(trial.step(&window(200, 15.0, 10_000), true), Some(Reason::RetentionUnseen));
    assert!(!trial.retains(), "a thousand");
    let mut balanced = Trial::new(true, RetainMeans::Yielding, &GuestParams::default());
    balanced.step(&window(100, 15.0, 400), true);
    assert!(!balanced.retains());
}

#[test]
fn what_is_on_both_sides_of_1_keeps_no_vcpu_awake() {
    let of = |rates: [f64; 4], costs: Option<[f64; 4]>| Ratios {
        costs: costs.map(Vec::from),
        rates: rates.to_vec(),
        by_cpu_time: false,
    };
    let busy = [0.82, 1.07, 1.2, 1.2];
    for means in [RetainMeans::Haltpoll, RetainMeans::IdlePoll, RetainMeans::Yielding] {
        let trial = Trial::new(true, means, &GuestParams::default());
        for (rates, costs, pays) in [
            (busy, None, false),
            (busy, Some([1.0, 0.99, 1.01, 1.0]), false),
            ([1.02, 1.07, 1.2, 1.2], None, true),
            // One pair met somebody else.
            ([0.7, 1.9, 2.0, 3.0], None, true),
            ([0.7, 0.9, 2.0, 3.0], None, false),
            ([1.02, 1.07, 1.2, 1.2], Some([1.0, 0.99, 1.01, 1.0]), true),
            // Each hand-over costs less: a fixed rate of requests shows no more.
            ([0.99, 1.01, 1.0, 1.0], Some([0.8, 0.9, 0.85, 1.01]), true),
            ([0.99, 1.01, 1.0, 1.0], Some([0.99, 1.0, 1.01, 1.0]), false),
        ] {
            assert_eq!(trial.does_pay(&of(rates, costs)), pays, "{means}: {rates:?}, {costs:?}");
        }
        let latency = Trial::new(true, means, &GuestParams::default()).unless_slower(true);
        assert!(latency.does_pay(&of(busy, None)), "where latency counts it is enough not to be slower");
    }
}
