//! Windows of made-up programs, which are faster or slower on one vCPU.

use super::*;
use gleaner_model::{GroupWindow, Source, SystemCalls};
use std::collections::BTreeSet;

/// What a program does in a place, a second.
#[derive(Clone, Copy)]
struct Does {
    cpus: f64,
    items: u64,
}

const LENGTH: Nanos = Nanos::from_millis(10);

fn window(n: u64, does: Does) -> Window {
    let switches = 2 * does.items * LENGTH.0 / Nanos::from_secs(1).0;
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
            voluntary_switches: switches,
            system_calls: Some(Box::new(SystemCalls { steady: switches, ..SystemCalls::default() })),
            ..GroupWindow::default()
        },
    }
}

/// Runs `windows` of a program that does this apart and that packed; says what was changed, and when.
fn run(turns: &mut Turns, windows: u64, apart: Does, packed: Does) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for n in 0..windows {
        let does = if turns.is_on_one() { packed } else { apart };
        changes.extend(turns.step(&window(n, does), true, true).map(|change| (n, change)));
    }
    changes
}

fn turns(profile: Profile) -> Turns {
    Turns::new(true, profile, &GuestParams::default())
}

const APART: Does = Does { cpus: 0.9, items: 100_000 };

#[test]
fn the_place_that_gets_more_done_is_kept() {
    let times = |percent: u64| Does { cpus: 1.0, items: APART.items * percent / 100 };
    for (profile, percent, packed) in [
        (Profile::Balanced, 300, true),
        (Profile::Balanced, 120, true),
        // As fast, with one vCPU less that polls.
        (Profile::Balanced, 99, true),
        (Profile::Balanced, 93, false),
        (Profile::Balanced, 50, false),
        (Profile::Frugal, 85, true),
        (Profile::Frugal, 70, false),
    ] {
        let mut turns = turns(profile);
        let changes = run(&mut turns, 25, APART, times(percent));
        assert_eq!(turns.is_on_one(), packed, "{percent} % under {profile:?}: {changes:?}");
        assert!(matches!(changes[0], (1, Change::Pack(Reason::TurnsTrial { .. }))), "{changes:?}");
        assert_eq!(turns.last().map(|last| last.pays), Some(packed), "{percent} % under {profile:?}");
    }
}

#[test]
fn what_is_clear_ends_a_trial_after_two_pairs_and_against_one_vcpu_after_one() {
    for (percent, pairs) in [(200, 2), (120, 2), (105, 4), (80, 2), (40, 1)] {
        let mut turns = turns(Profile::Balanced);
        run(&mut turns, 100, APART, Does { items: APART.items * percent / 100, ..APART });
        assert_eq!(turns.last().map(|last| last.rates.len()), Some(pairs), "{percent} %");
    }
}

#[test]
fn programs_that_run_side_by_side_or_hand_over_seldom_are_left_alone() {
    // The third waits for others than its own.
    for does in [Does { cpus: 1.5, ..APART }, Does { items: 500, ..APART }, Does { cpus: 0.3, ..APART }] {
        assert_eq!(run(&mut turns(Profile::Balanced), 50, does, does), []);
    }
    let params = GuestParams { turns_cpus_max: 0.0, ..GuestParams::default() };
    assert_eq!(run(&mut Turns::new(true, Profile::Balanced, &params), 50, APART, APART), []);
    assert_eq!(run(&mut Turns::new(false, Profile::Balanced, &GuestParams::default()), 50, APART, APART), []);
}

#[test]
fn a_trial_ends_once_threads_run_side_by_side_for_some_milliseconds() {
    let with = |waited: Nanos, does: Does, n: u64| {
        let mut window = window(n, does);
        window.group.waited = Some(waited);
        window
    };
    let alone = Nanos::from_millis(1);
    for (what, waited, packed) in
        [("many wait", LENGTH.times(9), APART), ("two run", alone, Does { cpus: 1.9, ..APART })]
    {
        let mut turns = turns(Profile::Balanced);
        let begun: Vec<_> = (0..2).filter_map(|n| turns.step(&with(alone, APART, n), true, true)).collect();
        assert!(matches!(begun[..], [Change::Pack(_)]), "{what}");
        let ended = turns.step(&with(waited, packed, 2), true, true);
        assert!(matches!(ended, Some(Change::Spread(Reason::SideBySide { .. }))), "{what}: {ended:?}");
        assert_eq!((3..20).find_map(|n| turns.step(&with(alone, APART, n), true, true)), None, "{what}");
    }
    // One short window says little, two in a row as little, three end it.
    let mut short = turns(Profile::Balanced);
    let begun = (0..2).filter_map(|n| short.step(&with(alone, APART, n), true, true)).count();
    assert_eq!(begun, 1);
    let ended = [true, false, true, true, true].map(|beside| {
        let mut window = with(if beside { LENGTH.times(9) } else { alone }, APART, 2);
        window.length = Nanos::from_millis(2);
        window.group.cpu_time = window.length;
        matches!(short.step(&window, true, true), Some(Change::Spread(Reason::SideBySide { .. })))
    });
    assert_eq!(ended, [false, false, false, false, true]);
    // Nor does one begin.
    let mut turns = turns(Profile::Balanced);
    assert_eq!((0..20).find_map(|n| turns.step(&with(LENGTH.times(9), APART, n), true, true)), None);
}

#[test]
fn what_lost_is_not_tried_again_before_its_time() {
    let mut turns = turns(Profile::Balanced);
    let slow = Does { items: APART.items * 4 / 10, ..APART };
    let changes = run(&mut turns, 15, APART, slow);
    assert_eq!(changes.len(), 2, "one trial: {changes:?}");
    let mut trials = 0;
    for n in 15..10_000 {
        let does = if turns.is_on_one() { slow } else { APART };
        let change = turns.step(&window(n, does), true, true);
        trials += u32::from(matches!(change, Some(Change::Pack(_))));
    }
    assert_eq!(trials, 9, "at 0.125, 0.375, 0.875 s and so on, to 64");
}

#[test]
fn what_two_pairs_agree_on_stands_longer_and_what_one_contradicts_shorter() {
    let exact = |percent: u32| (percent, percent);
    for (what, pairs, stands) in [
        ("one pair against", vec![exact(40)], 125),
        ("two for", vec![exact(200), exact(180)], 1_000),
        ("two against", vec![exact(80), exact(70)], 1_000),
        ("two, by an upper bound", vec![(70, 130), (80, 150)], 250),
        ("alike", vec![exact(101); 4], 250),
        ("one of four contradicts", vec![exact(194), exact(200), exact(79), exact(236)], 125),
    ] {
        let mut turns = turns(Profile::Balanced);
        let (now, rate) = (LENGTH.times(10), |percent: u32| f64::from(percent) / 100.0);
        let of = |(least, most)| Compared { least: rate(least), most: rate(most), cpu: 0.9 };
        let pairs: Vec<Compared> = pairs.into_iter().map(of).collect();
        let mut comparing = Comparing::begun(&window(9, APART), false, APART.cpus);
        comparing.blocks = vec![Block::of(&window(9, APART)); 2 * pairs.len()];
        let pays = verdict::verdict(&pairs, false, true).unwrap();
        turns.conclude(now, pays, &comparing, &pairs);
        assert_eq!(turns.again.remaining(now), Nanos::from_millis(stands), "{what}");
    }
}

#[test]
fn a_program_that_has_started_up_is_tried_without_waiting() {
    let mut turns = turns(Profile::Balanced);
    let starts = Does { items: 2_000, ..APART };
    run(&mut turns, 12, starts, Does { items: 900, ..starts });
    assert_eq!(turns.last().map(|last| last.pays), Some(false));
    let mut changes = 0;
    for n in 12..24 {
        let items = APART.items * if turns.is_on_one() { 2 } else { 1 };
        changes += u32::from(turns.step(&window(n, Does { items, ..APART }), true, true).is_some());
    }
    assert!(turns.is_on_one() && changes > 2, "{:?}", turns.last());
    // One that alternates between two is tried twice, and then when its time has come.
    let mut alternates = self::turns(Profile::Balanced);
    let mut trials = 0;
    for n in 0..200 {
        let items = if n / 20 % 2 == 0 { 2_000 } else { 100_000 } / if alternates.is_on_one() { 3 } else { 1 };
        let change = alternates.step(&window(n, Does { items, ..APART }), true, true);
        trials += u32::from(matches!(change, Some(Change::Spread(Reason::Turns { .. }))));
    }
    assert!((2..=5).contains(&trials), "two kinds, and at 0.125, 0.375, 0.875 and 1.875 s: {trials}");
}

#[test]
fn a_program_that_begins_and_gets_faster_by_itself_is_not_packed_for_it() {
    let mut turns = turns(Profile::Balanced);
    // It doubles its speed every window, and runs at half of it on one vCPU.
    for n in 0..8 {
        let items = (APART.items << n) / if turns.is_on_one() { 2 } else { 1 };
        turns.step(&window(n, Does { items, ..APART }), true, true);
    }
    let steady = Does { items: APART.items << 8, ..APART };
    for n in 8..36 {
        let items = steady.items / if turns.is_on_one() { 2 } else { 1 };
        turns.step(&window(n, Does { items, ..steady }), true, true);
    }
    assert!(!turns.is_on_one(), "{:?}", turns.last());
}

#[test]
fn a_packed_program_that_changes_gets_its_vcpus_back() {
    let mut turns = turns(Profile::Balanced);
    run(&mut turns, 50, APART, Does { items: APART.items * 3, ..APART });
    assert!(turns.is_on_one());
    // The last computes side by side: on one vCPU it switches where a slice ends, three times a window.
    for items in [APART.items / 10, 150] {
        let (mut turns, coarse) = (turns.clone(), Does { cpus: 1.0, items });
        assert_eq!(turns.step(&window(50, coarse), true, true), None);
        assert!(turns.seems_another());
        let change = (51..53).find_map(|n| turns.step(&window(n, coarse), true, true));
        assert!(matches!(change, Some(Change::Spread(Reason::GranularityChanged { .. }))), "{change:?}");
        assert!(!turns.is_engaged());
    }
    // Who does little stays.
    let idle = Does { cpus: 0.1, items: 150 };
    assert_eq!((50..60).find_map(|n| turns.step(&window(n, idle), true, true)), None);
}

#[test]
fn blocks_go_on_until_they_have_counted_enough() {
    let mut turns = turns(Profile::Balanced);
    let slow = Does { items: 2_000, ..APART };
    let changes = run(&mut turns, 100, slow, Does { items: 4_000, ..slow });
    // 40 switches a window apart: three windows, and one that was only looked at.
    let at: Vec<u64> = changes.iter().map(|(at, _)| *at).take(3).collect();
    assert!(turns.is_on_one() && at == [3, 8, 12], "{changes:?}");
    let mut stops = self::turns(Profile::Balanced);
    run(&mut stops, 4, slow, slow);
    let changes = run(&mut stops, 40, slow, Does { items: 100, ..slow });
    assert!(matches!(changes[..], [(25, Change::Spread(Reason::TurnsUnclear))]), "{changes:?}");
}

#[test]
fn a_packed_program_is_tried_again_with_as_little_as_that() {
    let mut turns = turns(Profile::Balanced);
    let packed = Does { items: APART.items * 2, ..APART };
    run(&mut turns, 50, APART, packed);
    let changes = run(&mut turns, 3_000, APART, packed);
    let trial = Reason::TurnsTrial { cpus: packed.cpus };
    let first: Vec<_> = changes.iter().map(|(at, change)| (at - changes[0].0, *change)).take(3).collect();
    assert_eq!(first[..2], [(0, Change::Spread(trial)), (3, Change::Pack(trial))], "{changes:?}");
    assert!(matches!(first[2], (5, Change::Pack(Reason::Turns { pays: true, .. }))), "{changes:?}");
    assert!(turns.is_on_one());
}

#[test]
fn system_calls_tell_before_switches_and_futex_only_where_there_is_little_else() {
    let block = |steady, waits, lock_waits, wakes, switches| {
        let mut window = window(0, APART);
        let waits_at = [(7, waits)].into();
        window.group.system_calls =
            Some(Box::new(SystemCalls { steady, lock_waits, wakes, waits_at, ..SystemCalls::default() }));
        window.group.voluntary_switches = switches;
        Block::of(&window)
    };
    for (what, packed, apart, rates) in [
        ("other calls", block(1_000, 10, 10, 0, 3_000), block(500, 900, 900, 0, 1_000), (2.0, 2.0)),
        ("hand-overs", block(5, 700, 500, 2_000, 2_500), block(5, 1_000, 0, 1_000, 1_000), (705.0 / 1_005.0, 1.5)),
        ("no waits but for locks", block(5, 5, 2_000, 995, 2_000), block(5, 5, 500, 490, 1_000), (3.005, 3.005)),
    ] {
        let told = evidence::compare(&packed, &apart, &packed.locks_beside(&apart));
        let off = (told.least - rates.0).abs() + (told.most - rates.1).abs();
        assert!(off < 1e-9, "{what}: {told:?} for {rates:?}");
    }
}

#[test]
fn time_that_counting_took_on_one_vcpu_is_left_out() {
    let block = |calls, counting, switches| {
        let mut window = window(0, APART);
        window.group.voluntary_switches = switches;
        let calls = SystemCalls { steady: calls, counting: Nanos(counting), ..SystemCalls::default() };
        window.group.system_calls = Some(Box::new(calls));
        Block::of(&window)
    };
    let no_locks = BTreeSet::new();
    // As pipes were seen on the live machine: 0.98 by count, and 1.15 by wall time.
    for (counting, told) in [(0, 0.98), (150, 0.98 / (1.0 - 0.0882)), (1_000_000, 0.98 / 0.75)] {
        let told_here = evidence::compare(&block(5_880, counting, 3_000), &block(6_000, counting, 3_000), &no_locks);
        assert!((told_here.least - told).abs() < 1e-3, "{counting} ns: {told_here:?}");
    }
    // Of twenty calls between two hand-overs only two have somebody wake up beside them.
    let told = evidence::compare(&block(5_880, 150, 294), &block(6_000, 150, 300), &no_locks);
    assert!((told.least - 0.98 / (1.0 - 0.00882)).abs() < 1e-3, "{told:?}");
}

/// Two Python threads in 5 ms, as seen on the live machine: on one vCPU they wait for the interpreter too.
#[test]
fn a_condition_that_is_waited_for_on_one_vcpu_alone_is_a_lock() {
    let block = |waits_at: &[(u8, u64)], lock_waits, switches| {
        let mut window = window(0, APART);
        let waits_at = waits_at.iter().copied().collect();
        let calls = SystemCalls { waits_at, lock_waits, ..SystemCalls::default() };
        window.group.system_calls = Some(Box::new(calls));
        window.group.voluntary_switches = switches;
        Block::of(&window)
    };
    let apart = block(&[(4, 507), (14, 507), (37, 1)], 0, 1_016);
    let packed = block(&[(4, 300), (14, 263), (37, 307)], 306, 2_047);
    let told = evidence::compare(&packed, &apart, &packed.locks_beside(&apart));
    assert!((0.54..0.56).contains(&told.least) && (0.80..0.82).contains(&told.most), "{told:?}");
}

/// OCaml's threads and their lock, as seen on the live machine, where one vCPU has 0.4 of the rate: in the second pair
/// the kernel had them on one vCPU for a part of "apart".
#[test]
fn a_lock_that_one_pair_shows_is_one_in_all() {
    let block = |micros, on_the_lock, others: u64, lock_waits, wakes, switches| {
        let mut window = window(0, APART);
        window.length = Nanos::from_micros(micros);
        window.group.cpu_time = window.length;
        let waits_at = (0..30).map(|at| (at, others / 30)).chain([(63, on_the_lock)]).collect();
        let calls = SystemCalls { waits_at, lock_waits, wakes, ..SystemCalls::default() };
        window.group.system_calls = Some(Box::new(calls));
        window.group.voluntary_switches = switches;
        Block::of(&window)
    };
    let shows = (block(2_390, 87, 160, 94, 572, 588), block(2_260, 5, 265, 0, 536, 268));
    let hides = (block(2_490, 90, 155, 96, 587, 596), block(2_330, 45, 261, 54, 665, 332));
    let locks: BTreeSet<u8> = [&shows, &hides].iter().flat_map(|(one, apart)| one.locks_beside(apart)).collect();
    assert_eq!(locks, [63].into());
    let alone = evidence::compare(&hides.0, &hides.1, &hides.0.locks_beside(&hides.1));
    let together = evidence::compare(&hides.0, &hides.1, &locks);
    assert!(alone.least > 0.75 && together.least < 0.6, "{alone:?} and {together:?}");
    assert_eq!((alone.most, together.most), (1.0, 1.0), "a block that was on one vCPU has no upper bound");
    let first = evidence::compare(&shows.0, &shows.1, &locks);
    assert!((0.8..0.9).contains(&first.most), "{first:?}");
    // Who waits by `FUTEX_WAIT` alone calls for more wake-ups on one vCPU: SBCL's semaphores, 0.9 of the rate.
    let told = evidence::compare(&block(2_500, 0, 0, 520, 740, 926), &block(2_500, 0, 0, 540, 545, 533), &locks);
    assert!((0.95..0.97).contains(&told.most), "{told:?}");
}

#[test]
fn hand_overs_known_between_two_bounds_pack_where_the_upper_one_is_clear() {
    // What waits say and what switches say, of one vCPU over several.
    for (what, least, most, packed) in [
        ("POSIX semaphores", 78, 127, true),
        ("condition variable", 51, 75, false),
        ("JVM pool", 82, 118, true),
        ("Python threads", 50, 91, false),
        ("JVM barrier", 76, 105, false),
    ] {
        let mut turns = turns(Profile::Balanced);
        for n in 0..20 {
            let (waits, switches) = if turns.is_on_one() { (10 * least, 10 * most) } else { (1_000, 1_000) };
            let mut window = window(n, APART);
            window.group.voluntary_switches = switches;
            let waits_at = [(7, waits)].into();
            window.group.system_calls = Some(Box::new(SystemCalls { waits_at, ..SystemCalls::default() }));
            turns.step(&window, true, true);
        }
        assert_eq!(turns.is_on_one(), packed, "{what}: {:?}", turns.last());
    }
}

#[test]
fn pairs_that_contradict_each_other_pack_nothing() {
    // Of one vCPU over several, pair by pair: a median of 1.3 or of 1 each time.
    for (what, pairs, packed) in [
        ("one pair far below", [131, 57, 167, 131], false),
        ("one pair a little below", [131, 85, 167, 131], true),
        ("alike, and all agree", [99, 101, 98, 103], true),
        ("alike in the median alone", [99, 91, 101, 183], false),
    ] {
        let compared = pairs.map(|percent| {
            let rate = f64::from(percent) / 100.0;
            Compared { least: rate, most: rate, cpu: 0.9 }
        });
        assert_eq!(verdict::verdict(&compared, false, true), Some(packed), "{what}");
    }
}
