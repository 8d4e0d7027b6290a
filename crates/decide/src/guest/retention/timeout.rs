//! How long an idle vCPU is kept from halting (paper, section 4.1 and 6).
//!
//! Spinning for as long as a halt would cost never pays more than twice the cheaper choice (ski rental). What a halt
//! costs is measured at start: wake-ups of a waiter whose vCPU is halted (setting C of Table 2) against one whose vCPU
//! is retained (setting B). The mean says what is saved on average, the tail what programs feel: hence the profiles.

use crate::guest::GuestParams;
use gleaner_model::{Nanos, Profile, WakeupCosts};

/// Time-out of profile `frugal` where wake-ups were not measured.
const UNMEASURED_FRUGAL: Nanos = Nanos::from_micros(100);
/// ... and where the idle task polls.
const POLL_FRUGAL: Nanos = Nanos::from_micros(50);

/// The time-out for `profile`: `frugal` mean_C - mean_B, `balanced` p99_C - p99_B within `timeout_min_us` and
/// `timeout_max_us` (50 us .. 5 ms), `latency` `timeout_max_us` (5 ms). No time-out exceeds `timeout_max_us`. Without
/// `costs`, 100 us for `frugal` and `timeout_unmeasured_balanced_us`.
///
/// Zero means: do not retain. That is the answer of `frugal` and `balanced` where halting [costs
/// nothing](halting_is_free).
pub fn timeout(profile: Profile, costs: Option<&WakeupCosts>, params: &GuestParams) -> Nanos {
    let shortest = Nanos::from_micros(params.timeout_min_us);
    let longest = Nanos::from_micros(params.timeout_max_us);
    let wanted = match (profile, costs) {
        (Profile::Latency, _) => longest,
        (_, Some(costs)) if halting_is_free(costs, params) => Nanos::ZERO,
        (Profile::Frugal, Some(costs)) => costs.halted_mean - costs.retained_mean,
        (Profile::Frugal, None) => UNMEASURED_FRUGAL,
        (Profile::Balanced, Some(costs)) => (costs.halted_p99 - costs.retained_p99).max(shortest),
        (Profile::Balanced, None) => Nanos::from_micros(params.timeout_unmeasured_balanced_us).max(shortest),
    };
    wanted.min(longest)
}

/// The time-out for `profile` where the idle task itself polls: a wake-up then costs a tenth of a halted one's, and
/// polling takes nothing from the program. `latency`: `timeout_max_us`.
pub fn poll_timeout(profile: Profile, params: &GuestParams) -> Nanos {
    match profile {
        Profile::Frugal => POLL_FRUGAL,
        Profile::Balanced => Nanos::from_micros(params.poll_timeout_balanced_us),
        Profile::Latency => Nanos::from_micros(params.timeout_max_us),
    }
}

/// Whether a halted vCPU answers no later than a retained one, beyond what noise explains, in the median *and* in the
/// tail (`halting_costs_p50_ratio`, `halting_costs_p99_ratio`): the host polls for it, or the host is so short of CPUs
/// that retaining makes things worse. Ours; a time-out of the least length would do harm there. This is the one rule of
/// it: `doctor`'s verdict and the time-out of a run both follow it.
pub fn halting_is_free(costs: &WakeupCosts, params: &GuestParams) -> bool {
    free_by_median(costs, params) && free_by_tail(costs, params)
}

/// Whether a halted vCPU answers so soon that neither retention nor consolidation has anything to win
/// (`waking_costs_us_min`).
pub fn waking_is_free(costs: &WakeupCosts, params: &GuestParams) -> bool {
    halting_is_free(costs, params) && costs.halted_p50 < Nanos::from_micros(params.waking_costs_us_min)
}

/// Whether halting costs, but not in the median: that may be one late wake-up.
pub fn halting_costs_by_the_tail_alone(costs: &WakeupCosts, params: &GuestParams) -> bool {
    free_by_median(costs, params) && !free_by_tail(costs, params)
}

fn free_by_median(costs: &WakeupCosts, params: &GuestParams) -> bool {
    costs.halted_p50.as_f64() < params.halting_costs_p50_ratio * costs.retained_p50.as_f64()
}

fn free_by_tail(costs: &WakeupCosts, params: &GuestParams) -> bool {
    costs.halted_p99.as_f64() < params.halting_costs_p99_ratio * costs.retained_p99.as_f64()
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
            let found = timeout(profile, costs.as_ref(), &GuestParams::default());
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
            assert_eq!(waking_is_free(&costs, &GuestParams::default()), free, "{retained}, {halted}");
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
            let params = GuestParams::default();
            assert_eq!(halting_is_free(&costs, &params), free, "median {halted_p50}, p99 {halted_p99}");
            let by_the_tail = !free && halted_p50 < 130;
            assert_eq!(halting_costs_by_the_tail_alone(&costs, &params), by_the_tail, "{halted_p50}, {halted_p99}");
            let stricter = GuestParams { halting_costs_p50_ratio: 1.0, halting_costs_p99_ratio: 1.0, ..params };
            assert_eq!(halting_is_free(&costs, &stricter), halted_p50 < 100 && halted_p99 < 400, "stricter");
        }
    }
}
