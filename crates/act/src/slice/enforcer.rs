//! Which tickers are needed now: one thread that asks who competes where, and orders tickers accordingly.
//!
//! Whoever owns it says through a function on which CPUs such threads compete, and at which slice; here nothing is
//! known of how that is seen. While some ticker is awake the function is asked every few milliseconds, and less and
//! less often while its answer stays the same; while none is, it may wait until there is something to tell, so that a
//! quiet machine is left alone.

use super::fifo::try_fifo;
use super::ticker::{Ticker, TickerCost};
use crate::{ActError, Fallback};
use gleaner_model::Nanos;
use gleaner_sys::{monotonic as now, thread_cpu_time, why_refused};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two questions while a ticker is awake: at least, and at most.
const ASK_EVERY: (Nanos, Nanos) = (Nanos::from_millis(5), Nanos::from_millis(200));
/// And so many of the shortest slice: whoever asks wakes, and so ends the slice of somebody.
const SLICES_PER_QUESTION: u64 = 4;
/// So often the time between two questions doubles while the answer stays the same, until it is the longest. Asking at
/// 5 ms took as much CPU time as the ticker of a 1 ms slice, and at 100 ms a fourteenth of it.
const MOST_DOUBLINGS: u32 = 6;
/// Competition that is over after so long needs no ticker: threads that wake at the same moment for some microseconds.
const LASTS: Duration = Duration::from_millis(1);
/// How long the function may wait while all are asleep. Also how long an [`Enforcer`] may take to end.
const QUIET: Duration = Duration::from_millis(200);
/// Tickers' periods differ by up to so much of the slice from CPU to CPU.
const APART: f64 = 0.01;
/// The fractional part of the golden ratio; std has it, but not yet in 1.88, which is what this takes.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Most tickers: one a CPU of the largest machine.
const MOST_TICKERS: usize = 8192;

/// A CPU on which threads compete whose slice is to be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Competing {
    pub cpu: u32,
    /// The shortest slice among those that compete.
    pub slice: Nanos,
}

/// Most CPU time a ticker may take of its CPU (0.1 ms slices were measured at 5 to 8 %: experiments/slices).
const BUDGET_RATIO: f64 = 0.10;
/// How long a ticker stays awake after competition was last seen on its CPU, a few of the kernel's own slices; two
/// questions, if that is longer.
const LINGER: Nanos = Nanos::from_millis(20);

#[derive(Debug, Default)]
struct Shared {
    tickers: Mutex<BTreeMap<u32, Ticker>>,
    notes: Mutex<Vec<String>>,
    stop: AtomicBool,
    /// The next answer may be another.
    changed: AtomicBool,
    cpu_time_ns: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tickers where they are needed, for as long as this lives. Nothing of it outlives the process, so nothing is
/// journalled.
#[derive(Debug)]
pub struct Enforcer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Enforcer {
    /// Starts to enforce. `competing` is asked where threads compete; it may wait at most so long, and shall return
    /// as soon as some do.
    ///
    /// # Errors
    /// When SCHED_FIFO cannot be had: said now, and not once a ticker is needed.
    pub fn start(competing: impl FnMut(Duration) -> Vec<Competing> + Send + 'static) -> Result<Self, ActError> {
        let unavailable = |why: String| ActError::Unavailable { what: "the enforcement of slices".into(), why };
        let fallback = try_fifo()?;
        let shared = Arc::new(Shared::default());
        lock(&shared.notes).extend(fallback.as_ref().map(Fallback::to_string));
        let mut loop_ = Loop {
            shared: Arc::clone(&shared),
            heartbeat: Arc::new(AtomicU64::new(now().0)),
            seen: BTreeMap::new(),
            once: BTreeSet::new(),
            same: 0,
            competing: Box::new(competing),
        };
        let thread = std::thread::Builder::new().name("gleaner-slices".into());
        let thread = thread.spawn(move || loop_.run()).map_err(|error| unavailable(why_refused(&error)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Tells that slices have changed: who competes where is asked at once, and often for a while.
    pub fn slices_changed(&self) {
        self.shared.changed.store(true, Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// What each ticker did and took, one entry a CPU that ever needed one.
    pub fn costs(&self) -> Vec<TickerCost> {
        lock(&self.shared.tickers).values().map(Ticker::cost).collect()
    }

    /// CPU time of asking where threads compete, all CPUs together.
    pub fn asking_cpu_time(&self) -> Nanos {
        Nanos(self.shared.cpu_time_ns.load(Relaxed))
    }

    /// What was weaker than it might be.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.shared.notes).clone()
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A function that panicked leaves nothing to be put right: the tickers end below.
            let _ = thread.join();
        }
        lock(&self.shared.tickers).clear();
        // Fails only where nothing was locked.
        let _ = munlockall();
    }
}

type Ask = Box<dyn FnMut(Duration) -> Vec<Competing> + Send>;

struct Loop {
    shared: Arc<Shared>,
    heartbeat: Arc<AtomicU64>,
    /// By CPU: when competition was last seen there, and the slice then.
    seen: BTreeMap<u32, (Nanos, Nanos)>,
    /// CPUs on which it was seen for the first time just now.
    once: BTreeSet<u32>,
    /// Answers that were like the one before, in a row.
    same: u32,
    competing: Ask,
}

impl Loop {
    fn run(&mut self) {
        while !self.shared.stop.load(Relaxed) {
            let quiet = self.seen.is_empty() && self.once.is_empty();
            if !self.once.is_empty() {
                std::thread::park_timeout(LASTS);
            } else if !quiet {
                std::thread::park_timeout(self.ask_every().into());
            }
            if self.shared.changed.swap(false, Relaxed) {
                self.same = 0;
            }
            let mut found = (self.competing)(if quiet { QUIET } else { Duration::ZERO });
            let before = std::mem::take(&mut self.once);
            found.retain(|found| {
                let lasts = self.seen.contains_key(&found.cpu) || before.contains(&found.cpu);
                lasts || !self.once.insert(found.cpu)
            });
            let known = |found: &Competing| self.seen.get(&found.cpu).is_some_and(|(_, slice)| *slice == found.slice);
            let as_before = found.len() == self.seen.len() && found.iter().all(known);
            self.same = if as_before { self.same.saturating_add(1) } else { 0 };
            let at = now();
            self.heartbeat.store(at.0, Relaxed);
            self.seen.extend(found.iter().map(|found| (found.cpu, (at, found.slice))));
            let linger = LINGER.max(self.ask_every().times(2));
            let past: Vec<u32> =
                self.seen.iter().filter(|(_, (seen, _))| at - *seen > linger).map(|(cpu, _)| *cpu).collect();
            for cpu in past {
                self.seen.remove(&cpu);
                self.order(cpu, Nanos::ZERO);
            }
            for found in found {
                self.order(found.cpu, period(found.slice, found.cpu));
            }
            self.shared.cpu_time_ns.store(thread_cpu_time().0, Relaxed);
        }
    }

    fn ask_every(&self) -> Nanos {
        ask_every(self.seen.values().map(|(_, slice)| *slice).min().unwrap_or_default(), self.same)
    }

    fn order(&mut self, cpu: u32, period: Nanos) {
        let mut tickers = lock(&self.shared.tickers);
        if period > Nanos::ZERO && !tickers.contains_key(&cpu) && tickers.len() < MOST_TICKERS {
            match Ticker::start(cpu, BUDGET_RATIO, Arc::clone(&self.heartbeat)) {
                Ok((ticker, _)) => {
                    tickers.insert(cpu, ticker);
                    // A page fault in a ticker would be a delay at real-time priority. Its stack is there by now.
                    if let Err(errno) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT) {
                        self.note(format!("the tickers' memory is not locked: {errno}"));
                    }
                }
                Err(error) => self.note(error.to_string()),
            }
        }
        if let Some(ticker) = tickers.get(&cpu) {
            ticker.order(period);
        }
    }

    fn note(&self, note: String) {
        let mut notes = lock(&self.shared.notes);
        if notes.len() < 16 && !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// A ticker's period for a slice: a little longer, so that whoever it displaces has used up its slice by the
/// scheduler's own account, which does not count the ticker's microseconds. Who has some left when displaced is,
/// presumably, cut short by the kernel's tick once it runs again (10 ms gave 8.2 to 10.1 at HZ=250; with this 10.1).
///
/// Each CPU's is longer by another part of a hundredth (the golden ratio's multiples, which lie evenly). Of equal
/// length, slices of two CPUs would keep the phase in which they happened to begin, which may be a bad one for VMs that
/// need both CPUs at a time (what it gains: experiments/slices).
fn period(slice: Nanos, cpu: u32) -> Nanos {
    let longer = Nanos(slice.0 / 100).max(Nanos::from_micros(20)).min(Nanos(slice.0 / 20));
    let apart = slice.as_f64() * APART * (f64::from(cpu) * GOLDEN).fract();
    slice + longer + Nanos::from_f64(apart)
}

/// Until the next question, where `shortest` is the shortest slice enforced and the last `same` answers were like those
/// before them.
fn ask_every(shortest: Nanos, same: u32) -> Nanos {
    let first = shortest.times(SLICES_PER_QUESTION).clamp(ASK_EVERY.0, ASK_EVERY.1);
    first.times(1 << same.min(MOST_DOUBLINGS)).min(ASK_EVERY.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_hundredth_to_a_twentieth_longer_than_the_slice() {
        for (slice, expected) in [(100, 105), (500, 520), (1_000, 1_020), (10_000, 10_100)] {
            assert_eq!(period(Nanos::from_micros(slice), 0), Nanos::from_micros(expected), "{slice}");
        }
    }

    #[test]
    fn no_two_cpus_of_a_machine_keep_step() {
        let slice = Nanos::from_millis(1);
        let mut periods: Vec<Nanos> = (0..256).map(|cpu| period(slice, cpu)).collect();
        assert!(periods.iter().all(|period| *period <= slice + Nanos::from_micros(30)), "{periods:?}");
        periods.sort_unstable();
        periods.dedup();
        assert_eq!(periods.len(), 256);
    }

    #[test]
    fn the_longer_nothing_changes_the_less_is_asked() {
        let ms = Nanos::from_millis;
        for (shortest, same, every) in [
            (1, 0, 5),
            (1, 1, 10),
            (1, 4, 80),
            (1, 5, 160),
            (1, 6, 200),
            (1, u32::MAX, 200),
            (10, 0, 40),
            (10, 3, 200),
            (60, 0, 200),
        ] {
            assert_eq!(ask_every(ms(shortest), same), ms(every), "{shortest} {same}");
        }
    }

    #[test]
    fn competition_that_stays_is_asked_about_less_than_one_that_changes() {
        let (asked, changing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (count, changes) = (Arc::clone(&asked), Arc::clone(&changing));
        let enforcer = Enforcer::start(move |_| {
            let odd = count.fetch_add(1, Relaxed) % 2 == 1;
            let slice = if odd && changes.load(Relaxed) { 500_000 } else { 1_000_000 };
            vec![Competing { cpu: 0, slice: Nanos(slice) }]
        });
        let Ok(enforcer) = enforcer else {
            gleaner_testing::skip!("needs SCHED_FIFO (root)");
        };
        let questions = || {
            let before = asked.load(Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            asked.load(Relaxed) - before
        };
        let of_changing = questions();
        changing.store(false, Relaxed);
        // Until the time between two has grown.
        questions();
        let of_steady = questions();
        assert!(of_steady > 0 && of_changing > 2 * of_steady, "{of_changing} {of_steady}");
        enforcer.slices_changed();
        let of_changed = questions();
        assert!(of_changed > of_steady, "{of_changed} {of_steady}");
    }

    #[test]
    fn tickers_come_with_competition_and_sleep_without() {
        let wanted = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&wanted);
        let enforcer = Enforcer::start(move |limit| {
            let slice = Nanos(asked.load(Relaxed));
            if slice == Nanos::ZERO {
                std::thread::sleep(limit.min(Duration::from_millis(20)));
                return Vec::new();
            }
            vec![Competing { cpu: 0, slice }]
        });
        let Ok(enforcer) = enforcer else {
            gleaner_testing::skip!("needs SCHED_FIFO (root)");
        };
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(enforcer.costs(), []);
        wanted.store(1_000_000, Relaxed);
        let ticks = || enforcer.costs().first().map_or(0, |cost| cost.ticks);
        let met = |enough: u64| {
            (0..6_000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                ticks() >= enough
            })
        };
        // Not for so long that it must sleep.
        let stood_still = || {
            (0..600).any(|_| {
                let before = ticks();
                std::thread::sleep(Duration::from_millis(100));
                ticks() == before
            })
        };
        assert!(met(20), "{:?}", enforcer.notes());
        wanted.store(0, Relaxed);
        assert!(stood_still(), "{:?}", enforcer.costs());
        let asleep = ticks();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(ticks(), asleep);
        wanted.store(500_000, Relaxed);
        assert!(met(asleep + 20));
        assert!(enforcer.asking_cpu_time() > Nanos::ZERO);
    }
}
