//! Every number the slice policy uses, in one place: with the paper's symbol, unit, default, range and where it is from.

use crate::guest::ParamError;
use gleaner_model::{Nanos, SwitchPrice};
use serde::Deserialize;

/// The parameters of the slice policy (micro-sliced vCPUs, MICRO'14, section III; "ours" where the paper has none).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostParams {
    // --- The ladder: section III-B ---
    /// time_slice, the steps, microseconds, longest first: the paper's 30, 10, 5, 1 and 0.1 ms, and 0.5 ms (ours). 2 to 16
    /// slices, each shorter than the one before, 100 to 100000.
    pub ladder_us: Vec<u64>,
    /// The slice `adaptive` starts with, microseconds: the step nearest to it. 100 to 100000. The one that section III-B finds best
    /// for most mixes.
    pub start_slice_us: u64,
    /// The longest slice while nothing can tell a vCPU that computes from one that spins, microseconds (ours): there long slices save
    /// little and may cost much. 100 to 100000.
    pub blind_slice_us: u64,

    // --- What a switch costs: section III-A ---
    /// Direct cost of a vCPU switch where it was not measured, microseconds. 0 to 10000. The paper: 1000 to 2000 cycles for exit
    /// and entry alone.
    pub switch_us: u64,
    /// Indirect cost (caches, TLBs, predictors) where it was not measured, microseconds. 0 to 10000. Here: what slices of 0.1 ms took of emulated guests that
    /// compute, 21 us each, less switch and tick (experiments/slices, series of 2026-11-24); a guest with a large working set pays more.
    pub refill_us: u64,
    /// What a ticker takes to end a slice, where the kernel would not, microseconds (ours), until that was measured. 0 to 10000. Here: 5 to 11
    /// (experiments/slices).
    pub tick_us: u64,

    // --- What discontinuity costs (ours) ---
    /// What a second that a vCPU waits is worth, in seconds of CPU time, where its VM gets all it is entitled to (one that gets less loses more):
    /// others run meanwhile, and throughput loses nothing. 0: nothing; 1: as much as a second's spinning. 0 to 1.
    pub wait_weight: f64,
    /// Wake-ups per second and vCPU from which waiting after wake-ups counts; it counts in full from twice as many (an idle guest's
    /// housekeeping hurts nobody). 0 to 100000.
    pub wakeups_per_s_min: f64,
    /// The part of the time from wake-up to running that no slice shortens, microseconds. 0 to 10000.
    pub wake_floor_us: u64,
    /// The spinning that one exit for too many PAUSEs stands for, microseconds. 0 to 10000. KVM's window starts at 4096 cycles.
    pub pause_exit_us: u64,
    /// A set of VMs whose pCPUs had more than one runnable vCPU for less than this share of the time is left alone. 0 to 1.
    pub contended_share_min: f64,

    // --- Steps (ours) ---
    /// Windows passed over after a step or a change of who shares with whom. 0 to 100.
    pub settle_windows: u32,
    /// Settled windows that a step is decided on and judged over, by their sums; three times as many before one that gained nothing is taken back. 1 to 100.
    pub judge_windows: u32,
    /// A shorter slice has to promise at least this share of the VMs' time. 0.0001 to 1.
    pub gain_min: f64,
    /// A longer slice has to save at least this share. 0.0001 to 1.
    pub saving_min: f64,
    /// After a step down the waits must have fallen by at least this part of what the slice fell by, or the VMs must get more CPU time by `gain_min` (harmonic
    /// mean, relative to entitlement, less switches). 0 to 1.
    pub fall_min: f64,
    /// What was lost in all moved by more than this share without a step: the workload changed, and what was seen at other
    /// slices is forgotten. 0.01 to 1.
    pub change_min: f64,
    /// How long what was seen at another slice is believed at first, milliseconds. 1 to 3600000.
    pub memory_min_ms: u64,
    /// It doubles up to this, each time a step is taken back or turns out to lead nowhere, milliseconds. At least `memory_min_ms`,
    /// at most 36000000.
    pub memory_max_ms: u64,
    /// No step for so long after one that was taken back, or that went the other way than the one before, milliseconds. 0 to 3600000.
    pub rest_min_ms: u64,
    /// It doubles up to this while that keeps happening, milliseconds. At least `rest_min_ms`, at most 3600000.
    pub rest_max_ms: u64,

    // --- Fairness (section III-B, made a promise; ours) ---
    /// Shares of continuously runnable vCPUs may be this far from their entitlement. 0.001 to 1.
    pub unfair_share: f64,
    /// A vCPU is continuously runnable if it ran or waited for this share of the time. 0.5 to 1.
    pub runnable_share_min: f64,
    /// The time that shares are taken over, milliseconds. 100 to 600000.
    pub fairness_span_ms: u64,
}

impl Default for HostParams {
    fn default() -> Self {
        Self {
            ladder_us: vec![30_000, 10_000, 5_000, 1_000, 500, 100],
            start_slice_us: 1_000,
            blind_slice_us: 5_000,
            switch_us: 3,
            refill_us: 12,
            tick_us: 8,
            wait_weight: 0.25,
            wakeups_per_s_min: 50.0,
            wake_floor_us: 20,
            pause_exit_us: 2,
            contended_share_min: 0.02,
            settle_windows: 1,
            judge_windows: 3,
            gain_min: 0.01,
            saving_min: 0.001,
            fall_min: 0.3,
            change_min: 0.10,
            memory_min_ms: 60_000,
            memory_max_ms: 1_920_000,
            rest_min_ms: 10_000,
            rest_max_ms: 640_000,
            unfair_share: 0.03,
            runnable_share_min: 0.95,
            fairness_span_ms: 10_000,
        }
    }
}

/// Key, value, lowest and highest value allowed.
type Range = (&'static str, f64, f64, f64);

/// Shortest and longest slice that Linux takes (`sched_setattr` clamps to them).
const SLICE_US: (u64, u64) = (100, 100_000);

impl HostParams {
    /// Checks every value.
    ///
    /// # Errors
    /// The first parameter out of range, with its key, its value and the range allowed.
    pub fn validate(&self) -> Result<(), ParamError> {
        let falls = self.ladder_us.windows(2).all(|two| two[1] < two[0]);
        let in_range = self.ladder_us.iter().all(|us| (SLICE_US.0..=SLICE_US.1).contains(us));
        if !falls || !in_range || !(2..=16).contains(&self.ladder_us.len()) {
            let allowed = "list of 2 to 16 slices, each shorter than the one before, from 100000 to 100".to_owned();
            return Err(ParamError { key: "ladder_us", value: format!("{:?}", self.ladder_us), allowed });
        }
        for (key, value, low, high) in self.ranges() {
            // `contains` is false for NaN, as it has to be.
            if !(low..=high).contains(&value) {
                let allowed = format!("from {low} to {high}");
                return Err(ParamError { key, value: value.to_string(), allowed });
            }
        }
        Ok(())
    }

    fn ranges(&self) -> [Range; 23] {
        const TEN_MS_US: f64 = 10_000.0;
        const HOUR_MS: f64 = 3_600_000.0;
        let (shortest, longest) = (SLICE_US.0 as f64, SLICE_US.1 as f64);
        [
            ("start_slice_us", self.start_slice_us as f64, shortest, longest),
            ("blind_slice_us", self.blind_slice_us as f64, shortest, longest),
            ("switch_us", self.switch_us as f64, 0.0, TEN_MS_US),
            ("refill_us", self.refill_us as f64, 0.0, TEN_MS_US),
            ("tick_us", self.tick_us as f64, 0.0, TEN_MS_US),
            ("wait_weight", self.wait_weight, 0.0, 1.0),
            ("wakeups_per_s_min", self.wakeups_per_s_min, 0.0, 1e5),
            ("wake_floor_us", self.wake_floor_us as f64, 0.0, TEN_MS_US),
            ("pause_exit_us", self.pause_exit_us as f64, 0.0, TEN_MS_US),
            ("contended_share_min", self.contended_share_min, 0.0, 1.0),
            ("settle_windows", f64::from(self.settle_windows), 0.0, 100.0),
            ("judge_windows", f64::from(self.judge_windows), 1.0, 100.0),
            ("gain_min", self.gain_min, 0.0001, 1.0),
            ("saving_min", self.saving_min, 0.0001, 1.0),
            ("fall_min", self.fall_min, 0.0, 1.0),
            ("change_min", self.change_min, 0.01, 1.0),
            ("memory_min_ms", self.memory_min_ms as f64, 1.0, HOUR_MS),
            ("memory_max_ms", self.memory_max_ms as f64, self.memory_min_ms as f64, 10.0 * HOUR_MS),
            ("rest_min_ms", self.rest_min_ms as f64, 0.0, HOUR_MS),
            ("rest_max_ms", self.rest_max_ms as f64, self.rest_min_ms as f64, HOUR_MS),
            ("unfair_share", self.unfair_share, 0.001, 1.0),
            ("runnable_share_min", self.runnable_share_min, 0.5, 1.0),
            ("fairness_span_ms", self.fairness_span_ms as f64, 100.0, 600_000.0),
        ]
    }

    /// The price of a switch where nothing was measured.
    pub fn unmeasured_price(&self) -> SwitchPrice {
        SwitchPrice {
            direct: Nanos::from_micros(self.switch_us),
            tick: Nanos::ZERO,
            refill: Nanos::from_micros(self.refill_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(HostParams::default().validate(), Ok(()));
    }

    #[test]
    fn a_bad_value_is_named_with_the_range_allowed() {
        for (text, key, allowed) in [
            ("ladder_us = [30000]", "ladder_us = [30000]", "2 to 16 slices"),
            ("ladder_us = [1000, 5000]", "ladder_us = [1000, 5000]", "shorter than the one before"),
            ("ladder_us = [1000, 50]", "ladder_us", "from 100000 to 100"),
            ("start_slice_us = 7", "start_slice_us = 7", "from 100 to 100000"),
            ("gain_min = nan", "gain_min = NaN", "from 0.0001 to 1"),
            ("memory_max_ms = 10", "memory_max_ms = 10", "from 60000 to"),
            ("judge_windows = 0", "judge_windows = 0", "from 1 to 100"),
        ] {
            let params: HostParams = toml::from_str(text).unwrap();
            let message = params.validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(allowed), "{text}: {message}");
        }
        assert!(toml::from_str::<HostParams>("ladder = [1]").unwrap_err().to_string().contains("ladder"));
    }
}
