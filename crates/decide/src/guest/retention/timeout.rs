//! How long an idle vCPU is kept from halting (paper, section 4.1 and 6).
//!
//! Spinning for as long as a halt would cost never pays more than twice the cheaper choice (ski rental). What a halt
//! costs is measured at start: wake-ups of a waiter whose vCPU is halted (setting C of Table 2) against one whose vCPU
//! is retained (setting B). The mean says what is saved on average, the tail what programs feel: hence the profiles.

use gleaner_model::{Nanos, Profile, WakeupCosts};

/// Shortest time-out of profile `balanced`.
const SHORTEST: Nanos = Nanos::from_micros(50);
/// Longest time-out of any profile, and the one of `latency`.
pub(super) const LONGEST: Nanos = Nanos::from_micros(5_000);
/// Time-outs of profiles `frugal` and `balanced` where wake-ups were not measured.
const UNMEASURED_FRUGAL: Nanos = Nanos::from_micros(100);
const UNMEASURED_BALANCED: Nanos = Nanos::from_micros(1_000);
/// ... and where the idle task polls.
const POLL_FRUGAL: Nanos = Nanos::from_micros(50);
const POLL_BALANCED: Nanos = Nanos::from_micros(200);

/// Halting costs where the median of a halted wake-up is at least this many times the retained one's: medians of the
/// hundred-odd samples of a calibration vary by a tenth or two from run to run where both are the same thing.
const HALTING_COSTS_P50_RATIO: f64 = 1.3;
/// ... or where the 99th percentile is at least this many times the retained one's, which rests on one or two samples
/// and varies accordingly. Where neither is, `frugal` and `balanced` retain nothing.
const HALTING_COSTS_P99_RATIO: f64 = 2.0;
/// Nothing is packed where halting costs nothing and the median of a halted wake-up is below this: packed and traced,
/// `fork-join` lost 12 % where that took 6 us.
const WAKING_COSTS_MIN: Nanos = Nanos::from_micros(10);

/// The time-out for `profile`: `frugal` mean_C - mean_B, `balanced` p99_C - p99_B within 50 us and 5 ms, `latency` 5
/// ms. No time-out is longer. Without `costs`, 100 us for `frugal` and 1 ms for `balanced`.
///
/// Zero means: do not retain. That is the answer of `frugal` and `balanced` where halting [costs
/// nothing](halting_is_free).
pub fn timeout(profile: Profile, costs: Option<&WakeupCosts>) -> Nanos {
    let wanted = match (profile, costs) {
        (Profile::Latency, _) => LONGEST,
        (_, Some(costs)) if halting_is_free(costs) => Nanos::ZERO,
        (Profile::Frugal, Some(costs)) => costs.halted_mean - costs.retained_mean,
        (Profile::Frugal, None) => UNMEASURED_FRUGAL,
        (Profile::Balanced, Some(costs)) => (costs.halted_p99 - costs.retained_p99).max(SHORTEST),
        (Profile::Balanced, None) => UNMEASURED_BALANCED,
    };
    wanted.min(LONGEST)
}

/// The time-out for `profile` where the idle task itself polls: a wake-up then costs a tenth of a halted one's, and
/// polling takes nothing from the program.
pub(super) fn poll_timeout(profile: Profile) -> Nanos {
    match profile {
        Profile::Frugal => POLL_FRUGAL,
        Profile::Balanced => POLL_BALANCED,
        Profile::Latency => LONGEST,
    }
}

/// Whether a halted vCPU answers no later than a retained one, beyond what noise explains, in the median *and* in the
/// tail: the host polls for it, or the host is so short of CPUs
/// that retaining makes things worse. Ours; a time-out of the least length would do harm there. This is the one rule of
/// it: `doctor`'s verdict and the time-out of a run both follow it.
pub fn halting_is_free(costs: &WakeupCosts) -> bool {
    free_by_median(costs) && free_by_tail(costs)
}

/// Whether a halted vCPU answers so soon that neither retention nor consolidation has anything to win.
pub(super) fn waking_is_free(costs: &WakeupCosts) -> bool {
    halting_is_free(costs) && costs.halted_p50 < WAKING_COSTS_MIN
}

/// Whether halting costs, but not in the median: that may be one late wake-up.
pub fn halting_costs_by_the_tail_alone(costs: &WakeupCosts) -> bool {
    free_by_median(costs) && !free_by_tail(costs)
}

fn free_by_median(costs: &WakeupCosts) -> bool {
    costs.halted_p50.as_f64() < HALTING_COSTS_P50_RATIO * costs.retained_p50.as_f64()
}

fn free_by_tail(costs: &WakeupCosts) -> bool {
    costs.halted_p99.as_f64() < HALTING_COSTS_P99_RATIO * costs.retained_p99.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_its_timeout() {
        let us = Nanos::from_micros;
        // Medians well below the means, in the same order.
        let costs = |retained_mean, retained_p99, halted_mean, halted_p99| WakeupCosts {
            retained_p50: us(retained_mean / 2),
            halted_p50: us(halted_mean / 2),
            retained_mean: us(retained_mean),
            retained_p99: us(retained_p99),
            halted_mean: us(halted_mean),
            halted_p99: us(halted_p99),
        };
        // Measured on the founders' machine (facts.md): p99 32 us retained, 2717 us halted.
        let here = costs(11, 32, 90, 2_717);
        let cheap = costs(11, 32, 14, 70);
        let noise = costs(11, 32, 12, 60);
        let backwards = costs(20, 50, 10, 40);
        let outlier = costs(20, 500, 60, 400);
        let dreadful = costs(11, 32, 80_000, 900_000);
        for (profile, costs, expected) in [
            (Profile::Frugal, Some(here), us(79)),
            (Profile::Balanced, Some(here), us(2_685)),
            (Profile::Latency, Some(here), us(5_000)),
            (Profile::Frugal, Some(cheap), us(3)),
            (Profile::Balanced, Some(cheap), us(50)),
            (Profile::Frugal, Some(noise), Nanos::ZERO),
            (Profile::Balanced, Some(noise), Nanos::ZERO),
            (Profile::Latency, Some(noise), us(5_000)),
            (Profile::Frugal, Some(backwards), Nanos::ZERO),
            (Profile::Balanced, Some(backwards), Nanos::ZERO),
            (Profile::Balanced, Some(outlier), us(50)),
            (Profile::Latency, Some(backwards), us(5_000)),
            (Profile::Frugal, Some(dreadful), us(5_000)),
            (Profile::Balanced, Some(dreadful), us(5_000)),
            (Profile::Frugal, None, us(100)),
            (Profile::Balanced, None, us(1_000)),
            (Profile::Latency, None, us(5_000)),
        ] {
            let found = timeout(profile, costs.as_ref());
            assert_eq!(found, expected, "{profile:?} with {costs:?}");
        }
    }

    #[test]
    fn waking_is_free_where_a_halted_vcpu_answers_as_soon_and_at_once() {
        let us = Nanos::from_micros;
        for (retained, halted, free) in [(6, 6, true), (9, 9, true), (10, 10, false), (6, 9, false), (18, 18, false)] {
            let costs = WakeupCosts {
                retained_p50: us(retained),
                retained_p99: us(20),
                halted_p50: us(halted),
                halted_p99: us(20),
                ..WakeupCosts::default()
            };
            assert_eq!(waking_is_free(&costs), free, "{retained}, {halted}");
        }
    }

    #[test]
    fn halting_costs_from_1_3_times_the_median_or_twice_the_tail() {
        let us = Nanos::from_micros;
        for (halted_p50, halted_p99, free) in [
            (100, 400, true),
            (129, 799, true),
            (130, 400, false),
            (100, 800, false),
            (50, 200, true),
            (50, 900, false),
        ] {
            let costs = WakeupCosts {
                retained_p50: us(100),
                retained_p99: us(400),
                halted_p50: us(halted_p50),
                halted_p99: us(halted_p99),
                ..WakeupCosts::default()
            };
            assert_eq!(halting_is_free(&costs), free, "median {halted_p50}, p99 {halted_p99}");
            let by_the_tail = !free && halted_p50 < 130;
            assert_eq!(halting_costs_by_the_tail_alone(&costs), by_the_tail, "{halted_p50}, {halted_p99}");
        }
    }
}
