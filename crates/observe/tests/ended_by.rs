//! What ends idle periods: an interrupt, or a thread at work on another vCPU.

mod support;

use gleaner_model::{IdleEndedBy, VcpuWindow, Window};
use gleaner_observe::{BpfObserver, ObserverConfig};
use std::time::{Duration, Instant};
use support::{Player, alone, bpf_expected, my_cpus, play};

/// Others are on the machine too: some run must be as it should be.
const RUNS: usize = 6;
/// Runs in which the vCPUs were hardly idle, because others were at work, say nothing.
const PERIODS_MIN: u64 = 200;
const LONGEST_SEARCH: Duration = Duration::from_secs(60);

#[test]
fn player() {
    play();
}

/// A window of a program that plays `role`.
fn window_of(role: &str) -> Window {
    let mut observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    let mut player = Player::start(role);
    observer.adopted(player.pid());
    observer.start(&[]);
    player.go();
    player.wait_done();
    let window = observer.window(&[]).unwrap();
    player.finish();
    window
}

/// Runs `role` until the share that interrupts ended is `expected`.
fn expect(role: &str, expected: impl Fn(f64) -> bool) {
    if !bpf_expected() {
        return;
    }
    if my_cpus().len() < 2 {
        gleaner_testing::skipped("needs two vCPUs");
        return;
    }
    let _turn = alone();
    let mut found = Vec::new();
    let end = Instant::now() + LONGEST_SEARCH;
    while Instant::now() < end {
        let window = window_of(role);
        let mut all = IdleEndedBy::default();
        for vcpu in &window.vcpus {
            let VcpuWindow { idle_ended_by, l_idle, .. } = vcpu;
            let (ended, periods) = (idle_ended_by.unwrap(), l_idle.as_ref().unwrap().count());
            assert_eq!(ended.interrupts + ended.wakeups, periods, "each idle period has one end");
            all += ended;
        }
        let share = all.by_interrupts().filter(|_| all.interrupts + all.wakeups >= PERIODS_MIN);
        let Some(share) = share else {
            std::thread::sleep(Duration::from_millis(500));
            continue;
        };
        if expected(share) {
            return;
        }
        found.push(share);
        assert!(found.len() < RUNS, "of idle periods of {role}, interrupts ended {found:?}");
    }
    gleaner_testing::skip!("needs a machine with idle time: of idle periods, interrupts ended {found:?}");
}

#[test]
fn on_this_machine_sleeps_end_by_a_timer() {
    expect("naps:500", |share| share > 0.8);
}

#[test]
fn on_this_machine_hand_overs_end_by_another_thread() {
    expect("pingpong:2000:100", |share| share < 0.3);
}
