//! How long a wake-up takes: the paper's section 3.1 and Table 2.
//!
//! A *waiter*, pinned to one vCPU, blocks in a futex, which is what pthread_mutex_lock does when the mutex is held. A
//! *waker*, pinned to the same vCPU or to another, sleeps for the gap, reads the clock, wakes the waiter; the waiter
//! reads the clock as soon as it runs. During the gap the waiter's vCPU is idle; whether it halts is the setting. The
//! clocks agree between vCPUs (CLOCK_MONOTONIC).

use gleaner_model::{Nanos, VcpuId};
use gleaner_sys::{monotonic as now, set_affinity};
use rustix::thread::futex::{Flags, wait, wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeupPlan {
    /// Where the waiter is pinned.
    pub waiter: VcpuId,
    /// Where the waker is pinned; the same vCPU makes setting A.
    pub waker: VcpuId,
    /// Sleep between two wake-ups.
    pub gap: Duration,
    /// How many wake-ups.
    pub samples: usize,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum WakeupError {
    /// A thread could not be pinned.
    #[error("cannot pin a thread to {vcpu}: {source}; it is offline or outside this process's allowed CPUs")]
    Pin {
        /// Where to.
        vcpu: VcpuId,
        /// Why not.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What waiter and waker share.
#[derive(Default)]
struct Shared {
    /// Counts wake-ups; the waiter blocks while it has not moved.
    round: AtomicU32,
    /// The round that the waiter is about to wait for the end of.
    waiting_in: AtomicU32,
    /// When the waker called futex_wake.
    woken_at: AtomicU64,
    /// Samples so far.
    taken: AtomicUsize,
    done: AtomicBool,
}

/// How often the caller hears of progress: seldom, because hearing of it is a wake-up too.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Runs the plan; calls `progress` every 50 ms with the number of samples so far. Stops early, with what it has, once
/// `progress` says `false`.
pub fn measure(plan: &WakeupPlan, mut progress: impl FnMut(usize) -> bool) -> Result<Vec<Nanos>, WakeupError> {
    let shared = Arc::new(Shared::default());
    let (for_waiter, wanted) = (Arc::clone(&shared), plan.samples);
    let (finished_in, finished) = std::sync::mpsc::channel();
    let waiter = pinned("gleaner-waiter", plan.waiter, move || {
        // The receiver outlives this thread: it is joined below.
        let _ = finished_in.send(wait_rounds(&for_waiter, wanted));
    })?;
    let (for_waker, gap) = (Arc::clone(&shared), plan.gap);
    let waker = pinned("gleaner-waker", plan.waker, move || wake_rounds(&for_waker, gap));
    let mut samples = None;
    while samples.is_none() && waker.is_ok() && progress(shared.taken.load(Ordering::Relaxed)) {
        samples = finished.recv_timeout(PROGRESS_EVERY).ok();
    }
    shared.done.store(true, Ordering::SeqCst);
    shared.round.fetch_add(1, Ordering::SeqCst);
    // Waking a futex that nobody waits for is no error worth telling.
    let _ = wake(&shared.round, Flags::PRIVATE, 1);
    // Neither thread panics: what they do is below.
    let _ = waiter.join();
    let _ = waker?.join();
    Ok(samples.or_else(|| finished.try_recv().ok()).unwrap_or_default())
}

fn wait_rounds(shared: &Shared, wanted: usize) -> Vec<Nanos> {
    let mut latencies = Vec::with_capacity(wanted.min(1_000_000));
    let mut round = shared.round.load(Ordering::SeqCst);
    while latencies.len() < wanted && !shared.done.load(Ordering::SeqCst) {
        shared.waiting_in.store(round + 1, Ordering::SeqCst);
        while shared.round.load(Ordering::SeqCst) == round {
            // Interrupted, or the round moved before we slept: the loop looks again.
            let _ = wait(&shared.round, Flags::PRIVATE, round, None);
        }
        let latency = now() - Nanos(shared.woken_at.load(Ordering::SeqCst));
        round = shared.round.load(Ordering::SeqCst);
        if !shared.done.load(Ordering::SeqCst) {
            latencies.push(latency);
            shared.taken.store(latencies.len(), Ordering::Relaxed);
        }
    }
    latencies
}

fn wake_rounds(shared: &Shared, gap: Duration) {
    while !shared.done.load(Ordering::SeqCst) {
        std::thread::sleep(gap);
        let round = shared.round.load(Ordering::SeqCst);
        if shared.waiting_in.load(Ordering::SeqCst) != round + 1 {
            // The waiter has not come back from the last round (a hog is in its way): not a wake-up to measure.
            continue;
        }
        shared.woken_at.store(now().0, Ordering::SeqCst);
        shared.round.store(round + 1, Ordering::SeqCst);
        // Cannot fail on a private futex of this process.
        let _ = wake(&shared.round, Flags::PRIVATE, 1);
    }
}

/// Keeps a vCPU busy from another thread's point of view: setting D inside one guest (`d_kind: guest`).
pub struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Starts one on `vcpu`, in the ordinary class.
    pub fn start(vcpu: VcpuId) -> Result<Self, WakeupError> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let spin = move || {
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Ok(Self { stop, thread: Some(pinned("gleaner-hog", vcpu, spin)?) })
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// Runs `work` on a thread of its own, pinned to `vcpu`.
fn pinned(name: &str, vcpu: VcpuId, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, WakeupError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let result = set_affinity(0, &std::iter::once(vcpu).collect());
        let go = result.is_ok();
        // The receiver waits below for exactly this.
        let _ = sender.send(result);
        if go {
            work();
        }
    })?;
    match receiver.recv() {
        Ok(Err(source)) => Err(WakeupError::Pin { vcpu, source }),
        _ => Ok(thread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(samples: usize) -> WakeupPlan {
        WakeupPlan { waiter: VcpuId(0), waker: VcpuId(0), gap: Duration::from_micros(200), samples }
    }

    #[test]
    fn every_wake_up_is_measured_once() {
        let samples = measure(&plan(50), |n| n <= 50).unwrap();
        assert_eq!(samples.len(), 50);
        assert!(samples.iter().all(|latency| *latency > Nanos::ZERO));
    }

    #[test]
    fn it_stops_when_told() {
        let samples = measure(&plan(1_000_000), |n| n < 5).unwrap();
        assert!((5..1_000_000).contains(&samples.len()), "{}", samples.len());
    }

    #[test]
    fn a_vcpu_that_is_not_there_is_named() {
        let error = measure(&WakeupPlan { waiter: VcpuId(1000), ..plan(1) }, |_| true).unwrap_err();
        assert!(error.to_string().contains("vCPU 1000"), "{error}");
        assert!(Hog::start(VcpuId(1000)).is_err());
    }
}
