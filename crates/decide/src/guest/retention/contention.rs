//! The contention guard: no spinning where the host needs the CPU (ours; facts.md, "Blocked-waiter wake-ups").
//!
//! A spinning vCPU takes time from whoever could use it, often from the very vCPU it waits for: spinners without a
//! guard made a contended guest 30 to 50 times slower. Steal tells. Its *share* decides, not the number of gaps: a
//! quiet cloud guest shows 5 to 14 gaps a second that add up to 0.4 to 5 %.
//!
//! ```text
//!             share > 15 %: for 1 s, 2 s, .. 30 s
//!   spinning ------------------------------------> stopped
//!       ^                                             |
//!       +---- time is over (and share < 5 %, where ---+
//!             steal can be seen without spinning)
//! ```
//!
//! The same [`ContentionGuard`] serves the yielding thread, fed by the gaps it feels, and the policy, fed by windows.

use crate::guest::GuestParams;
use crate::guest::backoff::Backoff;
use gleaner_model::Nanos;
use serde::{Deserialize, Serialize};

/// What a share fed to the guard changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardChange {
    /// Nothing: spin, or stay stopped, as before.
    None,
    /// Stop spinning.
    Tripped {
        /// For how long.
        hold_off: Nanos,
    },
    /// The hold-off is over and the vCPU is quiet: spin again.
    Over,
}

/// Decides from stolen shares when to stop spinning and when to resume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContentionGuard {
    stop_above: f64,
    hold_off: Backoff,
    stopped: bool,
    /// Since when the share has been under [`Self::QUIET`] while spinning.
    quiet_since: Nanos,
}

impl ContentionGuard {
    /// A gap between two yields, without having been switched out, over this is stolen time: act/ classifies returns
    /// of `sched_yield` by it.
    pub const STOLEN_GAP: Nanos = Nanos::from_micros(200);
    /// The stolen share is taken over this much of the time in which a vCPU's idle periods were to be bridged.
    pub const STEAL_SPAN: Nanos = Nanos::from_millis(200);
    /// The vCPU counts as quiet below this stolen share.
    pub const QUIET: f64 = 0.05;
    /// The first stop.
    pub const HOLD_OFF_MIN: Nanos = Nanos::from_secs(1);
    /// It doubles up to this while steal recurs.
    pub const HOLD_OFF_MAX: Nanos = Nanos::from_secs(30);

    /// A guard that lets spin.
    pub fn new(params: &GuestParams) -> Self {
        Self {
            stop_above: params.steal_share_stop,
            hold_off: Backoff::new(Self::HOLD_OFF_MIN, Self::HOLD_OFF_MAX, 1),
            stopped: false,
            quiet_since: Nanos::ZERO,
        }
    }

    /// Takes the stolen share (0 to 1) of the time just before `now`. When stopped, this is the caller that can see
    /// steal without spinning, so the stop lasts until its time is over *and* the share is low.
    pub fn feed(&mut self, now: Nanos, share: f64) -> GuardChange {
        let quiet = share < Self::QUIET.min(self.stop_above);
        if self.stopped {
            return if quiet && self.resume(now) { GuardChange::Over } else { GuardChange::None };
        }
        if quiet {
            return GuardChange::None;
        }
        self.hold_off.forget_after_quiet(self.quiet_since, now);
        self.quiet_since = now;
        if share <= self.stop_above {
            return GuardChange::None;
        }
        self.stopped = true;
        GuardChange::Tripped { hold_off: self.hold_off.trigger(now, now, now) }
    }

    /// Whether spinning is stopped.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// What is left of the hold-off; zero when it is over or there is none.
    pub fn remaining(&self, now: Nanos) -> Nanos {
        if self.stopped { self.hold_off.remaining(now) } else { Nanos::ZERO }
    }

    /// Resumes if the hold-off is over; says whether spinning is allowed now. For a caller that sees steal only by
    /// spinning.
    pub fn resume(&mut self, now: Nanos) -> bool {
        if self.stopped && self.hold_off.remaining(now) == Nanos::ZERO {
            self.stopped = false;
            self.quiet_since = now;
        }
        !self.stopped
    }
}

/// How many slots the span of a [`StolenMeter`] is divided into: it forgets in steps of span / 8.
const SLOTS: usize = 8;

/// The stolen share of the last [`ContentionGuard::STEAL_SPAN`], from single gaps. Fixed memory, a few ns per gap.
#[derive(Clone, Debug)]
pub struct StolenMeter {
    span: Nanos,
    slot_length: u64,
    slot: u64,
    stolen: [Nanos; SLOTS],
}

impl Default for StolenMeter {
    /// With nothing stolen yet.
    fn default() -> Self {
        let span = ContentionGuard::STEAL_SPAN;
        Self { span, slot_length: span.0 / SLOTS as u64, slot: 0, stolen: [Nanos::ZERO; SLOTS] }
    }
}

impl StolenMeter {
    /// The same meter with nothing stolen yet.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self { slot: 0, stolen: [Nanos::ZERO; SLOTS], ..*self }
    }

    /// Adds a gap of length `stolen` that ended at `now`; returns the stolen share (0 to 1) of the span before `now`.
    pub fn add(&mut self, now: Nanos, stolen: Nanos) -> f64 {
        let slot = now.0 / self.slot_length;
        let passed = slot.saturating_sub(self.slot).min(SLOTS as u64);
        self.slot = self.slot.max(slot);
        for back in 0..passed {
            self.stolen[Self::index(self.slot - back)] = Nanos::ZERO;
        }
        self.stolen[Self::index(self.slot)] += stolen;
        self.stolen.iter().copied().sum::<Nanos>().share_of(self.span).min(1.0)
    }

    fn index(slot: u64) -> usize {
        usize::try_from(slot % SLOTS as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn the_meter_remembers_the_span_and_no_more() {
        let mut meter = StolenMeter::default();
        for (now, stolen, share) in [(1_000, 10, 0.05), (1_100, 10, 0.10), (1_210, 2, 0.06), (1_500, 1, 0.005)] {
            let found = meter.add(ms(now), ms(stolen));
            assert!((found - share).abs() < 1e-9, "at {now} ms: {found} instead of {share}");
        }
        assert!((meter.add(ms(9_000), ms(700)) - 1.0).abs() < 1e-9, "never above 1");
    }

    #[test]
    fn it_stops_above_15_percent_and_doubles_while_it_recurs() {
        let mut guard = ContentionGuard::new(&GuestParams::default());
        assert_eq!(guard.feed(ms(0), 0.15), GuardChange::None);
        let mut now = ms(200);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let hold_off = Nanos::from_secs(seconds);
            assert_eq!(guard.feed(now, 0.16), GuardChange::Tripped { hold_off });
            assert!(!guard.resume(now + hold_off - Nanos(1)));
            now += hold_off;
            assert!(guard.resume(now));
            now += ms(100);
        }
    }

    #[test]
    fn it_starts_small_again_after_a_quiet_time_as_long_as_the_last_stop() {
        for (quiet_ms, second_hold_off_s) in [(900, 2), (1_100, 1)] {
            let mut guard = ContentionGuard::new(&GuestParams::default());
            guard.feed(ms(0), 0.5);
            assert!(guard.resume(ms(1_000)));
            guard.feed(ms(1_000 + quiet_ms / 2), 0.04);
            // A share in between ends the quiet time but does not stop; the next one does.
            guard.feed(ms(1_000 + quiet_ms), 0.10);
            let hold_off = Nanos::from_secs(second_hold_off_s);
            assert_eq!(guard.feed(ms(1_050 + quiet_ms), 0.2), GuardChange::Tripped { hold_off });
        }
    }

    #[test]
    fn a_feed_that_sees_steal_without_spinning_extends_the_stop() {
        let mut guard = ContentionGuard::new(&GuestParams::default());
        guard.feed(ms(0), 0.3);
        for (now, share, change) in [
            (500, 0.0, GuardChange::None),
            (1_000, 0.3, GuardChange::None),
            (5_000, 0.05, GuardChange::None),
            (5_200, 0.04, GuardChange::Over),
            (5_400, 0.0, GuardChange::None),
        ] {
            assert_eq!(guard.feed(ms(now), share), change, "at {now} ms");
        }
    }
}
