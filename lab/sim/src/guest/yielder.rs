//! The yielding thread on a simulated vCPU: runs the state machine that ships ([`YieldingThread`]) as act's runner does
//! on a real one.
//!
//! A real one asks the machine after every sched_yield, a million times a second. Returns that find nobody only add up,
//! so they are reported together: the machine itself, cloned, is asked how long it would go on ([`quiet_for`]).

use crate::engine::{NEVER, Time};
use crate::ids::VcpuIx;
use crate::vcpu::{Activity, Irq};
use crate::world::World;
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
            guesses: [0, params.nap_check_us * 1_000],
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

    /// Reports yields that found nobody.
    fn report(&mut self, now: Time) -> Next {
        let spun = std::mem::take(&mut self.spun);
        self.machine.returned(Nanos(now), Nanos(spun), YieldReturn::Immediate)
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

impl World {
    fn yielder(&mut self, v: VcpuIx) -> Option<&mut Yielder> {
        self.vcpus[v.at()].yielder.as_deref_mut()
    }

    /// Carries out what the machine said; says whether the thread wants the vCPU.
    fn yielder_does(&mut self, v: VcpuIx, next: Next) -> bool {
        let now = self.now;
        let nap = self.slots.nap(v);
        let Some(yielder) = self.yielder(v) else { return false };
        match next {
            Next::Yield => {
                yielder.phase = Phase::Awake;
                yielder.quiet = quiet_for(&yielder.machine, now, &yielder.guesses);
                self.timers.cancel(nap);
                true
            }
            Next::Sleep { at_most, until_busy } => {
                yielder.phase = Phase::Asleep { since: now, until_busy };
                if at_most == UNTIL_ORDERED {
                    self.timers.cancel(nap);
                } else {
                    self.timers.set(nap, now.saturating_add(at_most.0));
                }
                false
            }
        }
    }

    /// The vCPU has nobody else: whether the yielding thread takes it.
    pub(super) fn yielder_resumes(&mut self, v: VcpuIx) -> bool {
        let now = Nanos(self.now);
        let Some(yielder) = self.yielder(v) else { return false };
        let next = match yielder.phase {
            Phase::Asleep { .. } => return false,
            Phase::Roused { since, vcpu_was_busy } => yielder.machine.woke(now, now - Nanos(since), vcpu_was_busy),
            Phase::Awake => match yielder.displaced_at.take() {
                Some(at) => yielder.machine.returned(now, now - Nanos(at), YieldReturn::Displaced),
                None => Next::Yield,
            },
        };
        self.yielder_does(v, next)
    }

    /// It has yielded for as long as that changed nothing.
    pub(super) fn yielder_fires(&mut self, v: VcpuIx) {
        let now = self.now;
        let Some(yielder) = self.yielder(v).filter(|yielder| yielder.quiet == 0) else { return };
        let next = yielder.report(now);
        self.yielder_goes_on(v, next);
    }

    fn yielder_goes_on(&mut self, v: VcpuIx, next: Next) {
        if !self.yielder_does(v, next) {
            self.vcpus[v.at()].totals.yield_sleeps += 1;
            self.vcpus[v.at()].activity = Activity::Idle;
            if !self.vcpus[v.at()].owes() {
                self.pick_thread(v);
            }
        }
    }

    /// A thread takes the vCPU from it.
    pub(super) fn yielder_displaced(&mut self, v: VcpuIx) {
        let now = self.now;
        self.vcpus[v.at()].totals.yield_switches += 1;
        let Some(yielder) = self.yielder(v) else { return };
        let next = yielder.report(now);
        if self.yielder_does(v, next)
            && let Some(yielder) = self.yielder(v)
        {
            yielder.displaced_at = Some(now);
        }
    }

    /// The vCPU is back on a pCPU. A yielding thread that had it feels the gap.
    pub(crate) fn returned_to_guest(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].activity != Activity::Yield {
            return;
        }
        let (now, gap) = (self.now, self.now - self.vcpus[v.at()].placed_at);
        let Some(yielder) = self.yielder(v) else { return };
        let next = if gap > ContentionGuard::STOLEN_GAP.0 {
            match yielder.report(now) {
                Next::Yield => yielder.machine.returned(Nanos(now), Nanos(gap), YieldReturn::Stolen),
                sleep @ Next::Sleep { .. } => sleep,
            }
        } else {
            yielder.spun += gap;
            yielder.report(now)
        };
        if !self.yielder_does(v, next) {
            self.vcpus[v.at()].totals.yield_sleeps += 1;
            self.vcpus[v.at()].activity = Activity::Idle;
        }
    }

    /// Its nap is over: it waits for the vCPU.
    pub(super) fn nap_over(&mut self, v: VcpuIx) {
        let busy = matches!(self.vcpus[v.at()].activity, Activity::Thread(_));
        let Some(yielder) = self.yielder(v) else { return };
        let Phase::Asleep { since, until_busy } = yielder.phase else { return };
        // Had it been busy, the signal would have come.
        let vcpu_was_busy = if until_busy && yielder.signalled { Some(false) } else { busy.then_some(true) };
        yielder.phase = Phase::Roused { since, vcpu_was_busy };
        if self.vcpus[v.at()].activity == Activity::Poll {
            self.vcpus[v.at()].activity = Activity::Idle;
        }
    }

    /// A thread runs: whoever sleeps until then is told.
    pub(super) fn signal_yielder(&mut self, v: VcpuIx) {
        let nap = self.slots.nap(v);
        let Some(yielder) = self.yielder(v).filter(|yielder| yielder.signalled) else { return };
        if let Phase::Asleep { since, until_busy: true } = yielder.phase {
            yielder.phase = Phase::Roused { since, vcpu_was_busy: Some(true) };
            self.timers.cancel(nap);
        }
    }

    /// The policy's word.
    pub(crate) fn order_yielder(&mut self, v: VcpuIx, order: Order) {
        self.charge(v);
        let now = self.now;
        let Some(yielder) = self.yielder(v) else { return };
        if let Order::Retain { timeout } = order {
            yielder.guesses[0] = timeout.0;
        }
        if yielder.spun > 0 {
            yielder.report(now);
        }
        let next = yielder.machine.order(Nanos(now), order);
        let wants = self.yielder_does(v, next);
        match (wants, self.vcpus[v.at()].activity) {
            // It is the manager that rouses it, from wherever that runs: an interrupt.
            (true, Activity::Idle) => self.send(v, v, Irq::Resched),
            (false, Activity::Yield) | (true, Activity::Poll) => self.vcpus[v.at()].activity = Activity::Idle,
            _ => {}
        }
        self.arm(v);
    }
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
