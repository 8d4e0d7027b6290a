//! All vCPUs at once when a packed group gets more to do (paper, section 7.1: "it may not be able to quickly detect the
//! increasing concurrency levels at the beginning of some new execution phases").
//!
//! Threads that share a vCPU always wait for one another a little. So it is no burst before they have waited for longer
//! than their own computations explain, and patience grows where expanding was for nothing.

use super::measure::{Sample, Spread};
use super::workload_change::moved;
use super::{Consolidation, Outcome};
use crate::guest::GuestParams;
use gleaner_model::{Burst, BurstWatch, Nanos, Reason, Window};
use serde::{Deserialize, Serialize};

/// More threads can run than there are active vCPUs, for this time without a break.
const AFTER: Nanos = Nanos::from_micros(250);
/// Threads that share a vCPU wait for one another's computations: up to so many times g_comp is no burst.
const G_COMP_TIMES: f64 = 10.0;
/// A wake-up that another task keeps waiting for so long is one.
const DELAY: Nanos = Nanos::from_millis(2);
/// Patience grows up to so many times.
const PATIENCE_MAX: u64 = 64;

/// Why a group that is packed onto `watch.active` vCPUs should have all of them; `None`: it should not.
///
/// A burst is more threads that can run than active vCPUs, for `watch.after` without a break; or a wake-up that another
/// task kept waiting for `watch.delay`.
pub fn expands(burst: &Burst, watch: &BurstWatch) -> Option<Reason> {
    let active = watch.active as usize;
    let Burst { runnable, lasted, delay, .. } = *burst;
    if runnable > u64::from(watch.active) && lasted >= watch.after {
        return Some(Reason::Burst { runnable, active, lasted });
    }
    (delay >= watch.delay).then_some(Reason::WakeupDelayed { delay, active })
}

/// How long a burst has to last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Patience {
    /// What the parameters' times are multiplied with.
    factor: u64,
    /// The group was expanded, and has yet to show that it computes more.
    doubt: Option<Doubt>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Doubt {
    /// CPU time per second while it was packed.
    packed: Spread,
    windows_left: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { factor: 1, doubt: None }
    }
}

impl Patience {
    /// What to look out for. `g_comp` is in nanoseconds.
    pub(super) fn watch(&self, active: usize, g_comp: f64) -> BurstWatch {
        let usual = Nanos::from_f64(g_comp * G_COMP_TIMES);
        let after = AFTER.max(usual).times(self.factor);
        let delay = DELAY.times(self.factor).max(after);
        BurstWatch { active: u32::try_from(active).unwrap_or(u32::MAX), after, delay }
    }

    /// The group was expanded for a burst.
    pub(super) fn expanded(&mut self, packed: Spread, params: &GuestParams) {
        let windows = params.tuning.settle_windows.saturating_add(params.tuning.judge_windows).max(1);
        self.doubt = Some(Doubt { packed, windows_left: windows });
    }

    /// A window since. True: the last burst was none.
    pub(super) fn was_for_nothing(&mut self, sample: &Sample, params: &GuestParams) -> bool {
        let Some(doubt) = &mut self.doubt else { return false };
        let now = sample.cpu_rate();
        if now > doubt.packed.median && moved(doubt.packed, now, params) {
            self.doubt = None;
            self.factor = (self.factor / 2).max(1);
            return false;
        }
        doubt.windows_left = doubt.windows_left.saturating_sub(1);
        if doubt.windows_left > 0 {
            return false;
        }
        self.doubt = None;
        self.factor = self.factor.saturating_mul(2).min(PATIENCE_MAX);
        true
    }
}

impl Consolidation {
    /// What the group should be expanded for at once; `None` while it has all vCPUs.
    pub(in crate::guest) fn burst_watch(&self) -> Option<BurstWatch> {
        if !self.params.tuning.expand_at_once || self.active.len() >= self.all.len() {
            return None;
        }
        let g_comp = self.steps.iter().map(|step| step.measure.lengths.g_comp).fold(0.0, f64::max);
        Some(self.patience.watch(self.active.len(), g_comp))
    }

    /// Threads wait for a vCPU. `None`: that is no reason.
    pub(in crate::guest) fn burst(&mut self, burst: &Burst) -> Option<Outcome> {
        let reason = expands(burst, &self.burst_watch()?)?;
        let packed = match self.steps.last() {
            Some(step) if self.history.is_empty() => step.usual(),
            _ => Spread::of(self.history.iter().map(Sample::cpu_rate)),
        };
        self.give_all_back(burst.at);
        self.patience.expanded(packed, &self.params);
        Some(Outcome::ActivateAll { reason })
    }

    /// Where the last burst was none, nothing is held off for it.
    pub(super) fn weigh_burst(&mut self, window: &Window) {
        if self.patience.was_for_nothing(&Sample::of(window, &self.active), &self.params) {
            self.hold_off.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_more_threads_than_vcpus_for_long_or_a_wake_up_that_others_delay() {
        let us = Nanos::from_micros;
        let watch = BurstWatch { active: 2, after: us(250), delay: us(2_000) };
        // (runnable, lasted, delay, expands)
        for (runnable, lasted, delay, expected) in [
            (3, 250, 0, true),
            (3, 249, 0, false),
            (2, 9_000, 0, false),
            (0, 0, 2_000, true),
            (0, 0, 1_999, false),
            (64, 100_000, 0, true),
        ] {
            let burst = Burst { at: Nanos::ZERO, runnable, lasted: us(lasted), delay: us(delay) };
            assert_eq!(expands(&burst, &watch).is_some(), expected, "{burst:?}");
        }
    }

    #[test]
    fn threads_that_compute_for_longer_may_wait_for_longer() {
        let patience = Patience::default();
        let after = |g_comp| patience.watch(1, g_comp).after;
        assert_eq!(after(5_000.0), Nanos::from_micros(250));
        assert_eq!(after(100_000.0), Nanos::from_millis(1));
    }
}
