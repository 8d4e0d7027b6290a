//! Threads that wait for a vCPU for long are told of at once, by both observers' means; those that hand over are not.

mod support;

use gleaner_model::{BurstWatch, Nanos};
use gleaner_observe::{BurstLook, BurstSignal, Observer, ObserverChoice, ObserverConfig, ProcRoot};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use support::{Player, alone, bpf_expected, play};

const WATCH: BurstWatch = BurstWatch { active: 1, after: Nanos::from_millis(1), delay: Nanos::from_secs(10) };

#[test]
fn player() {
    play();
}

/// Hears of bursts; what ends it is dropped with the test.
fn heard(mut signal: BurstSignal) -> Receiver<()> {
    let (tell, told) = channel();
    thread::spawn(move || while signal.wait() && tell.send(()).is_ok() {});
    told
}

fn observed(choice: ObserverChoice, player: &Player) -> Observer {
    let config = ObserverConfig::default();
    let (mut observer, _) = Observer::new(choice, &config).unwrap();
    observer.add_group(&[player.pid()], None);
    observer.start(&[]).unwrap();
    observer
}

#[test]
fn hogs_on_one_cpu_are_a_burst_and_threads_that_hand_over_are_none_on_this_machine() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    // Longer than other programs here may keep two threads waiting that hand over: in between it begins anew.
    let watch = BurstWatch { after: Nanos::from_millis(500), ..WATCH };
    for (role, is_burst) in [("hogs:3:2000", true), ("switches:20000", false)] {
        let mut player = Player::start(role);
        let config = ObserverConfig { groups_max: 2, ..ObserverConfig::default() };
        let (mut observer, _) = Observer::new(ObserverChoice::Bpf, &config).unwrap();
        assert!(observer.add_group(&[player.pid()], None));
        observer.start(&[]).unwrap();
        let Observer::Bpf(bpf) = &observer else { panic!("BPF was asked for") };
        if !bpf.tells_bursts() {
            gleaner_testing::skip!("needs timers of BPF programs");
        }
        let told = heard(bpf.burst_signal().unwrap());
        assert_eq!(observer.take_burst(1), None);
        assert!(observer.watch_bursts(1, Some(&watch)));
        player.go();
        if is_burst {
            told.recv_timeout(Duration::from_secs(60)).unwrap();
            // A window ends before somebody takes it: it is not lost.
            assert!(observer.watch_bursts(1, Some(&watch)));
            let burst = observer.take_burst(1).unwrap();
            assert!(burst.runnable > 1 && burst.lasted >= watch.after && burst.at <= observer.now(), "{burst:?}");
            assert_eq!(observer.take_burst(1), None, "it was taken");
            // Nothing is told until it is asked for again.
            assert!(told.recv_timeout(Duration::from_millis(100)).is_err());
            // Then it is, although no thread comes or goes.
            assert!(observer.watch_bursts(1, Some(&watch)));
            told.recv_timeout(Duration::from_secs(60)).unwrap();
        } else {
            player.wait_done();
            assert!(told.try_recv().is_err(), "{:?}", observer.take_burst(1));
        }
        player.finish();
    }
}

#[test]
fn a_look_at_proc_tells_the_same_on_this_machine() {
    let _turn = alone();
    for (role, is_burst) in [("hogs:3:2000", true), ("switches:20000", false)] {
        let mut player = Player::start(role);
        let mut observer = observed(ObserverChoice::Procfs, &player);
        assert!(!observer.watch_bursts(1, Some(&WATCH)), "an observer without events");
        let look = Arc::new(BurstLook::new(ProcRoot::default()));
        let signal = BurstSignal::by_looking(Arc::clone(&look));
        let stop = signal.stop();
        let told = heard(signal);
        player.go();
        // The threads have to be there to be known.
        thread::sleep(Duration::from_millis(200));
        observer.windows(&[]).unwrap();
        look.watch(Some(WATCH), observer.threads());
        if is_burst {
            told.recv_timeout(Duration::from_secs(60)).unwrap();
            let burst = look.take_burst().unwrap();
            assert!(burst.runnable > 1 && burst.lasted >= WATCH.after, "{burst:?}");
            assert_eq!(look.take_burst(), None);
        } else {
            player.wait_done();
            assert!(told.try_recv().is_err(), "{:?}", look.take_burst());
        }
        stop.stop();
        player.finish();
    }
}
