//! Threads that appear and die by the thousand, and processes that vanish: no crash, no unbounded memory.

mod support;

use gleaner_observe::{BpfObserver, Observer, ObserverChoice, ObserverConfig, ProcfsObserver};
use std::time::Duration;
use support::{Player, alone, bpf_expected, play};

/// Threads per run of the churn test.
const THREADS: u64 = 10_000;

#[test]
fn player() {
    play();
}

#[test]
fn ten_thousand_threads_leave_nothing_behind_in_the_map() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    let mut player = Player::start(&format!("spawner:{THREADS}"));
    observer.adopted(player.pid());
    observer.start(&[]);
    player.go();
    player.wait_done();
    let window = observer.window(&[]).unwrap();
    assert_eq!(window.group.new_threads, THREADS);
    assert_eq!(observer.untracked(), 0);
    // The last thread may not have been switched out for the last time yet.
    let alive = observer.threads().len() as u64;
    assert!(alive <= 4 && window.group.threads <= 4, "{alive} in the map, {} counted", window.group.threads);
    player.finish();
    assert!(observer.threads().len() <= 2);
}

#[test]
fn ten_thousand_threads_leave_nothing_behind_in_the_cache() {
    let _turn = alone();
    let mut observer = ProcfsObserver::new(&ObserverConfig::default()).unwrap();
    let mut player = Player::start(&format!("spawner:{THREADS}"));
    observer.adopted(player.pid());
    observer.start(&[]).unwrap();
    let idle_files = observer.open_files();
    player.go();
    let mut cpu_time = 0;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        cpu_time += observer.window(&[]).unwrap().group.cpu_time.0;
    }
    player.wait_done();
    let window = observer.window(&[]).unwrap();
    cpu_time += window.group.cpu_time.0;
    // Most were never seen alive, but the process's clock has what they ran: at least a microsecond each.
    assert!(cpu_time > THREADS * 1_000, "only {cpu_time} ns");
    assert!(window.group.threads <= 4, "{} threads", window.group.threads);
    assert!(observer.open_files() <= idle_files + 8, "{} files, {idle_files} before", observer.open_files());
    player.finish();
    let window = observer.window(&[]).unwrap();
    assert_eq!((window.group.threads, observer.threads()), (0, vec![]));
}

#[test]
fn a_process_that_vanishes_leaves_an_empty_group() {
    let _turn = alone();
    for choice in [ObserverChoice::Procfs, ObserverChoice::Auto] {
        let (mut observer, _) = Observer::new(choice, &ObserverConfig::default()).unwrap();
        let mut player = Player::start("sleepers:50");
        observer.adopted(player.pid());
        observer.start(&[]).unwrap();
        player.go();
        player.wait_done();
        let window = observer.window(&[]).unwrap();
        assert!(window.group.threads >= 51 && window.group.new_threads >= 50, "{choice:?}: {:?}", window.group);
        assert_eq!(observer.threads().len() as u64, window.group.threads);
        player.finish();
        let window = observer.window(&[]).unwrap();
        assert_eq!((window.group.threads, observer.threads()), (0, vec![]), "{choice:?}");
        let empty = observer.window(&[]).unwrap();
        assert_eq!((empty.group.cpu_time.0, empty.group.voluntary_switches), (0, 0));
    }
}
