//! Run intervals of two threads that compute on one CPU, and of one that sleeps, as BPF and `/proc` tell them.

use gleaner_model::{Nanos, Source};
use gleaner_observe::{IntervalsWindow, RunIntervals, RunIntervalsConfig};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads on the last CPU this process may use, until dropped.
struct Threads {
    tids: Vec<i32>,
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

fn pinned(count: usize, turn: impl Fn() + Send + Clone + 'static) -> Threads {
    let may = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).rev().find(|cpu| may.is_set(*cpu)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = channel();
    let handles = (0..count).map(|_| {
        let (stop, tell, turn) = (Arc::clone(&stop), tell.clone(), turn.clone());
        std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            while !stop.load(Relaxed) {
                turn();
            }
        })
    });
    let handles: Vec<_> = handles.collect();
    Threads { tids: told.iter().take(count).collect(), stop, handles }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.handles.drain(..).for_each(|handle| handle.join().unwrap());
    }
}

fn compute() {
    (0..1_000).for_each(|_| std::hint::spin_loop());
}

fn observing(bpf: bool, tids: &[i32]) -> (RunIntervals, IntervalsWindow) {
    observing_until(bpf, tids, |_| true)
}

/// The window of a first half second, or longer ones, until there was enough in it: a busy machine gives these threads
/// little.
fn observing_until(
    bpf: bool,
    tids: &[i32],
    enough: impl Fn(&IntervalsWindow) -> bool,
) -> (RunIntervals, IntervalsWindow) {
    let look = |ms| {
        let mut observer = RunIntervals::new(&RunIntervalsConfig { bpf, capacity: 4, ..RunIntervalsConfig::default() });
        observer.watch(tids);
        std::thread::sleep(Duration::from_millis(ms));
        let window = observer.window();
        (observer, window)
    };
    [500, 2_000, 8_000].into_iter().map(look).find(|(_, window)| enough(window)).unwrap_or_else(|| look(30_000))
}

#[test]
fn two_that_compute_on_one_cpu_are_preempted_and_seen_to_compete_machine() {
    let threads = pinned(2, compute);
    for bpf in [true, false] {
        let enough = |window: &IntervalsWindow| {
            window.threads.iter().all(|thread| {
                let counted = thread.intervals.as_ref();
                thread.runs > 2 && counted.is_none_or(|of| of.preempted.count() > 2 && of.off_preempted.count() > 1)
            })
        };
        let (observer, window) = observing_until(bpf, &threads.tids, enough);
        if bpf && observer.source() == Source::Procfs {
            gleaner_testing::skipped(format_args!("needs BPF: {}", observer.refusal().unwrap()));
            continue;
        }
        for thread in &window.threads {
            // Others may take the CPU too, but hardly three quarters of it.
            assert!(!thread.ended && thread.run.share_of(window.length) > 0.1, "{thread:?}");
            assert!(thread.wait.share_of(window.length) > 0.1 && thread.runs > 2, "{thread:?}");
            assert_eq!(thread.intervals.is_some(), bpf);
            let Some(intervals) = &thread.intervals else { continue };
            let (preempted, slept) = (intervals.preempted.count(), intervals.slept.count());
            assert!(preempted > 2 && slept == 0, "{preempted} {slept}");
            // What the program timed is what the kernel charged, but for the intervals cut off by the window.
            let ratio = intervals.preempted.sum().as_f64() / thread.run.as_f64();
            assert!((0.5..1.3).contains(&ratio), "{ratio}");
            assert!(intervals.off_preempted.count() > 1);
        }
        let mut competition = observer.competition().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let both = || {
            let found = competition.wait(Duration::from_millis(200));
            found.iter().any(|cpu| threads.tids.iter().all(|tid| cpu.tids.contains(tid)))
        };
        assert!(std::iter::repeat_with(both).take_while(|_| Instant::now() < end).any(|seen| seen), "{bpf}");
    }
}

#[test]
fn one_that_sleeps_is_seen_to_sleep_and_to_wake_machine() {
    let threads = pinned(1, || {
        (0..50).for_each(|_| compute());
        std::thread::sleep(Duration::from_millis(2));
    });
    let enough = |window: &IntervalsWindow| {
        window.threads[0].intervals.as_ref().is_none_or(|intervals| intervals.slept.count() > 10)
    };
    let (mut observer, window) = observing_until(true, &threads.tids, enough);
    if observer.source() == Source::Procfs {
        gleaner_testing::skip!("needs BPF: {}", observer.refusal().unwrap());
    }
    let intervals = window.threads[0].intervals.as_ref().unwrap();
    assert!(intervals.slept.count() > 10, "{intervals:?}");
    assert_eq!(intervals.bursts.count(), intervals.slept.count());
    // Each but the first follows a wake-up.
    assert!(intervals.wake_to_run.count() * 10 >= intervals.slept.count() * 8, "{intervals:?}");
    assert!(intervals.wake_to_run.quantile(0.5).unwrap() < Nanos::from_millis(100));

    // A slot is given back, and what it held is not the next thread's.
    let tid = threads.tids[0];
    drop(threads);
    let next = pinned(1, || std::thread::sleep(Duration::from_secs(1)));
    observer.watch(&next.tids);
    std::thread::sleep(Duration::from_millis(120));
    let window = observer.window();
    assert_eq!(window.threads.len(), 1);
    assert_ne!(window.threads[0].tid, tid);
    assert!(window.threads[0].intervals.as_ref().unwrap().slept.count() < 5);
}

/// Computes for a slice and more of its own CPU time, then sleeps; two such on one CPU preempt each other in the
/// middle.
#[test]
fn a_burst_goes_on_over_preemptions_machine() {
    let threads = pinned(2, || {
        let cpu_time =
            || Nanos(u64::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec).unwrap());
        let begun = cpu_time();
        // The clock's seconds do not matter: a burst that crosses one ends early.
        while cpu_time().0.wrapping_sub(begun.0) < 30_000_000 {
            compute();
        }
        std::thread::sleep(Duration::from_millis(1));
    });
    let enough = |window: &IntervalsWindow| {
        let mut counted = window.threads.iter().filter_map(|thread| thread.intervals.as_ref());
        counted.all(|intervals| intervals.preempted.count() > 2 && intervals.bursts.count() > 0)
    };
    let (observer, window) = observing_until(true, &threads.tids, enough);
    if observer.source() == Source::Procfs {
        gleaner_testing::skip!("needs BPF: {}", observer.refusal().unwrap());
    }
    for thread in &window.threads {
        let intervals = thread.intervals.as_ref().unwrap();
        assert!(intervals.preempted.count() > 2 && intervals.bursts.count() >= 1, "{intervals:?}");
        // Between a burst's preemptions lie slices that are shorter than it is.
        let longest = intervals.preempted.quantile(1.0).max(intervals.slept.quantile(1.0));
        assert!(intervals.bursts.mean() > longest, "{:?} {longest:?}", intervals.bursts.mean());
        assert!(intervals.bursts.sum() > intervals.slept.sum());
    }
}

#[test]
fn two_without_a_slot_are_seen_to_compete_all_the_same_machine() {
    // Slots are given in the order of ids: these have them all.
    let with_slots = pinned(4, || std::thread::sleep(Duration::from_millis(5)));
    let without = pinned(2, compute);
    let highest = with_slots.tids.iter().max().unwrap();
    if !without.tids.iter().all(|tid| tid > highest) {
        gleaner_testing::skip!("needs thread ids that have not wrapped round");
    }
    let tids: Vec<i32> = with_slots.tids.iter().chain(&without.tids).copied().collect();
    let (mut observer, _) = observing(true, &tids);
    if observer.source() == Source::Procfs {
        gleaner_testing::skip!("needs BPF: {}", observer.refusal().unwrap());
    }
    assert_eq!(observer.left_out(), 2);
    let mut competition = observer.competition().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let both = || {
        let found = competition.wait(Duration::from_millis(200));
        found.iter().any(|cpu| without.tids.iter().all(|tid| cpu.tids.contains(tid)))
    };
    assert!(std::iter::repeat_with(both).take_while(|_| Instant::now() < end).any(|seen| seen));
    observer.watch(&without.tids);
    assert_eq!(observer.left_out(), 0, "slots are given back");
}

#[test]
fn more_threads_than_slots_are_left_to_proc_and_the_ended_say_so() {
    let threads = pinned(6, || std::thread::sleep(Duration::from_millis(5)));
    let (mut observer, window) = observing(true, &threads.tids);
    assert_eq!(window.threads.len(), 6);
    if observer.source() == Source::Bpf {
        assert_eq!(window.threads.iter().filter(|thread| thread.intervals.is_some()).count(), 4);
        assert_eq!(observer.left_out(), 2);
    }
    drop(threads);
    let all_ended = (0..30_000).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        observer.window().threads.iter().all(|thread| thread.ended)
    });
    assert!(all_ended);
}
