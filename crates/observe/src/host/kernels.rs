//! Known faults of slices, by kernel version.
//!
//! The ranges are those of Linus Torvalds' releases; distributions carry fixes back and features too, so what matters
//! is tried as well (slices are set on a thread of our own). The sources are named beside each.

use std::fmt;

/// A kernel's version, as far as it orders releases and tells which fixes of its stable series it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// `6` of 6.12.
    pub major: u32,
    /// `12` of 6.12.
    pub minor: u32,
    /// `38` of 6.12.38; 0 where the name does not tell (Ubuntu's 6.14.0-27, Debian's 6.1.0-40).
    pub patch: u32,
}

impl KernelVersion {
    /// From `uname -r`: `6.12.38+deb13-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let digits =
            |part: &str| part.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default().to_owned();
        let mut parts = release.splitn(3, '.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?);
        // 6.12-5-amd64 has no third number: the five is the distribution's.
        let patch = parts.next().and_then(|patch| digits(patch).parse().ok()).unwrap_or(0);
        Some(Self { major, minor: digits(minor).parse().ok()?, patch })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// Something about slices that kernels of a range do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceIssue {
    /// A word for it.
    pub id: &'static str,
    /// First release that has it; `None`: all old ones.
    pub since: Option<KernelVersion>,
    /// First release that has it no more; `None`: not yet.
    pub until: Option<KernelVersion>,
    /// The first release of each stable series that has the fix as well.
    pub fixed_in: &'static [KernelVersion],
    /// What it does, and what helps.
    pub text: &'static str,
}

impl SliceIssue {
    /// Whether a kernel has it.
    pub fn applies_to(&self, version: KernelVersion) -> bool {
        let in_series = |fixed: &KernelVersion| (fixed.major, fixed.minor) == (version.major, version.minor);
        self.since.is_none_or(|since| version >= since)
            && self.until.is_none_or(|until| version < until)
            && !self.fixed_in.iter().any(|fixed| in_series(fixed) && version >= *fixed)
    }
}

const fn v(major: u32, minor: u32) -> KernelVersion {
    KernelVersion { major, minor, patch: 0 }
}

/// All that are known.
const ISSUES: [SliceIssue; 6] = [
    // 857b158dc5e8 "sched/eevdf: Use sched_attr::sched_runtime to set request/slice suggestion"
    SliceIssue {
        id: "no-slice-per-thread",
        since: None,
        until: Some(v(6, 12)),
        fixed_in: &[],
        text: "sched_setattr sets no slice of a normal thread; only a ticker shortens slices",
    },
    // CFS: EEVDF replaced it in 6.6.
    SliceIssue {
        id: "cfs",
        since: None,
        until: Some(v(6, 6)),
        fixed_in: &[],
        text: "slices follow from the scheduling latency shared out among those that run (CFS)",
    },
    // 052c3d87c82e "sched/fair: Limit run to parity to the min slice of enqueued entities", V. Guittot, July 2025
    SliceIssue {
        id: "run-to-parity-own-slice",
        since: Some(v(6, 6)),
        until: Some(v(6, 17)),
        fixed_in: &[],
        text: "only the running thread's own slice counts against a waiting one: set the slice of every vCPU that competes",
    },
    // As seen in the kernels of the test bed: group entities follow their threads' slices only since 6.15.
    SliceIssue {
        id: "stale-group-slices",
        since: Some(v(6, 12)),
        until: Some(v(6, 15)),
        fixed_in: &[],
        text: "the slices of threads in cgroups reach their groups late: the ticker alone decides between VMs in different groups",
    },
    // bbce3de72be5 "sched/eevdf: Fix se->slice being set to U64_MAX and resulting crash"; in stable 6.12.29 as well
    SliceIssue {
        id: "group-slice-overflow",
        since: Some(v(6, 12)),
        until: Some(v(6, 15)),
        fixed_in: &[KernelVersion { major: 6, minor: 12, patch: 29 }],
        text: "a group's slice may overflow and the kernel crash, whether somebody sets slices or not; fixed in 6.12.29 and later",
    },
    // 7.1 has "HRTICK, true" where timers are rearmed lazily (CONFIG_HRTIMER_REARM_DEFERRED).
    SliceIssue {
        id: "tick-bound",
        since: None,
        until: Some(v(7, 1)),
        fixed_in: &[],
        text: "HRTICK is off unless somebody turned it on: slices end at the tick, so a ticker is needed below one tick",
    },
];

pub fn slice_issues(version: KernelVersion) -> Vec<SliceIssue> {
    ISSUES.into_iter().filter(|issue| issue.applies_to(version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_in_order() {
        let parsed = |release| KernelVersion::parse(release).map(|version| version.to_string());
        assert_eq!(parsed("6.12.38+deb13-amd64").as_deref(), Some("6.12.38"));
        assert_eq!(parsed("6.18-rc1").as_deref(), Some("6.18"));
        assert_eq!(parsed("6.12-5-amd64").as_deref(), Some("6.12"));
        assert_eq!(parsed("6.14.0-27-generic").as_deref(), Some("6.14"));
        assert_eq!(parsed("5.10.240").as_deref(), Some("5.10.240"));
        assert_eq!(parsed("7.0").as_deref(), Some("7.0"));
        assert_eq!(parsed("linux"), None);
        assert!(KernelVersion::parse("6.9").unwrap() < KernelVersion::parse("6.12").unwrap());
    }

    #[test]
    fn each_range_begins_and_ends_where_it_says() {
        for (release, ids) in [
            ("5.10", &["no-slice-per-thread", "cfs", "tick-bound"][..]),
            ("6.6", &["no-slice-per-thread", "run-to-parity-own-slice", "tick-bound"]),
            ("6.12", &["run-to-parity-own-slice", "stale-group-slices", "group-slice-overflow", "tick-bound"]),
            ("6.12.28", &["run-to-parity-own-slice", "stale-group-slices", "group-slice-overflow", "tick-bound"]),
            ("6.12.29", &["run-to-parity-own-slice", "stale-group-slices", "tick-bound"]),
            // Debian 13's.
            ("6.12.38+deb13-amd64", &["run-to-parity-own-slice", "stale-group-slices", "tick-bound"]),
            // The fix of one series says nothing of another's.
            ("6.14.40", &["run-to-parity-own-slice", "stale-group-slices", "group-slice-overflow", "tick-bound"]),
            ("6.15", &["run-to-parity-own-slice", "tick-bound"]),
            ("6.17", &["tick-bound"]),
            ("7.1", &[]),
        ] {
            let found: Vec<&str> =
                slice_issues(KernelVersion::parse(release).unwrap()).iter().map(|issue| issue.id).collect();
            assert_eq!(found, ids, "{release}");
        }
    }
}
