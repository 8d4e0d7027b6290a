//! Who wakes whom, as BPF counts it.

mod support;

use gleaner_model::Wakes;
use gleaner_observe::{BpfObserver, ObserverConfig};
use std::time::Duration;
use support::{Player, alone, bpf_expected, play};

#[test]
fn player() {
    play();
}

/// What was counted while a player of this role played and, where it does not end by itself, for `more`.
fn wakes(role: &str, more: Duration) -> Wakes {
    let mut observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    let mut player = Player::start(role);
    observer.adopted(player.pid());
    observer.start(&[]);
    player.go();
    player.wait_done();
    std::thread::sleep(more);
    let window = observer.window(&[]).unwrap();
    player.kill();
    *window.group.wakes.expect("BPF sees them")
}

#[test]
fn two_that_wait_for_each_other_wake_each_other() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let found = wakes("switches:2000", Duration::ZERO);
    assert!(found.own >= 1_000 && found.returned * 10 > found.own * 9, "{found:?}");
    assert!(found.wide * 10 < found.own && found.bursts * 10 > found.own * 9, "{found:?}");
    assert!(found.interrupts * 10 < found.own && found.outside * 10 < found.own, "{found:?}");
    // The two, and the one that waits for them.
    assert!((2..=4).contains(&found.woken_threads), "{found:?}");
}

#[test]
fn timers_are_interrupts() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let found = wakes("sleepers:8", Duration::from_millis(500));
    assert!(found.interrupts >= 40 && found.own * 2 < found.interrupts, "{found:?}");
    assert!(found.woken_threads >= 8, "{found:?}");
}

#[test]
fn a_barrier_wakes_several_at_once() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let found = wakes("barrier:6:500", Duration::ZERO);
    assert!(found.own >= 500 && found.wide * 2 > found.own, "{found:?}");
    // Its mutex is handed from one to the next as well, more often on a busy machine.
    assert!(found.bursts * 4 < found.own * 3, "{found:?}");
}
