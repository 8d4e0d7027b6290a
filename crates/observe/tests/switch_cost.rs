//! What BPF takes of a switch is known beside a group that switches often, and nobody asks beside one that does not.

mod support;

use gleaner_model::Nanos;
use gleaner_observe::{BpfObserver, ObserverConfig};
use std::time::Duration;
use support::{Player, alone, bpf_expected, play};

#[test]
fn player() {
    play();
}

#[test]
fn the_cost_of_a_switch_is_told_where_it_matters() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    observer.adopt_next_child();
    let mut player = Player::start("switches:100000");
    observer.adopted();
    observer.start(&[]);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(10));
        observer.window(&[]).unwrap();
    }
    assert_eq!(observer.switch_cost(), None, "the group waits");
    player.go();
    let known = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        observer.window(&[]).unwrap();
        observer.switch_cost().is_some()
    });
    player.wait_done();
    player.finish();
    let cost = observer.switch_cost();
    assert!(known, "200,000 switches, and no count");
    // Emulated or not, with mitigations or without.
    assert!(cost.is_some_and(|cost| (Nanos(10)..Nanos::from_millis(1)).contains(&cost)), "{cost:?}");
    eprintln!("{} a switch", cost.unwrap_or_default());
}
