//! When one vCPU fewer would do (paper, section 5, conditions (1) and (2); condition (3) is ours).
//!
//! Condition (1) asks whether the others' idle time can take the work of the vCPU to be deactivated, condition (2)
//! whether the pieces are small enough to fit into the idle periods (Figure 4(b) shows what happens otherwise),
//! condition (3) whether the vCPUs that stay would not be so full that the workload-change detector had to undo the
//! step. The paper deactivates one vCPU at a time; for `k` of them at once (ours) the conditions are the same, with the
//! work of k and the idle time of N-k.

use crate::guest::{GuestParams, NoStep};
use gleaner_model::{Lengths, Nanos};
use serde::{Deserialize, Serialize};

/// The two factors that are adapted when a step hurts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// rho, load factor, 0.001 to 1.
    pub load: f64,
    /// eta, granularity factor, 0.001 to 1.
    pub granularity: f64,
}

impl Factors {
    /// As the parameters give them.
    pub fn new(params: &GuestParams) -> Self {
        Self { load: params.load_factor, granularity: params.granularity_factor }
    }
}

/// k * l_comp / ((N-k) * l_idle), what rho limits. Infinite where there is no idle time or no vCPU would be left.
pub fn load_ratio(lengths: &Lengths, n: usize, k: usize) -> f64 {
    ratio(k as f64 * lengths.l_comp, n.saturating_sub(k) as f64 * lengths.l_idle)
}

/// g_comp / l_idle, what eta limits. Infinite where there is no idle time.
pub fn granularity_ratio(lengths: &Lengths) -> f64 {
    ratio(lengths.g_comp, lengths.l_idle)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { f64::INFINITY }
}

/// Whether the conditions hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// All of them.
    Fits {
        /// k * l_comp / ((N-k) * l_idle).
        load_ratio: f64,
        /// g_comp / l_idle.
        granularity_ratio: f64,
        /// N*u/(N-k).
        utilization: f64,
    },
    /// The first that does not.
    Fails(NoStep),
}

/// Rounding in ratios of sums must not decide at a limit that is met exactly.
const ROUNDING: f64 = 1e-9;

/// Checks conditions (1), (2) and (3) for `n` active vCPUs, of which `k` would be deactivated, with mean utilization
/// `utilization` (0 to 1). `wakeup_cost`: how long waking a halted vCPU takes, where that is known; finer computations
/// get `fine_grained_allowance`.
pub fn check(
    lengths: &Lengths,
    utilization: f64,
    (n, k): (usize, usize),
    factors: Factors,
    wakeup_cost: Option<Nanos>,
    params: &GuestParams,
) -> Check {
    if n <= k {
        return Check::Fails(NoStep::OneVcpu);
    }
    let load_ratio = load_ratio(lengths, n, k);
    let granularity_ratio = granularity_ratio(lengths);
    let g_comp = Nanos::from_f64(lengths.g_comp);
    let predicted = utilization * n as f64 / (n - k) as f64;
    // Until a step that hurt has taught otherwise.
    let fine = wakeup_cost.is_some_and(|cost| g_comp < cost) && factors == Factors::new(params);
    let allowance = if fine { params.tuning.fine_grained_allowance } else { 1.0 };
    let factors = Factors { load: factors.load * allowance, granularity: factors.granularity * allowance };
    let predicted_max = params.tuning.predicted_utilization_max * allowance;
    if load_ratio > factors.load + ROUNDING {
        Check::Fails(NoStep::LoadTooHigh { load_ratio, load_factor: factors.load })
    } else if granularity_ratio > factors.granularity + ROUNDING {
        Check::Fails(NoStep::TooCoarse { granularity_ratio, granularity_factor: factors.granularity })
    } else if g_comp > params.min_time_slice() {
        Check::Fails(NoStep::LongerThanSlice { g_comp, min_time_slice: params.min_time_slice() })
    } else if predicted > predicted_max + ROUNDING {
        Check::Fails(NoStep::WouldBeFull { predicted, max: predicted_max })
    } else {
        Check::Fits { load_ratio, granularity_ratio, utilization: predicted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 4's unit of time.
    const T: f64 = 1e6;

    /// Name, l_comp, g_comp, l_idle, N, utilization; then the kind of answer.
    type Case = (&'static str, f64, f64, f64, usize, f64, fn(&Check) -> bool);

    #[test]
    fn figure_4_and_each_condition() {
        // rho = eta = 1, and conditions (1) and (2) only.
        let mut paper = GuestParams::default();
        paper.tuning.predicted_utilization_max = 1.0;
        let ours = GuestParams::default();
        let fits = |check: &Check| matches!(check, Check::Fits { .. });
        let too_coarse = |check: &Check| matches!(check, Check::Fails(NoStep::TooCoarse { .. }));
        let load = |check: &Check| matches!(check, Check::Fails(NoStep::LoadTooHigh { .. }));
        let slice = |check: &Check| matches!(check, Check::Fails(NoStep::LongerThanSlice { .. }));
        let full = |check: &Check| matches!(check, Check::Fails(NoStep::WouldBeFull { .. }));
        let one = |check: &Check| matches!(check, Check::Fails(NoStep::OneVcpu));
        let cases: [(&GuestParams, Case); 8] = [
            (&paper, ("figure 4(a)", 2.0 * T, T, T, 3, 2.0 / 3.0, fits)),
            (&paper, ("figure 4(b)", 2.0 * T, 2.0 * T, T, 3, 2.0 / 3.0, too_coarse)),
            (&paper, ("(1) fails", 2.1 * T, T, T, 3, 0.6, load)),
            (&paper, ("the slice in (2)", 5.0 * T, 5.0 * T, 6.0 * T, 3, 0.4, slice)),
            (&ours, ("(3) stops figure 4(a)", 2.0 * T, T, T, 3, 2.0 / 3.0, full)),
            (&ours, ("all hold", 0.5 * T, 0.2 * T, T, 3, 1.0 / 3.0, fits)),
            (&ours, ("no idle time", T, T, 0.0, 3, 1.0, load)),
            (&ours, ("one vCPU", 0.5 * T, 0.2 * T, T, 1, 0.3, one)),
        ];
        for (params, (name, l_comp, g_comp, l_idle, n, utilization, expected)) in cases {
            let found =
                check(&Lengths { l_comp, g_comp, l_idle }, utilization, (n, 1), Factors::new(params), None, params);
            assert!(expected(&found), "{name}: {found:?}");
        }
    }

    #[test]
    fn computations_finer_than_a_wakeup_are_allowed_more() {
        let params = GuestParams::default();
        // Two vCPUs, 53 % busy with pieces of 60 us: by the book there is just too little idle time.
        let lengths = Lengths { l_comp: 64e3, g_comp: 60e3, l_idle: 57e3 };
        for (cost_us, fits) in [(None, false), (Some(40), false), (Some(100), true)] {
            let cost = cost_us.map(Nanos::from_micros);
            let found = check(&lengths, 0.53, (2, 1), Factors::new(&params), cost, &params);
            assert_eq!(matches!(found, Check::Fits { .. }), fits, "{cost_us:?}: {found:?}");
        }
        let full = Lengths { l_comp: 90e3, ..lengths };
        let found = check(&full, 0.61, (2, 1), Factors::new(&params), Some(Nanos::from_micros(100)), &params);
        assert!(matches!(found, Check::Fails(NoStep::LoadTooHigh { .. })), "{found:?}");
    }

    #[test]
    fn a_computation_just_as_long_as_a_slice_fits() {
        let params = GuestParams::default();
        let slice = params.min_time_slice();
        for (g_comp, fits) in [(slice, true), (slice + Nanos(1), false)] {
            let lengths = Lengths { l_comp: T, g_comp: g_comp.as_f64(), l_idle: 100.0 * T };
            let found = check(&lengths, 0.1, (2, 1), Factors::new(&params), None, &params);
            assert_eq!(matches!(found, Check::Fits { .. }), fits, "{found:?}");
        }
    }

    #[test]
    fn several_at_once_need_the_idle_time_of_those_that_stay() {
        // Four vCPUs, 30 % busy: 0.3 ms of work for each 0.7 ms of idle time. (k, load ratio, predicted utilization,
        // fits)
        let (lengths, params) = (Lengths { l_comp: 0.3 * T, g_comp: 0.2 * T, l_idle: 0.7 * T }, GuestParams::default());
        for (k, load, utilization, fits) in
            [(1, 1.0 / 7.0, 0.4, true), (2, 3.0 / 7.0, 0.6, true), (3, 9.0 / 7.0, 1.2, false)]
        {
            let found = check(&lengths, 0.3, (4, k), Factors::new(&params), None, &params);
            assert!((load_ratio(&lengths, 4, k) - load).abs() < 1e-9, "{k}");
            let as_expected = match found {
                Check::Fits { utilization: predicted, .. } => fits && (predicted - utilization).abs() < 1e-9,
                Check::Fails(why) => !fits && matches!(why, NoStep::LoadTooHigh { .. }),
            };
            assert!(as_expected, "{k}: {found:?}");
        }
        assert_eq!(check(&lengths, 0.3, (4, 4), Factors::new(&params), None, &params), Check::Fails(NoStep::OneVcpu));
    }
}
