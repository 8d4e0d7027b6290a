//! How deep an idle pCPU sleeps, and how long it then takes to come back.
//!
//! The choice is the menu governor's (drivers/cpuidle/governors/menu.c, Linux 3.9), which expects of an idle period
//! what the last ones were (its correction factor, a mean over eight), and is the more reluctant the busier the pCPU is
//! (`performance_multiplier`). Not modelled: that it looks for repeating patterns, asks the next timer, and takes the
//! load from the last tick.

use crate::config::IdleState;
use crate::engine::{Time, decaying_mean};

/// An exit latency counts for so much more on a pCPU that is always busy: twice `get_loadavg`, which is 5 for one busy
/// thread.
const BUSY_COUNTS: Time = 10;

/// A pCPU's idle periods.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdlePeriods {
    /// When the present idle or busy period began.
    since: Time,
    idle_mean: Time,
    busy_mean: Time,
    /// Until it runs, from when it is wanted.
    exit: Time,
}

impl IdlePeriods {
    /// It has nothing to run.
    pub(crate) fn begin(&mut self, now: Time, states: &[IdleState]) {
        self.busy_mean = decaying_mean(self.busy_mean, now - self.since);
        self.since = now;
        let (expected, both) = (self.idle_mean, (self.idle_mean + self.busy_mean).max(1));
        let reluctant = |exit: Time| exit + BUSY_COUNTS * exit * self.busy_mean / both;
        let enters = |state: &&IdleState| expected >= state.residency && expected >= reluctant(state.exit);
        self.exit = states.iter().rev().find(enters).map_or(0, |state| state.exit);
    }

    /// It is wanted: how long that takes.
    pub(crate) fn end(&mut self, now: Time) -> Time {
        self.idle_mean = decaying_mean(self.idle_mean, now - self.since);
        self.since = now;
        self.exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IdleStates;

    const US: Time = 1_000;

    /// The exit latency after 100 periods, each idle and busy for so long.
    fn after(idle: Time, busy: Time) -> Time {
        let (mut periods, mut now) = (IdlePeriods::default(), 0);
        for _ in 0..100 {
            periods.begin(now, IdleStates::SANDY_BRIDGE.0);
            now += idle;
            periods.end(now);
            now += busy;
        }
        periods.exit
    }

    #[test]
    fn a_pcpu_sleeps_as_deep_as_its_idle_periods_are_long() {
        assert_eq!([200 * US, 220 * US, 400 * US].map(|idle| after(idle, 0)), [0, 80 * US, 104 * US]);
    }

    #[test]
    fn one_that_is_busy_sleeps_less_deep() {
        // Half busy: (1 + 10 / 2) * 104 = 624, (1 + 10 / 2) * 80 = 480.
        assert_eq!([470 * US, 600 * US, 640 * US].map(|both| after(both, both)), [0, 80 * US, 104 * US]);
    }

    #[test]
    fn without_deep_states_it_is_there_at_once() {
        let mut periods = IdlePeriods::default();
        for n in 0..100 {
            periods.begin(n * 2_000 * US, IdleStates::SHALLOW.0);
            assert_eq!(periods.end(n * 2_000 * US + 1_900 * US), 0);
        }
    }
}
