//! Windows of made-up programs, which are faster or slower on one vCPU.

use super::*;
use gleaner_model::{GroupWindow, Source, SystemCalls};

/// What a program does in a place, a second.
#[derive(Clone, Copy)]
struct Does {
    cpus: f64,
    items: f64,
}

const LENGTH: Nanos = Nanos::from_millis(10);

fn window(n: u64, does: Does) -> Window {
    let count = |per_s: f64| (per_s * LENGTH.as_secs_f64()) as u64;
    Window {
        at: LENGTH.times(n + 1),
        length: LENGTH,
        source: Source::Procfs,
        vcpus: Vec::new(),
        idle_entries: None,
        halts: None,
        group: GroupWindow {
            threads: 2,
            cpu_time: Nanos::from_f64(does.cpus * LENGTH.as_f64()),
            voluntary_switches: count(does.items * 2.0),
            system_calls: Some(SystemCalls { steady: count(does.items * 2.0), waits: 0, locks: 0 }),
            ..GroupWindow::default()
        },
    }
}

/// Runs `windows` of a program that does this apart and that packed; says what was changed, and when.
fn run(turns: &mut Turns, windows: u64, apart: Does, packed: Does) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for n in 0..windows {
        let does = if turns.is_packed() { packed } else { apart };
        changes.extend(turns.step(&window(n, does), true, true).map(|change| (n, change)));
    }
    changes
}

fn turns(profile: Profile) -> Turns {
    Turns::new(true, profile, &GuestParams::default())
}

const APART: Does = Does { cpus: 0.9, items: 100_000.0 };

#[test]
fn the_place_that_gets_more_done_is_kept() {
    let times = |factor: f64| Does { cpus: 1.0, items: APART.items * factor };
    for (profile, factor, packed) in [
        (Profile::Balanced, 3.0, true),
        (Profile::Balanced, 1.2, true),
        // As fast, with one vCPU less that polls.
        (Profile::Balanced, 0.99, true),
        (Profile::Balanced, 0.93, false),
        (Profile::Balanced, 0.5, false),
        (Profile::Frugal, 0.85, true),
        (Profile::Frugal, 0.7, false),
    ] {
        let mut turns = turns(profile);
        let changes = run(&mut turns, 100, APART, times(factor));
        assert_eq!(turns.is_packed(), packed, "{factor} under {profile:?}: {changes:?}");
        assert!(matches!(changes[0], (1, Change::Pack(Reason::TurnsTrial { .. }))), "{changes:?}");
        assert_eq!(turns.last().map(|last| last.pays), Some(packed), "{factor} under {profile:?}");
    }
}

#[test]
fn what_is_clear_ends_a_trial_after_one_pair() {
    for (factor, pairs) in [(2.0, 1), (1.2, 2), (1.05, 4), (0.8, 2), (0.4, 1)] {
        let mut turns = turns(Profile::Balanced);
        run(&mut turns, 100, APART, Does { items: APART.items * factor, ..APART });
        assert_eq!(turns.last().map(|last| last.rates.len()), Some(pairs), "{factor}");
    }
}

#[test]
fn programs_that_run_side_by_side_or_hand_over_seldom_are_left_alone() {
    for does in [Does { cpus: 1.5, ..APART }, Does { items: 500.0, ..APART }] {
        assert_eq!(run(&mut turns(Profile::Balanced), 50, does, does), []);
    }
    let params = GuestParams { turns_cpus_max: 0.0, ..GuestParams::default() };
    assert_eq!(run(&mut Turns::new(true, Profile::Balanced, &params), 50, APART, APART), []);
    assert_eq!(run(&mut Turns::new(false, Profile::Balanced, &GuestParams::default()), 50, APART, APART), []);
}

#[test]
fn what_lost_is_not_tried_again_before_its_time() {
    let mut turns = turns(Profile::Balanced);
    let slow = Does { items: APART.items * 0.4, ..APART };
    let windows = |s: u64| s * 100;
    let changes = run(&mut turns, windows(9), APART, slow);
    assert_eq!(changes.len(), 2, "one trial: {changes:?}");
    let mut trials = 0;
    for n in windows(9)..windows(100) {
        let does = if turns.is_packed() { slow } else { APART };
        let change = turns.step(&window(n, does), true, true);
        trials += u32::from(matches!(change, Some(Change::Pack(_))));
    }
    assert!((2..=3).contains(&trials), "at 10, 30 and 70 s: {trials}");
}

#[test]
fn a_packed_program_that_changes_gets_its_vcpus_back() {
    let mut turns = turns(Profile::Balanced);
    run(&mut turns, 50, APART, Does { items: APART.items * 3.0, ..APART });
    assert!(turns.is_packed());
    let coarse = Does { cpus: 1.0, items: APART.items / 10.0 };
    let change = (50..60).find_map(|n| turns.step(&window(n, coarse), true, true));
    assert!(matches!(change, Some(Change::Spread(Reason::GranularityChanged { .. }))), "{change:?}");
    assert!(!turns.is_engaged());
}

#[test]
fn system_calls_tell_before_switches_and_futex_only_where_there_is_little_else() {
    let block = |steady, waits, locks, switches| {
        let mut window = window(0, APART);
        window.group.system_calls = Some(SystemCalls { steady, waits, locks });
        window.group.voluntary_switches = switches;
        Block::of(&window).unwrap()
    };
    for (packed, apart, rate) in [
        (block(1_000, 10, 10, 3_000), block(500, 900, 900, 1_000), 2.0),
        (block(5, 500, 3_000, 2_000), block(5, 1_000, 1_000, 1_000), 505.0 / 1_005.0),
        (block(5, 5, 3_000, 2_000), block(5, 5, 1_000, 1_000), 3_010.0 / 1_010.0),
    ] {
        let told = evidence::pairs(&[packed, apart], &[true, false])[0].rate;
        assert!((told - rate).abs() < 1e-9, "{told} for {rate}");
    }
}
