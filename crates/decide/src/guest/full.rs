//! Where there are no idle periods there is nothing to retain (ours; the paper's programs all wait).
//!
//! A yielding thread on a vCPU that is never idle stays runnable for ever, and even the lowest scheduling class gets turns: `sysbench cpu` with
//! a thread per vCPU was switched out 3,700 times in 4 s instead of 190 (experiments/foundation). So where a vCPU was idle for less than
//! `full_idle_share` of each of `full_windows` windows in a row, its yielding thread sleeps; the first window with more brings it back. Its
//! turns look like idle time themselves, up to 1 % of a window.
//!
//! Idle periods may be that short *because* they are retained. Then they grow as soon as they are not, and the yielding thread comes back at
//! once. That it came for good is believed longer each time: it stays for a second, two, .. a minute.

use super::GuestParams;
use super::backoff::Backoff;
use gleaner_model::{Nanos, VcpuWindow};

/// What a window changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FullChange {
    None,
    /// There is nothing to retain any more.
    Full {
        idle_share: f64,
    },
    /// There is again.
    IdleAgain,
}

/// Whether one vCPU is full: never idle.
#[derive(Clone, Debug)]
pub(super) struct FullVcpu {
    idle_share: f64,
    windows: u32,
    /// Not taken for full again before this is over.
    stay: Backoff,
    full: bool,
    /// Windows in a row with hardly any idle time.
    in_a_row: u32,
    /// Since when it has been full, or not.
    since: Nanos,
}

impl FullVcpu {
    /// `enabled`: otherwise no vCPU ever counts as full.
    pub(super) fn new(enabled: bool, params: &GuestParams) -> Self {
        let ms = Nanos::from_millis;
        Self {
            idle_share: if enabled { params.full_idle_share } else { 0.0 },
            windows: params.full_windows,
            stay: Backoff::new(ms(params.full_stay_min_ms), ms(params.full_stay_max_ms), 1),
            full: false,
            in_a_row: 0,
            since: Nanos::ZERO,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the window that ended at `now` changed it.
    pub(super) fn changed_at(&self, now: Nanos) -> bool {
        self.since == now
    }

    /// The vCPU is out of use: nothing is known of it any more.
    pub(super) fn forget(&mut self) {
        (self.full, self.in_a_row) = (false, 0);
        self.stay.reset();
    }

    /// Takes a window of the vCPU that ended at `now`.
    pub(super) fn feed(&mut self, now: Nanos, length: Nanos, vcpu: &VcpuWindow) -> FullChange {
        // Of the time that the hypervisor left it; where it left nothing, nothing is known.
        let available = length - vcpu.steal;
        if available == Nanos::ZERO {
            return FullChange::None;
        }
        let idle_share = vcpu.idle().share_of(available);
        if idle_share >= self.idle_share {
            self.in_a_row = 0;
            if !self.full {
                return FullChange::None;
            }
            // Full for longer than the last stay: then it was not retention that hid the idle periods.
            self.stay.trigger(now, self.since, now);
            (self.full, self.since) = (false, now);
            return FullChange::IdleAgain;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.full || self.in_a_row < self.windows || self.stay.remaining(now) > Nanos::ZERO {
            return FullChange::None;
        }
        (self.full, self.since) = (true, now);
        FullChange::Full { idle_share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::VcpuId;

    const WINDOW: Nanos = Nanos::from_millis(100);

    /// Feeds windows of 100 ms with so many per mille idle; says when, in windows, it changed, and to what.
    fn feed(vcpu: &mut FullVcpu, from: u64, idle: &[u64]) -> Vec<(u64, bool)> {
        let mut changes = Vec::new();
        for (n, idle) in (from..).zip(idle) {
            let halted = Nanos(WINDOW.0 / 1000 * idle);
            let window = VcpuWindow { busy: WINDOW - halted, halted, ..VcpuWindow::new(VcpuId(0)) };
            match vcpu.feed(Nanos(WINDOW.0 * (n + 1)), WINDOW, &window) {
                FullChange::None => {}
                FullChange::Full { .. } => changes.push((n, true)),
                FullChange::IdleAgain => changes.push((n, false)),
            }
        }
        changes
    }

    fn vcpu() -> FullVcpu {
        FullVcpu::new(true, &GuestParams::default())
    }

    #[test]
    fn full_after_three_windows_and_not_after_the_first_idle_one() {
        for (idle, expected) in [
            (&[0, 0, 0, 0][..], &[(2, true)][..]),
            (&[19, 19, 19], &[(2, true)]),
            (&[0, 0, 20, 0, 0], &[]),
            (&[0, 0, 0, 19, 20], &[(2, true), (4, false)]),
            (&[1000; 20], &[]),
        ] {
            assert_eq!(feed(&mut vcpu(), 0, idle), expected, "{idle:?}");
        }
    }

    #[test]
    fn stolen_time_is_not_idle_and_a_wholly_stolen_window_says_nothing() {
        let mut full = vcpu();
        let window = |halted, steal| VcpuWindow {
            halted: Nanos::from_millis(halted),
            steal: Nanos::from_millis(steal),
            ..VcpuWindow::new(VcpuId(0))
        };
        for (n, window) in (1..).zip([window(0, 50), window(0, 100), window(0, 90), window(1, 55), window(0, 0)]) {
            assert_eq!(full.feed(Nanos(WINDOW.0 * n), WINDOW, &window), FullChange::None, "window {n}");
        }
        assert!(!full.is_full(), "1 ms of 45 is 2.2 %");
    }

    /// Idle periods of 0.5 % while they are retained, of 5 % while they are not.
    #[test]
    fn what_is_short_because_it_is_retained_is_left_ever_longer() {
        let mut full = vcpu();
        let mut windows_retained = Vec::new();
        let mut since = 0;
        for n in 0..3_000 {
            let idle = if full.is_full() { 50 } else { 5 };
            match feed(&mut full, n, &[idle])[..] {
                [(_, true)] => windows_retained.push(n - since),
                [(_, false)] => since = n,
                _ => {}
            }
        }
        assert_eq!(windows_retained[..6], [2, 10, 20, 40, 80, 160]);
        assert!(windows_retained.len() < 12, "{windows_retained:?}");
    }

    #[test]
    fn phases_are_followed_and_what_is_out_of_use_is_forgotten() {
        let mut full = vcpu();
        // Ten seconds of computing, ten of waiting, in turn: each time after three windows, each time back at once.
        let phases = [[0; 100], [500; 100]].concat().repeat(3);
        let expected = [(2, true), (100, false), (202, true), (300, false), (402, true), (500, false)];
        assert_eq!(feed(&mut full, 0, &phases), expected);
        feed(&mut full, 600, &[0, 0, 0]);
        assert!(full.is_full());
        full.forget();
        assert!(!full.is_full());
        assert_eq!(feed(&mut full, 603, &[0, 0, 0]), [(605, true)]);
    }
}
