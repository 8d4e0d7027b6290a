//! How many threads of a group run or wait to run at once, as BPF counts it.

mod support;

use gleaner_model::{Concurrency, Nanos};
use gleaner_observe::{BpfObserver, ObserverConfig};
use std::thread;
use std::time::Duration;
use support::{Player, alone, bpf_expected, play};

#[test]
fn player() {
    play();
}

/// What was counted in `length` of what this player does; `joins`: it is there before the group is.
fn seen(role: &str, joins: bool, length: Duration) -> Concurrency {
    let config = ObserverConfig { groups_max: 2, ..ObserverConfig::default() };
    let mut observer = BpfObserver::new(&config).unwrap();
    let mut player = Player::start(role);
    if joins {
        player.go();
        thread::sleep(Duration::from_millis(200));
    }
    assert!(observer.add_group(&[player.pid()], None));
    observer.start(&[]);
    if !joins {
        player.go();
    }
    // The first threads come.
    thread::sleep(Duration::from_millis(100));
    observer.windows(&[]).unwrap();
    let mut all = Concurrency::default();
    for _ in 0..4 {
        thread::sleep(length / 4);
        let window = observer.windows(&[]).unwrap().pop().unwrap();
        let seen = window.group.concurrency.expect("BPF counts it");
        assert_eq!(seen.total(), window.length, "each moment is of one count");
        all += seen;
    }
    player.kill();
    all
}

#[test]
fn three_that_compute_are_three_from_the_beginning_and_when_they_join_late() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    for joins in [false, true] {
        let found = seen("hogs:3:4000", joins, Duration::from_millis(400));
        let three = found.at_least(3).unwrap() - found.at_least(4).unwrap();
        assert!(three > 0.9, "joins: {joins}, {found:?}");
    }
}

#[test]
fn of_two_that_hand_over_mostly_one_can_run() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let found = seen("switches:400000", false, Duration::from_millis(400));
    assert!(found.at_least(1).unwrap() > 0.5 && found.at_least(3).unwrap() < 0.05, "{found:?}");
}

#[test]
fn who_sleeps_is_not_counted() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let found = seen("sleepers:8", true, Duration::from_millis(400));
    assert!(found.times[0] > Nanos::from_millis(200), "{found:?}");
}
