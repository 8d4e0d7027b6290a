//! Others that steer the same vCPUs, and what Gleaner leaves to them.

use gleaner_model::{CpuSet, Policy};

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

/// The vCPUs for a group that may use `there`, where the kernel prefers some (`/sys/devices/system/cpu/preferred`: its
/// steal governor takes threads off all others). It goes on using what there is where it may use none of those.
pub fn followed(there: &CpuSet, preferred: Option<&CpuSet>) -> CpuSet {
    let narrower = preferred.map(|preferred| there.intersection(preferred)).filter(|both| !both.is_empty());
    narrower.unwrap_or_else(|| there.clone())
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

    #[test]
    fn ours_follows_where_the_kernels_choice_is_narrower() {
        for (there, preferred, expected) in [
            ("0-3", None, "0-3"),
            ("0-3", Some("0-3"), "0-3"),
            ("0-3", Some("0-1"), "0-1"),
            ("2-3", Some("0-2,7"), "2"),
            ("2-3", Some("0-1"), "2-3"),
            ("0-3", Some(""), "0-3"),
        ] {
            let preferred: Option<CpuSet> = preferred.map(|list| list.parse().unwrap());
            let found = followed(&there.parse().unwrap(), preferred.as_ref());
            assert_eq!(found.to_string(), expected, "{there} {preferred:?}");
        }
    }
}
