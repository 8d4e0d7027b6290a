//! Groups of several pairs, which are faster or slower on a vCPU each.

use super::*;
use crate::guest::turns::chains::Chain;
use gleaner_model::{GroupWindow, Profile, Source, SystemCalls, ThreadTime, VcpuId, VcpuWindow};

const LENGTH: Nanos = Nanos::from_millis(10);
const PAIRS: i32 = 4;

/// So many threads, two for each pair; what each took, as a share, and what they did in all.
fn window(n: u64, turns: &Turns, calls: u64) -> Window {
    let threads = || (0..PAIRS).flat_map(|pair| [10 * pair, 10 * pair + 1]);
    let time = ThreadTime { ran: Nanos(LENGTH.0 * 45 / 100), stints: 500, ..ThreadTime::default() };
    let mut ties = Ties { threads: threads().map(|tid| (tid, time)).collect(), ..Ties::default() };
    let asked = turns.wants_ties();
    if asked == TiesWanted::All {
        ties.wakes =
            (0..PAIRS).flat_map(|of| [(10 * of, 10 * of + 1), (10 * of + 1, 10 * of)]).map(|p| (p, 100)).collect();
    }
    Window {
        at: LENGTH.times(n + 1),
        length: LENGTH,
        source: Source::Procfs,
        vcpus: (0..8).map(|vcpu| VcpuWindow::new(VcpuId(vcpu))).collect(),
        idle_entries: None,
        halts: None,
        group: GroupWindow {
            threads: 9,
            cpu_time: Nanos(LENGTH.0 * 36 / 10),
            voluntary_switches: 1_000,
            system_calls: Some(Box::new(SystemCalls { steady: calls, ..SystemCalls::default() })),
            ties: (asked != TiesWanted::Nothing).then(|| Box::new(ties)),
            ..GroupWindow::default()
        },
    }
}

fn turns() -> Turns {
    let params = GuestParams { turns_chains: true, ..GuestParams::default() };
    Turns::new(true, Profile::Balanced, &params)
}

/// Runs windows `from` to `to` of a program that gets `percent` of what it gets apart done on a vCPU each.
fn run(turns: &mut Turns, (from, to): (u64, u64), percent: u64) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for n in from..to {
        let calls = if turns.bound().is_empty() { 1_000 } else { 10 * percent };
        let window = window(n, turns, calls);
        changes.extend(turns.step(&window, true, true).map(|change| (n, change)));
    }
    changes
}

#[test]
fn chains_that_win_are_bound_and_chains_that_lose_or_are_alike_are_not() {
    for (percent, bound) in [(300, true), (130, true), (112, true), (100, false), (93, false), (50, false)] {
        let mut turns = turns();
        let changes = run(&mut turns, (0, 25), percent);
        assert_eq!(turns.bound().len(), if bound { PAIRS as usize } else { 0 }, "{percent} %: {changes:?}");
        assert!(matches!(changes[0].1, Change::Pack(Reason::ChainsTrial { chains: 4, .. })), "{changes:?}");
        let told = turns.last().map(|last| (last.pays, last.reason));
        assert!(
            matches!(told, Some((pays, Reason::Chains { chains: 4, .. })) if pays == bound),
            "{percent} %: {told:?}"
        );
        assert!(!turns.is_on_one());
    }
}

#[test]
fn nothing_is_asked_where_one_vcpu_is_the_question_or_chains_are_not_wanted() {
    let mut unwanted = Turns::new(true, Profile::Balanced, &GuestParams::default());
    assert_eq!(run(&mut unwanted, (0, 50), 300), []);
    let mut single = turns();
    for n in 0..20 {
        let mut window = window(n, &single, 1_000);
        window.group.cpu_time = Nanos(LENGTH.0 * 9 / 10);
        single.step(&window, true, true);
        assert_eq!(single.wants_ties(), TiesWanted::Nothing, "window {n}");
    }
}

#[test]
fn who_is_told_of_no_wake_ups_asks_no_more() {
    let mut turns = turns();
    let mut asked = 0;
    for n in 0..500 {
        let mut window = window(n, &turns, 1_000);
        if let Some(ties) = &mut window.group.ties {
            asked += 1;
            ties.wakes.clear();
        }
        assert_eq!(turns.step(&window, true, true), None);
    }
    assert!((1..=TYING_WINDOWS_MAX).contains(&asked), "{asked}");
}

#[test]
fn what_lost_is_not_asked_again_before_its_time() {
    let mut turns = turns();
    let mut trials = 0;
    for n in 0..10_000 {
        let was_trying = turns.is_trying();
        let window = window(n, &turns, if turns.bound().is_empty() { 1_000 } else { 400 });
        turns.step(&window, true, true);
        trials += u32::from(!was_trying && turns.is_trying());
    }
    assert_eq!(trials, 10, "at once, and then after 0.125 s, 0.25 and so on, to 64");
}

#[test]
fn bound_chains_are_given_up_when_a_thread_ends_or_they_run_side_by_side() {
    let packed = || {
        let mut turns = turns();
        run(&mut turns, (0, 20), 150);
        assert_eq!(turns.bound().len(), PAIRS as usize);
        turns
    };
    let mut one_ends = packed();
    let mut changed = window(20, &one_ends, 1_500);
    changed.group.ties.as_mut().unwrap().threads.remove(&31);
    assert_eq!(one_ends.step(&changed, true, true), Some(Change::Spread(Reason::ChainsChanged)));
    assert!(one_ends.bound().is_empty() && one_ends.wants_ties() == TiesWanted::Nothing && !one_ends.is_engaged());

    let mut side_by_side = packed();
    let told: Vec<_> = (20..24)
        .filter_map(|n| {
            let mut changed = window(n, &side_by_side, 1_500);
            for time in
                changed.group.ties.iter_mut().flat_map(|ties| ties.threads.range_mut(10..20)).map(|(_, time)| time)
            {
                *time = ThreadTime { waited: Nanos(LENGTH.0 / 2), stints: 2, ..*time };
            }
            side_by_side.step(&changed, true, true).map(|change| (n, change))
        })
        .collect();
    assert!(matches!(told[..], [(21, Change::Spread(Reason::SideBySide { .. }))]), "{told:?}");
}

#[test]
fn chains_are_told_anew_from_where_they_are() {
    let mut turns = turns();
    run(&mut turns, (0, 20), 150);
    let before: Vec<Chain> = turns.bound().to_vec();
    // After a second it is tried again, with what was found.
    let changes = run(&mut turns, (20, 150), 150);
    assert!(changes.iter().any(|(_, change)| matches!(change, Change::Spread(Reason::ChainsTrial { .. }))));
    assert_eq!(turns.bound(), before);
    turns.workload_changed(LENGTH.times(151));
    assert!(turns.bound().is_empty());
}
