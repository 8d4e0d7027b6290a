//! A run as its program sees it: starts its threads together, stops them, adds up what they did.

use crate::latency::Latencies;
use crate::plan::{Plan, Stop, WorkloadError};
use crate::pthread::Monitor;
use crate::work::{Checksum, compute, mix};
use gleaner_model::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// How far a run is, for other threads to read, and the way to stop it. One for each run.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    items: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Items finished so far.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// No item is begun any more; those begun are finished.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for a signal handler to set.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All its items are done.
    Items,
    /// Its time was over.
    Time,
    Told,
}

/// What one thread, or all, did.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) checksum: Checksum,
    pub(crate) latency: Option<Latencies>,
    pub(crate) holding: Option<Latencies>,
    pub(crate) send_delay: Option<Latencies>,
    pub(crate) errors: u64,
}

impl Tally {
    pub(crate) fn merge(&mut self, other: Self) {
        self.checksum.merge(other.checksum);
        self.errors += other.errors;
        Latencies::merge(&mut self.latency, other.latency);
        Latencies::merge(&mut self.holding, other.holding);
        Latencies::merge(&mut self.send_delay, other.send_delay);
    }
}

/// A run as its program sees it.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    progress: &'a Progress,
    /// The next item that nobody has begun.
    next: AtomicU64,
    items_max: u64,
    out_of_time: AtomicBool,
    pub(crate) wall_ns: AtomicU64,
    pub(crate) threads_total: AtomicUsize,
}

impl<'a> Job<'a> {
    pub(crate) fn new(plan: &'a Plan, progress: &'a Progress) -> Self {
        let items_max = if let Stop::Items(items) = plan.stop { items } else { u64::MAX };
        Self {
            plan,
            progress,
            next: AtomicU64::new(0),
            items_max,
            out_of_time: AtomicBool::new(false),
            wall_ns: AtomicU64::new(0),
            threads_total: AtomicUsize::new(0),
        }
    }

    /// The next item to work on, or `None` at the end. Whoever claims one must finish it.
    pub(crate) fn claim(&self) -> Option<u64> {
        if self.stopped() {
            return None;
        }
        // It may overshoot by the number of threads, and is read only with that in mind.
        let item = self.next.fetch_add(1, Ordering::Relaxed);
        (item < self.items_max).then_some(item)
    }

    /// An item is done.
    pub(crate) fn finish(&self) {
        self.progress.items.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the run was told to end.
    pub(crate) fn stopped(&self) -> bool {
        self.progress.stopped()
    }

    /// The number from which `part` of `item` is made.
    pub(crate) fn number(&self, item: u64, part: u64) -> u64 {
        mix(mix(self.plan.seed, item), part)
    }

    /// One granularity of computation for `part` of `item`.
    pub(crate) fn compute(&self, item: u64, part: u64) -> u64 {
        compute(self.number(item, part), self.plan.iterations)
    }

    pub(crate) fn ended(&self) -> Ended {
        if self.progress.items() >= self.items_max {
            Ended::Items
        } else if self.out_of_time.load(Ordering::Relaxed) {
            Ended::Time
        } else {
            Ended::Told
        }
    }

    /// Runs `body` with its number on `count` threads that start together, and adds up what they return. A body that
    /// fails stops the run, and must let go of what others wait for.
    pub(crate) fn crew<F>(&self, count: usize, body: F) -> Result<Tally, WorkloadError>
    where
        F: Fn(usize) -> Result<Tally, WorkloadError> + Sync,
    {
        self.threads_total.store(count, Ordering::Relaxed);
        let name = self.plan.program.description().name;
        let (gate, body) = (Gate::default(), &body);
        // Each thread holds a sender until its end: the last to go wakes the main thread.
        let (alive, ended) = channel::<()>();
        scope(|scope| {
            let mut threads = Vec::with_capacity(count);
            let mut failed = None;
            for number in 0..count {
                let (alive, gate) = (alive.clone(), &gate);
                // The kernel keeps 15 bytes of a thread's name.
                let named = Builder::new().name(format!("{name:.11}{number}"));
                let life = move || {
                    let _alive = alive;
                    if gate.wait() { self.tell_of_failure(body(number)) } else { Ok(Tally::default()) }
                };
                match named.spawn_scoped(scope, life) {
                    Ok(thread) => threads.push(thread),
                    Err(source) => {
                        failed = Some(WorkloadError::Thread { number: number + 1, of: count, source });
                        break;
                    }
                }
            }
            drop(alive);
            let began = Instant::now();
            gate.open(failed.is_none());
            if let (Stop::After(limit), None) = (self.plan.stop, &failed) {
                self.wait(limit, &ended);
            }
            let mut sum = Tally::default();
            for thread in threads {
                match thread.join() {
                    Ok(Ok(tally)) => sum.merge(tally),
                    Ok(Err(error)) => failed = failed.or(Some(error)),
                    Err(_) => failed = failed.or(Some(WorkloadError::Panicked(name))),
                }
            }
            self.wall_ns.store(Nanos::from(began.elapsed()).0, Ordering::Relaxed);
            failed.map_or(Ok(sum), Err)
        })
    }

    /// One thread's failure ends the run for all.
    fn tell_of_failure(&self, result: Result<Tally, WorkloadError>) -> Result<Tally, WorkloadError> {
        if result.is_err() {
            self.progress.stop();
        }
        result
    }

    /// Waits for the threads' end or for that of the time, in which case it tells them.
    fn wait(&self, limit: Duration, ended: &std::sync::mpsc::Receiver<()>) {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            self.out_of_time.store(!self.stopped(), Ordering::Relaxed);
            self.progress.stop();
        }
    }
}

/// Where threads wait until all are there.
struct Gate {
    /// Whether to go or to go home, once that is known.
    go: Monitor<Option<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { go: Monitor::new(None) }
    }
}

impl Gate {
    fn wait(&self) -> bool {
        let mut go = self.go.lock();
        go.wait_until::<0>(|go| go.is_some());
        *go == Some(true)
    }

    fn open(&self, go: bool) {
        *self.go.lock() = Some(go);
        self.go.broadcast::<0>();
    }
}
