//! The spin/halt state machine of one yielding thread (paper, sections 4.1 and 6).
//!
//! A yielding thread keeps its vCPU from halting by calling `sched_yield` in the lowest scheduling class. It has to
//! give the vCPU up when an idle period outlasts the time-out, and must not come back before the vCPU has been busy:
//! waking up earlier would be a wake-up of its own. act/ makes the calls and measures; this says what to do next. The
//! simulator runs it too.
//!
//! ```text
//!            idle >= time-out, no signal             looked for nap_check_us,
//!           +--------------------------> NAPPING <---- nobody came: nap x 2 --+
//!           |                               | woke at once                    |
//!   --> SPINNING <--- woke late: idle = 0 - + ---------> PROBING -------------+
//!        |  ^ |                                             |
//!        |  | +-- idle >= time-out --> HALTED (until busy)  +-- displaced --> SPINNING
//!        |  +------- busy again ---------+
//!        +-- stolen share > 15 % --> GUARDED (1 s .. 30 s) --> SPINNING     order Sleep --> ORDERED
//! ```
//!
//! Late: the nap ended while another task had the vCPU, and this thread, of the lowest class, ran when that was done.
//! Work that comes and goes within one nap goes unnoticed: the idle period after it is not retained, up to
//! `nap_max_us`. No cheap figure tells of it without privilege; the observer's count of idle periods is right all the
//! same.
//!
//! Calls are a few nanoseconds and allocate nothing: [`YieldingThread::returned`] is on the path of every yield.

use super::contention::{ContentionGuard, GuardChange, StolenMeter};
use crate::guest::GuestParams;
use gleaner_model::{Nanos, Next, Order, RetainCounters, YieldMachine, YieldReturn};

/// A sleep that only an order ends.
pub const UNTIL_ORDERED: Nanos = Nanos(u64::MAX);

/// A sleeper that waits to be told its vCPU is busy looks up this often, in case the signal was lost.
pub const SIGNAL_CHECK: Nanos = Nanos::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Accumulating idle time.
    Spinning,
    /// After a nap: yielding to find out whether somebody comes.
    Probing {
        looked_for: Nanos,
    },
    Napping,
    Halted,
    Guarded,
    Ordered,
}

/// The state machine of one yielding thread. See the module's text.
#[derive(Clone, Debug)]
pub struct YieldingThread {
    state: State,
    /// `None`: ordered to sleep.
    timeout: Option<Nanos>,
    signalled: bool,
    idle_for: Nanos,
    nap: Nanos,
    nap_min: Nanos,
    nap_max: Nanos,
    nap_check: Nanos,
    meter: StolenMeter,
    guard: ContentionGuard,
    counters: RetainCounters,
}

impl YieldingThread {
    /// A thread under `order`, not yet told what to do: call [`Self::order`] with the same order when it starts to run.
    /// `can_be_signalled`: somebody (BPF) wakes it when its vCPU has been busy again; otherwise it naps.
    pub fn new(order: Order, can_be_signalled: bool, params: &GuestParams) -> Self {
        let nap_min = Nanos::from_micros(params.tuning.nap_min_us);
        let timeout = match order {
            Order::Retain { timeout } => Some(timeout),
            Order::Sleep => None,
        };
        Self {
            state: if timeout.is_some() { State::Spinning } else { State::Ordered },
            timeout,
            signalled: can_be_signalled,
            idle_for: Nanos::ZERO,
            nap: nap_min,
            nap_min,
            nap_max: Nanos::from_micros(params.tuning.nap_max_us),
            nap_check: Nanos::from_micros(params.tuning.nap_check_us),
            meter: StolenMeter::default(),
            guard: ContentionGuard::new(params),
            counters: RetainCounters::default(),
        }
    }
}

impl YieldMachine for YieldingThread {
    /// The policy's order, new or repeated. A stop by the contention guard outlasts it.
    fn order(&mut self, now: Nanos, order: Order) -> Next {
        let Order::Retain { timeout } = order else {
            self.timeout = None;
            return self.sleep_as(State::Ordered, UNTIL_ORDERED, false);
        };
        self.timeout = Some(timeout);
        if !self.guard.resume(now) {
            return self.sleep_as(State::Guarded, self.guard.remaining(now), false);
        }
        if self.state != State::Spinning {
            self.begin_idle_period();
        }
        Next::Yield
    }

    /// A call of `sched_yield` came back at `now`, `elapsed` after the one before it.
    fn returned(&mut self, now: Nanos, elapsed: Nanos, how: YieldReturn) -> Next {
        match how {
            YieldReturn::Immediate => self.counters.retained += elapsed,
            YieldReturn::Displaced => self.counters.displaced += 1,
            YieldReturn::Stolen => self.counters.stolen += elapsed,
        }
        let Some(timeout) = self.timeout else {
            return self.sleep_as(State::Ordered, UNTIL_ORDERED, false);
        };
        match how {
            YieldReturn::Immediate => self.still_idle(elapsed, timeout),
            YieldReturn::Displaced => {
                self.begin_idle_period();
                Next::Yield
            }
            YieldReturn::Stolen => self.stolen(now, elapsed),
        }
    }

    /// A sleep ended at `now`, `_asleep_for` after it began. `vcpu_was_busy`: whether the vCPU has run another task
    /// since it began; `None` where nobody can tell. Without a signal, only a task that had the vCPU when the nap ended
    /// shows: that wake-up ended no idle period. All others took the vCPU out of idleness for nobody, and count as
    /// `idle_naps`.
    fn woke(&mut self, now: Nanos, _asleep_for: Nanos, vcpu_was_busy: Option<bool>) -> Next {
        match (self.state, vcpu_was_busy) {
            (State::Ordered, _) => Next::Sleep { at_most: UNTIL_ORDERED, until_busy: false },
            (State::Guarded, _) if !self.guard.resume(now) => {
                Next::Sleep { at_most: self.guard.remaining(now), until_busy: false }
            }
            (State::Guarded, _) | (State::Halted | State::Napping, Some(true)) => {
                self.begin_idle_period();
                Next::Yield
            }
            (State::Halted, Some(false)) => {
                self.counters.idle_naps += 1;
                self.sleep_as(State::Halted, SIGNAL_CHECK, true)
            }
            (State::Napping, Some(false)) => {
                self.counters.idle_naps += 1;
                self.nap_longer()
            }
            (State::Halted | State::Napping, None) => {
                self.counters.idle_naps += 1;
                self.state = State::Probing { looked_for: Nanos::ZERO };
                Next::Yield
            }
            (State::Spinning | State::Probing { .. }, _) => Next::Yield,
        }
    }

    /// What it counted so far. `vcpu` and `tid` are act's to fill in.
    fn counters(&self) -> RetainCounters {
        self.counters
    }
}

impl YieldingThread {
    fn still_idle(&mut self, elapsed: Nanos, timeout: Nanos) -> Next {
        if let State::Probing { looked_for } = self.state {
            let looked_for = looked_for + elapsed;
            self.state = State::Probing { looked_for };
            return if looked_for < self.nap_check { Next::Yield } else { self.nap_longer() };
        }
        self.idle_for += elapsed;
        if self.idle_for < timeout {
            return Next::Yield;
        }
        if self.signalled {
            return self.sleep_as(State::Halted, SIGNAL_CHECK, true);
        }
        self.sleep_as(State::Napping, self.nap, false)
    }

    fn stolen(&mut self, now: Nanos, elapsed: Nanos) -> Next {
        // On the clock of the time in which this thread wanted the vCPU: with short time-outs it spins for a small part
        // of the wall clock, and could lose most of that without ever losing 15 % of 200 ms.
        let share = self.meter.add(self.counters.retained + self.counters.stolen, elapsed);
        let GuardChange::Tripped { hold_off } = self.guard.feed(now, share) else { return Next::Yield };
        self.counters.guard_trips += 1;
        // The stop pays for these gaps; the next one needs evidence of its own.
        self.meter = self.meter.emptied();
        self.sleep_as(State::Guarded, hold_off, false)
    }

    fn begin_idle_period(&mut self) {
        self.state = State::Spinning;
        self.idle_for = Nanos::ZERO;
        self.nap = self.nap_min;
    }

    fn nap_longer(&mut self) -> Next {
        self.nap = self.nap.times(2).min(self.nap_max);
        self.sleep_as(State::Napping, self.nap, false)
    }

    fn sleep_as(&mut self, state: State, at_most: Nanos, until_busy: bool) -> Next {
        self.state = state;
        self.counters.sleeps += 1;
        Next::Sleep { at_most, until_busy }
    }
}
