//! Where there are no idle periods there is nothing to retain (ours; the paper's programs all wait).
//!
//! A yielding thread on a vCPU that is never idle stays runnable for ever, and even the lowest scheduling class gets
//! turns: `sysbench cpu` with a thread per vCPU was switched out 3,700 times in 4 s instead of 190
//! (experiments/foundation). So where a vCPU was idle for less than `never_idle_share` of each of three windows
//! in a row, its yielding thread sleeps. The turns themselves look like idle time, up to 1 % of a window; while
//! it sleeps there are none, so half of that share brings it back.
//!
//! Idle periods may be that short *because* they are retained. Then they grow as soon as they are not, and the yielding
//! thread comes back at once. That it came for good is believed longer each time: it stays for a second, two, .. a
//! minute.
//!
//! Not seen: a program that calls `sched_yield` all the time beside a yielding thread, whose turns then are most of the
//! vCPU's time, and idle periods that the kernel's ticks all miss (`nohz=off`, with the `/proc` observer).

use crate::guest::GuestParams;
use crate::guest::backoff::Backoff;
use gleaner_model::{Nanos, VcpuWindow};
use serde::{Deserialize, Serialize};

/// A stay starts small again after ten times its length without idle periods. So waits that come every two seconds are
/// nearly all retained, and of those that come every twelve and are over within a window none is: one window in twelve
/// seconds then goes without.
const STAY_QUIET_TIMES: u64 = 10;

/// Windows in a row without idle time that it takes.
const WINDOWS: u32 = 3;
/// The first stay, and the longest.
const STAY: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(60));

/// What a window changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum IdleChange {
    None,
    /// There is nothing to retain any more.
    NeverIdle {
        idle_share: f64,
    },
    /// There is again.
    IdleAgain,
}

/// Whether one vCPU is ever idle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct IdleWatch {
    share: f64,
    /// Not taken for never idle again before this is over.
    stay: Backoff,
    never_idle: bool,
    /// Windows in a row with hardly any idle time.
    in_a_row: u32,
    /// Since when it has been never idle.
    since: Nanos,
}

impl IdleWatch {
    /// `enabled`: otherwise every vCPU counts as idle now and then.
    pub(super) fn new(enabled: bool, params: &GuestParams) -> Self {
        Self {
            share: if enabled { params.tuning.never_idle_share } else { 0.0 },
            stay: Backoff::new(STAY.0, STAY.1, STAY_QUIET_TIMES),
            never_idle: false,
            in_a_row: 0,
            since: Nanos::ZERO,
        }
    }

    pub(super) fn is_never_idle(&self) -> bool {
        self.never_idle
    }

    /// The vCPU is out of use: nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.never_idle = false;
        self.workload_changed();
    }

    /// How long its yielding thread stayed was another program's doing. The vCPU is as idle as it was.
    pub(super) fn workload_changed(&mut self) {
        self.in_a_row = 0;
        self.stay.forget();
    }

    /// Its yielding thread comes and goes for another reason: windows before and after are none in a row.
    pub(super) fn interrupt(&mut self) {
        self.in_a_row = 0;
    }

    /// Takes a window of the vCPU that ended at `now`.
    pub(super) fn feed(&mut self, now: Nanos, length: Nanos, vcpu: &VcpuWindow) -> IdleChange {
        // Of the time that the hypervisor left to the vCPU. Steal comes in ticks: where it is most of the window, the
        // rest says nothing.
        let available = length - vcpu.steal;
        if available.times(2) < length {
            return IdleChange::None;
        }
        let idle_share = vcpu.idle().share_of(available);
        if self.never_idle {
            if idle_share < self.share / 2.0 {
                return IdleChange::None;
            }
            self.stay.trigger(now, self.since, now);
            (self.never_idle, self.in_a_row) = (false, 0);
            return IdleChange::IdleAgain;
        }
        self.in_a_row = if idle_share < self.share { self.in_a_row.saturating_add(1) } else { 0 };
        if self.in_a_row < WINDOWS || self.stay.remaining(now) > Nanos::ZERO {
            return IdleChange::None;
        }
        (self.never_idle, self.since) = (true, now);
        IdleChange::NeverIdle { idle_share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::VcpuId;

    const WINDOW: Nanos = Nanos::from_millis(100);

    /// Feeds windows of 100 ms with so many per mille idle; says when, in windows, it changed, and to what.
    fn feed(vcpu: &mut IdleWatch, from: u64, idle: &[u64]) -> Vec<(u64, bool)> {
        let mut changes = Vec::new();
        for (n, idle) in (from..).zip(idle) {
            let halted = Nanos(WINDOW.0 / 1000 * idle);
            let window = VcpuWindow { busy: WINDOW - halted, halted, ..VcpuWindow::new(VcpuId(0)) };
            match vcpu.feed(Nanos(WINDOW.0 * (n + 1)), WINDOW, &window) {
                IdleChange::None => {}
                IdleChange::NeverIdle { .. } => changes.push((n, true)),
                IdleChange::IdleAgain => changes.push((n, false)),
            }
        }
        changes
    }

    fn vcpu() -> IdleWatch {
        IdleWatch::new(true, &GuestParams::default())
    }

    #[test]
    fn never_idle_after_three_windows_and_idle_again_after_one() {
        for (idle, expected) in [
            (&[0, 0, 0, 0][..], &[(2, true)][..]),
            (&[19, 19, 19], &[(2, true)]),
            (&[0, 0, 20, 0, 0], &[]),
            (&[0, 0, 0, 9, 10], &[(2, true), (4, false)]),
            (&[1000; 20], &[]),
        ] {
            assert_eq!(feed(&mut vcpu(), 0, idle), expected, "{idle:?}");
        }
    }

    #[test]
    fn stolen_time_is_not_idle_and_a_window_mostly_stolen_says_nothing() {
        let window = |(halted_us, steal_ms): (u64, u64)| VcpuWindow {
            halted: Nanos::from_micros(halted_us),
            steal: Nanos::from_millis(steal_ms),
            ..VcpuWindow::new(VcpuId(0))
        };
        // Idle in us and stolen in ms, of windows of 100 ms; whether it is never idle after the last.
        for (windows, expected) in [
            (&[(0, 0), (9_000, 90), (0, 0), (0, 0)][..], true),
            (&[(0, 0), (0, 0), (0, 90)], false),
            (&[(0, 0), (0, 0), (1_500, 0)], true),
            (&[(0, 0), (0, 0), (1_500, 45)], false),
            (&[(0, 0), (0, 0), (0, 0), (9_000, 90)], true),
        ] {
            let mut watch = vcpu();
            for (n, part) in (1..).zip(windows) {
                watch.feed(Nanos(WINDOW.0 * n), WINDOW, &window(*part));
            }
            assert_eq!(watch.is_never_idle(), expected, "{windows:?}");
        }
    }

    #[test]
    fn windows_before_and_after_an_interruption_are_none_in_a_row() {
        let mut watch = vcpu();
        assert_eq!(feed(&mut watch, 0, &[0, 0]), []);
        watch.interrupt();
        assert_eq!(feed(&mut watch, 3, &[0, 0, 0]), [(5, true)]);
    }

    /// Idle periods of 0.5 % while they are retained, of 5 % while they are not.
    #[test]
    fn what_is_short_because_it_is_retained_is_left_ever_longer() {
        let mut watch = vcpu();
        let mut windows_retained = Vec::new();
        let mut since = 0;
        for n in 0..3_000 {
            let idle = if watch.is_never_idle() { 50 } else { 5 };
            match feed(&mut watch, n, &[idle])[..] {
                [(_, true)] => windows_retained.push(n - since),
                [(_, false)] => since = n,
                _ => {}
            }
        }
        assert_eq!(windows_retained[..6], [2, 10, 20, 40, 80, 160]);
        assert!(windows_retained.len() < 12, "{windows_retained:?}");
    }

    /// Computes and waits for a tenth of a second, again and again. Too late for its one window comes what is never
    /// idle by then.
    #[test]
    fn short_phases_of_waiting_are_not_missed_but_where_they_are_rare() {
        for (every, at_most) in [(21, 10), (51, 15)] {
            let mut watch = vcpu();
            let mut missed = 0;
            for n in 0..100 * every {
                let waits = n % every == every - 1;
                missed += u64::from(waits && watch.is_never_idle());
                feed(&mut watch, n, &[if waits { 1000 } else { 0 }]);
            }
            assert!(missed <= at_most, "{missed} of 100, every {every} windows");
        }
    }

    #[test]
    fn phases_are_followed_and_what_is_out_of_use_is_forgotten() {
        let mut watch = vcpu();
        // Ten seconds of computing, ten of waiting, in turn: each time after three windows, each time back at once.
        let phases = [[0; 100], [500; 100]].concat().repeat(3);
        let expected = [(2, true), (100, false), (202, true), (300, false), (402, true), (500, false)];
        assert_eq!(feed(&mut watch, 0, &phases), expected);
        // Within a stay, and forgotten with it.
        feed(&mut watch, 600, &[0, 0, 0, 500]);
        assert_eq!(feed(&mut watch.clone(), 604, &[0; 10]), []);
        watch.forget();
        assert_eq!(feed(&mut watch, 604, &[0; 10]), [(606, true)]);
        watch.forget();
        assert!(!watch.is_never_idle());
    }
}
