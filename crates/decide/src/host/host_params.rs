//! Every number the slice policy uses, in one place: with the paper's symbol, unit, default, range and where it is
//! from.

use crate::params::{ParamError, parameters};
use gleaner_model::{Nanos, SwitchPrice};

parameters! {
    /// The parameters of the slice policy (micro-sliced vCPUs, MICRO'14, section III; "ours" where the paper has none).
    pub struct HostParams {
        ["The ladder: section III-B"]
        /// time_slice, the steps, longest first: the paper's 30, 10, 5, 1 and 0.1 ms, and 0.5 ms (ours).
        ladder_us: Vec<u64> = vec![30_000, 10_000, 5_000, 1_000, 500, 100],
            any of "2 to 16 slices, each shorter than the one before, from 100000 to 100", "us";
        /// The slice `adaptive` starts with: the step nearest to it. The one that section III-B finds best for most
        /// mixes.
        start_slice_us: u64 = 1_000, 100 to 100_000, "us";
        /// The longest slice while nothing can tell a vCPU that computes from one that spins (ours): there long
        /// slices save little and may cost much.
        blind_slice_us: u64 = 5_000, 100 to 100_000, "us";

        ["What a switch costs: section III-A"]
        /// Direct cost of a vCPU switch where it was not measured. The paper: 1000 to 2000 cycles for exit and entry
        /// alone.
        switch_us: u64 = 3, 0 to 10_000, "us";
        /// Indirect cost (caches, TLBs, predictors) where it was not measured. Here: what slices of 0.1 ms took of
        /// emulated guests that compute, 21 us each, less switch and tick (experiments/slices, series of 2026-11-24);
        /// a guest with a large working set pays more.
        refill_us: u64 = 12, 0 to 10_000, "us";
        /// What a ticker takes to end a slice, where the kernel would not (ours), until that was measured. Here: 5 to
        /// 11 (experiments/slices).
        tick_us: u64 = 8, 0 to 10_000, "us";

        ["What discontinuity costs (ours)"]
        /// What a second that a vCPU waits is worth, in seconds of CPU time, where its VM gets all it is entitled to
        /// (one that gets less loses more): others run meanwhile, and throughput loses nothing. 0: nothing; 1: as
        /// much as a second's spinning.
        wait_weight: f64 = 0.25, 0 to 1, "";
        /// Wake-ups per second and vCPU from which waiting after wake-ups counts; it counts in full from twice as
        /// many (an idle guest's housekeeping hurts nobody).
        wakeups_per_s_min: f64 = 50.0, 0 to 100_000, "per second";
        /// The part of the time from wake-up to running that no slice shortens.
        wake_floor_us: u64 = 20, 0 to 10_000, "us";
        /// The spinning that one exit for too many PAUSEs stands for. KVM's window starts at 4096 cycles.
        pause_exit_us: u64 = 2, 0 to 10_000, "us";

        ["Steps (ours)"]
        /// Windows passed over after a step or a change of who shares with whom.
        settle_windows: u32 = 1, 0 to 100, "windows";
        /// Settled windows that a step is decided on and judged over, by their sums; three times as many before one
        /// that gained nothing is taken back.
        judge_windows: u32 = 3, 1 to 100, "windows";
        /// A shorter slice has to promise at least this share of the VMs' time.
        gain_min: f64 = 0.01, 0.0001 to 1, "share";

        ["Fairness (section III-B, made a promise; ours)"]
        /// Shares of continuously runnable vCPUs may be this far from their entitlement.
        unfair_share: f64 = 0.03, 0.001 to 1, "share";
        /// A vCPU is continuously runnable if it ran or waited for this share of the time.
        runnable_share_min: f64 = 0.95, 0.5 to 1, "share";
        /// The time that shares are taken over.
        fairness_span_ms: u64 = 10_000, 100 to 600_000, "ms";
    }
}

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
        self.out_of_range()
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
            ("judge_windows = 0", "judge_windows = 0", "from 1 to 100"),
        ] {
            let params: HostParams = toml::from_str(text).unwrap();
            let message = params.validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(allowed), "{text}: {message}");
        }
        assert!(toml::from_str::<HostParams>("ladder = [1]").unwrap_err().to_string().contains("ladder"));
    }
}
