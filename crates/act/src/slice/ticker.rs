//! One CPU's ticker: a SCHED_FIFO thread, pinned, that wakes once a period and does nothing.
//!
//! Its wake-up displaces whoever runs; when it sleeps again the scheduler picks afresh. While its CPU has nothing to
//! enforce it sleeps without a timer, so that an idle CPU stays idle. It never takes more of the CPU than its budget: a
//! period too short for that is stretched, and the stretching is counted. If the owner is silent for two seconds it
//! sleeps too.

use super::alternating::AlternatingTimers;
use super::fifo::enter_fifo;
use crate::heartbeat::is_silent;
use crate::{ActError, Fallback};
use gleaner_model::{Nanos, VcpuId};
use gleaner_sys::{monotonic as now, set_affinity, thread_cpu_time, why_refused};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Time between two looks at what the ticker costs and whether its owner lives.
const CHECK_EVERY: Nanos = Nanos::from_millis(50);

/// What the owner and one ticker share. Single words, each with one writer.
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// 0: sleep.
    period_ns: AtomicU64,
    stop: AtomicBool,
    ticks: AtomicU64,
    cpu_time_ns: AtomicU64,
    awake_ns: AtomicU64,
    stretched: AtomicU64,
}

/// What one ticker did and took, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickerCost {
    pub cpu: u32,
    /// Timer expirations that woke it.
    pub ticks: u64,
    /// CPU time of its thread.
    pub cpu_time: Nanos,
    /// Time it was not asleep for want of competition.
    pub awake: Nanos,
    /// How often its period was found too short for its budget, and stretched.
    pub stretched: u64,
}

/// The owner's side of one ticker.
#[derive(Debug)]
pub(super) struct Ticker {
    pub cpu: u32,
    cell: Arc<Cell>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts one, asleep; says what had to be done for it to get its class.
    pub fn start(cpu: u32, budget_ratio: f64, heartbeat: Arc<AtomicU64>) -> Result<(Self, Option<Fallback>), ActError> {
        let cell = Arc::new(Cell::default());
        let (tell, told) = channel();
        let mut runner = Runner { cell: Arc::clone(&cell), budget_ratio, heartbeat, timers: None };
        let unavailable = |why: String| ActError::Unavailable { what: format!("a ticker on CPU {cpu}"), why };
        let thread = std::thread::Builder::new().name(format!("gleaner-t{cpu}")).stack_size(128 * 1024);
        let thread = thread
            .spawn(move || {
                let ready = pin(cpu).and_then(|()| enter_fifo()).and_then(|fallback| {
                    runner.timers = Some(AlternatingTimers::new()?);
                    Ok(fallback)
                });
                let go = ready.is_ok();
                if tell.send(ready).is_ok() && go {
                    runner.run();
                }
            })
            .map_err(|error| unavailable(why_refused(&error)))?;
        let ticker = Self { cpu, cell, thread: Some(thread) };
        let fallback = told.recv().map_err(|_| unavailable("it ended before it began".into()))??;
        Ok((ticker, fallback))
    }

    /// Wakes at this period from now on; zero: sleeps.
    pub fn order(&self, period: Nanos) {
        if self.cell.period_ns.swap(period.0, Relaxed) != period.0
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    pub fn cost(&self) -> TickerCost {
        let read = |word: &AtomicU64| word.load(Relaxed);
        TickerCost {
            cpu: self.cpu,
            ticks: read(&self.cell.ticks),
            cpu_time: Nanos(read(&self.cell.cpu_time_ns)),
            awake: Nanos(read(&self.cell.awake_ns)),
            stretched: read(&self.cell.stretched),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.cell.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It waits for its timer at most a period, 100 ms.
            let _ = thread.join();
        }
    }
}

/// The thread's own side.
struct Runner {
    cell: Arc<Cell>,
    budget_ratio: f64,
    heartbeat: Arc<AtomicU64>,
    timers: Option<AlternatingTimers>,
}

impl Runner {
    fn run(&mut self) {
        let Some(mut timers) = self.timers.take() else { return };
        while !self.cell.stop.load(Relaxed) {
            let period = Nanos(self.cell.period_ns.load(Relaxed));
            if period == Nanos::ZERO || is_silent(&self.heartbeat, now()) {
                // Woken by the next order. An owner that is silent now may come back without a new one.
                let rest = std::time::Duration::from_secs(if period == Nanos::ZERO { 3600 } else { 1 });
                std::thread::park_timeout(rest);
                continue;
            }
            if self.tick(&mut timers, period).is_err() {
                return;
            }
        }
    }

    /// Ticks at `period` until something is to be looked at: the cost, the owner, another order.
    fn tick(&self, timers: &mut AlternatingTimers, period: Nanos) -> rustix::io::Result<()> {
        let mut actual = period;
        timers.arm(now(), actual)?;
        let (mut since, mut cpu_since) = (now(), thread_cpu_time());
        let mut unchecked = 0;
        while self.cell.period_ns.load(Relaxed) == period.0 && !self.cell.stop.load(Relaxed) {
            let expirations = timers.wait()?;
            self.cell.ticks.store(self.cell.ticks.load(Relaxed) + 1, Relaxed);
            // A tick does as little as it can: the clock is not asked at each.
            unchecked += expirations;
            if actual.times(unchecked) < CHECK_EVERY {
                continue;
            }
            unchecked = 0;
            let at = now();
            if is_silent(&self.heartbeat, at) {
                break;
            }
            self.publish(at - since);
            let cpu = thread_cpu_time();
            let fitting = within_budget(period, actual, (cpu - cpu_since).share_of(at - since), self.budget_ratio);
            (since, cpu_since) = (at, cpu);
            if fitting != actual {
                self.cell.stretched.fetch_add(u64::from(fitting > actual), Relaxed);
                actual = fitting;
                timers.arm(now(), actual)?;
            }
        }
        self.publish(now() - since);
        timers.disarm()
    }

    /// Tells the owner what this thread took, and that it was awake for so long since it last told.
    fn publish(&self, awake: Nanos) {
        self.cell.awake_ns.fetch_add(awake.0, Relaxed);
        self.cell.cpu_time_ns.store(thread_cpu_time().0, Relaxed);
    }
}

/// The period that keeps to the budget: what was `wanted`, or more, when at `actual` the ticker took `share` of its
/// CPU.
fn within_budget(wanted: Nanos, actual: Nanos, share: f64, budget: f64) -> Nanos {
    let fitting = Nanos::from_f64(actual.as_f64() * share / budget);
    // A quarter back at a time, so that it does not swing.
    let eased = Nanos::from_f64(actual.as_f64() * 0.75);
    wanted.max(if share > budget { fitting } else { fitting.max(eased) }.min(Nanos::from_millis(100)))
}

fn pin(cpu: u32) -> Result<(), ActError> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let pinned = set_affinity(0, &std::iter::once(VcpuId(cpu)).collect());
    pinned.map_err(|source| ActError::Thread { call: "sched_setaffinity", tid, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_stretched_to_the_budget_and_eased_back() {
        let us = Nanos::from_micros;
        for (actual, share, fitting) in [
            (us(100), 0.05, us(100)),
            (us(100), 0.20, us(200)),
            (us(200), 0.10, us(200)),
            (us(200), 0.04, us(150)),
            (us(120), 0.01, us(100)),
        ] {
            assert_eq!(within_budget(us(100), actual, share, 0.10), fitting, "{actual} {share}");
        }
    }

    #[test]
    fn a_ticker_ticks_when_ordered_and_sleeps_otherwise() {
        let heartbeat = Arc::new(AtomicU64::new(now().0));
        let Ok((ticker, _)) = Ticker::start(0, 0.5, Arc::clone(&heartbeat)) else {
            gleaner_testing::skip!("needs SCHED_FIFO (root)");
        };
        let beat = |ms| {
            std::thread::sleep(std::time::Duration::from_millis(ms));
            heartbeat.store(now().0, Relaxed);
        };
        beat(50);
        assert_eq!(ticker.cost().ticks, 0);
        ticker.order(Nanos::from_millis(1));
        let woken = (0..6_000).any(|_| {
            beat(10);
            ticker.cost().ticks >= 20
        });
        ticker.order(Nanos::ZERO);
        ticks_when_it_stood_still(&ticker);
        let before = ticker.cost();
        beat(100);
        let after = ticker.cost();
        assert!(woken && before.awake > Nanos::ZERO);
        assert_eq!(before, after);
    }

    /// Comes true within a minute, while the owner beats or does not.
    fn comes_true(heartbeat: &AtomicU64, beats: bool, met: impl Fn() -> bool) -> bool {
        (0..6_000).any(|_| {
            if beats {
                heartbeat.store(now().0, Relaxed);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            met()
        })
    }

    /// The ticks after which it has not ticked for so long that it must sleep: a tenth of a second, at a tick a
    /// millisecond.
    fn ticks_when_it_stood_still(ticker: &Ticker) -> u64 {
        let mut last = ticker.cost().ticks;
        for _ in 0..600 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let ticks = ticker.cost().ticks;
            if std::mem::replace(&mut last, ticks) == ticks {
                return ticks;
            }
        }
        panic!("it ticks for ever: {:?}", ticker.cost());
    }

    #[test]
    fn a_ticker_whose_owner_is_silent_sleeps_and_wakes_when_it_is_back() {
        let long_ago = now() - crate::heartbeat::SILENT.times(2);
        let heartbeat = Arc::new(AtomicU64::new(long_ago.0));
        let Ok((ticker, _)) = Ticker::start(0, 0.5, Arc::clone(&heartbeat)) else {
            gleaner_testing::skip!("needs SCHED_FIFO (root)");
        };
        // Silent already when it is told to tick: not once.
        ticker.order(Nanos::from_millis(1));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(ticker.cost().ticks, 0, "it began to tick for an owner that is silent");
        assert!(comes_true(&heartbeat, true, || ticker.cost().ticks >= 20), "it does not come back");
        // Silent while it ticks.
        heartbeat.store(long_ago.0, Relaxed);
        let slept_at = ticks_when_it_stood_still(&ticker);
        assert!(comes_true(&heartbeat, true, || ticker.cost().ticks >= slept_at + 20), "it does not come back");
    }

    #[test]
    fn a_ticker_that_takes_more_than_its_budget_is_stretched() {
        let heartbeat = Arc::new(AtomicU64::new(now().0));
        // No thread takes less than a millionth of a CPU for 5,000 wake-ups a second; half a CPU is more than they
        // take.
        for (budget_ratio, stretched) in [(1e-6, true), (0.5, false)] {
            let Ok((ticker, _)) = Ticker::start(0, budget_ratio, Arc::clone(&heartbeat)) else {
                gleaner_testing::skip!("needs SCHED_FIFO (root)");
            };
            ticker.order(Nanos::from_micros(200));
            let enough = || ticker.cost().stretched > 0 || ticker.cost().ticks > 3_000;
            assert!(comes_true(&heartbeat, true, enough), "{:?}", ticker.cost());
            assert_eq!(ticker.cost().stretched > 0, stretched, "{:?}", ticker.cost());
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_has_no_ticker() {
        let error = Ticker::start(8000, 0.1, Arc::default()).unwrap_err().to_string();
        assert!(error.contains("sched_setaffinity"), "{error}");
    }
}
