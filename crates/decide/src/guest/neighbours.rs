//! Others that steer the same vCPUs, and what Gleaner leaves to them.

use gleaner_model::Policy;

/// What else steers this machine, as far as it changes what may be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// A sched_ext scheduler runs: where threads run is its own to say, and a thread of the lowest class is under it.
    pub by_sched_ext: bool,
    /// The kernel was told never to halt (`idle=poll`).
    pub never_halts: bool,
}

/// What is left of `policy` where others steer.
pub fn beside(policy: Policy, steered: Steered) -> Policy {
    let consolidates = policy.consolidates() && !steered.by_sched_ext;
    let retains = policy.retains() && !steered.never_halts;
    match (policy, retains, consolidates) {
        (Policy::Off, ..) => Policy::Off,
        (_, true, true) => Policy::Full,
        (_, true, false) => Policy::Retain,
        (_, false, true) => Policy::Consolidate,
        (_, false, false) => Policy::Observe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_steers_is_left_to_them() {
        let all = [Policy::Off, Policy::Observe, Policy::Retain, Policy::Consolidate, Policy::Full];
        for (by_sched_ext, never_halts, left) in [
            (false, false, all),
            (true, false, [Policy::Off, Policy::Observe, Policy::Retain, Policy::Observe, Policy::Retain]),
            (false, true, [Policy::Off, Policy::Observe, Policy::Observe, Policy::Consolidate, Policy::Consolidate]),
            (true, true, [Policy::Off, Policy::Observe, Policy::Observe, Policy::Observe, Policy::Observe]),
        ] {
            let found = all.map(|policy| beside(policy, Steered { by_sched_ext, never_halts }));
            assert_eq!(found, left, "{by_sched_ext} {never_halts}");
        }
    }
}
