//! A yielding thread's state: the state machine that ships ([`YieldingThread`]), asked as act's runner asks it on a
//! real vCPU. `guest/yielder` gives it the vCPU and its naps.
//!
//! A real one asks the machine after every sched_yield, a million times a second. Returns that find nobody only add up,
//! so they are reported together: the machine itself, cloned, is asked how long it would go on ([`quiet_for`]).

use crate::engine::{NEVER, Time};
use gleaner_decide::guest::{ContentionGuard, GuestParams, UNTIL_ORDERED, YieldingThread};
use gleaner_model::{Nanos, Next, Order, RetainCounters, YieldMachine, YieldReturn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It wants the vCPU, as the last of all.
    Awake,
    Asleep {
        since: Time,
        until_busy: bool,
    },
    /// Its sleep is over, and it waits for the vCPU.
    Roused {
        since: Time,
        vcpu_was_busy: Option<bool>,
    },
}

/// What the thread does next, for the world to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It wants the vCPU.
    Yields,
    /// It sleeps until then at the latest.
    Naps { until: Time },
    /// It sleeps until it is told.
    Sleeps,
}

#[derive(Clone, Debug)]
pub(crate) struct Yielder {
    machine: YieldingThread,
    phase: Phase,
    /// Undisturbed yields until the machine does something else.
    quiet: Time,
    /// Time of yields that came back at once, not yet reported.
    spun: Time,
    /// When a thread displaced it.
    displaced_at: Option<Time>,
    signalled: bool,
    /// What `quiet` probably is.
    guesses: [Time; 2],
}

impl Yielder {
    pub(crate) fn new(params: &GuestParams, signalled: bool) -> Self {
        Self {
            machine: YieldingThread::new(Order::Sleep, signalled, params),
            phase: Phase::Asleep { since: 0, until_busy: false },
            quiet: 0,
            spun: 0,
            displaced_at: None,
            signalled,
            guesses: [0, params.tuning.nap_check_us * 1_000],
        }
    }

    pub(crate) fn counters(&self) -> RetainCounters {
        self.machine.counters()
    }

    pub(crate) fn quiet(&self) -> Time {
        self.quiet
    }

    /// It had the vCPU for so long.
    pub(crate) fn spun(&mut self, time: Time) {
        self.spun += time;
        self.quiet = self.quiet.saturating_sub(time);
    }

    /// The vCPU has nobody else: whether it takes it. `None` while it sleeps.
    pub(crate) fn resumes(&mut self, now: Time) -> Option<Intent> {
        let at = Nanos(now);
        let next = match self.phase {
            Phase::Asleep { .. } => return None,
            Phase::Roused { since, vcpu_was_busy } => self.machine.woke(at, at - Nanos(since), vcpu_was_busy),
            Phase::Awake => match self.displaced_at.take() {
                Some(since) => self.machine.returned(at, at - Nanos(since), YieldReturn::Displaced),
                None => Next::Yield,
            },
        };
        Some(self.intends(now, next))
    }

    /// It has yielded for a while; `None` while that changes nothing.
    pub(crate) fn fires(&mut self, now: Time) -> Option<Intent> {
        if self.quiet > 0 {
            return None;
        }
        let next = self.report(now);
        Some(self.intends(now, next))
    }

    /// A thread takes the vCPU from it.
    pub(crate) fn displaced(&mut self, now: Time) -> Intent {
        let next = self.report(now);
        let intent = self.intends(now, next);
        if intent == Intent::Yields {
            self.displaced_at = Some(now);
        }
        intent
    }

    /// The vCPU, which it had, was without a pCPU for so long.
    pub(crate) fn returned(&mut self, now: Time, gap: Time) -> Intent {
        let next = if gap > ContentionGuard::STOLEN_GAP.0 {
            match self.report(now) {
                Next::Yield => self.machine.returned(Nanos(now), Nanos(gap), YieldReturn::Stolen),
                sleep @ Next::Sleep { .. } => sleep,
            }
        } else {
            self.spun += gap;
            self.report(now)
        };
        self.intends(now, next)
    }

    /// Its nap is over, and it waits for the vCPU, which is `busy` or not; says whether it slept.
    pub(crate) fn nap_over(&mut self, busy: bool) -> bool {
        let Phase::Asleep { since, until_busy } = self.phase else { return false };
        // Had it been busy, the signal would have come.
        let vcpu_was_busy = if until_busy && self.signalled { Some(false) } else { busy.then_some(true) };
        self.phase = Phase::Roused { since, vcpu_was_busy };
        true
    }

    /// A thread runs; says whether that ends its sleep.
    pub(crate) fn signal(&mut self) -> bool {
        match self.phase {
            Phase::Asleep { since, until_busy: true } if self.signalled => {
                self.phase = Phase::Roused { since, vcpu_was_busy: Some(true) };
                true
            }
            _ => false,
        }
    }

    /// The policy's word.
    pub(crate) fn order(&mut self, now: Time, order: Order) -> Intent {
        if let Order::Retain { timeout } = order {
            self.guesses[0] = timeout.0;
        }
        if self.spun > 0 {
            self.report(now);
        }
        let next = self.machine.order(Nanos(now), order);
        self.intends(now, next)
    }

    /// Reports yields that found nobody.
    fn report(&mut self, now: Time) -> Next {
        let spun = std::mem::take(&mut self.spun);
        self.machine.returned(Nanos(now), Nanos(spun), YieldReturn::Immediate)
    }

    fn intends(&mut self, now: Time, next: Next) -> Intent {
        match next {
            Next::Yield => {
                self.phase = Phase::Awake;
                self.quiet = quiet_for(&self.machine, now, &self.guesses);
                Intent::Yields
            }
            Next::Sleep { at_most, until_busy } => {
                self.phase = Phase::Asleep { since: now, until_busy };
                if at_most == UNTIL_ORDERED {
                    Intent::Sleeps
                } else {
                    Intent::Naps { until: now.saturating_add(at_most.0) }
                }
            }
        }
    }
}

/// Longest look ahead.
const FAR: Time = 10_000_000_000;

/// How long undisturbed yields change nothing: the least time after which the machine, told of it at once, does
/// something else. One of the guesses is nearly always right; otherwise it is found by halving.
fn quiet_for(machine: &YieldingThread, now: Time, guesses: &[Time]) -> Time {
    let acts_after =
        |time: Time| machine.clone().returned(Nanos(now), Nanos(time), YieldReturn::Immediate) != Next::Yield;
    let exact = |time: Time| time > 0 && acts_after(time) && !acts_after(time - 1);
    if let Some(guess) = guesses.iter().copied().find(|guess| exact(*guess)) {
        return guess;
    }
    if !acts_after(FAR) {
        return NEVER;
    }
    let (mut too_little, mut enough) = (0, FAR);
    while enough - too_little > 1 {
        let middle = too_little.midpoint(enough);
        if acts_after(middle) { enough = middle } else { too_little = middle }
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_quiet_until_its_time_out() {
        let params = GuestParams::default();
        let timeout = Nanos::from_micros(123);
        let mut machine = YieldingThread::new(Order::Sleep, true, &params);
        assert_eq!(machine.order(Nanos(0), Order::Retain { timeout }), Next::Yield);
        // Guessed or found by halving.
        assert_eq!(quiet_for(&machine, 0, &[timeout.0]), timeout.0);
        assert_eq!(quiet_for(&machine, 0, &[7, 0]), timeout.0);
        machine.returned(Nanos(0), Nanos(23_000), YieldReturn::Immediate);
        assert_eq!(quiet_for(&machine, 0, &[timeout.0]), 100_000);
    }
}
