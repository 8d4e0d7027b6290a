//! Whether the kernel holds real-time threads to a part of each CPU: what is left to everybody else if a ticker goes
//! wrong.

use gleaner_model::Nanos;
use std::fs;
use std::path::Path;

/// The kernel's own period, where it does not tell.
const USUAL_PERIOD_US: i64 = 1_000_000;

/// What real-time threads may take: so much in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtThrottling {
    /// `kernel.sched_rt_runtime_us`; negative: without limit.
    pub runtime_us: i64,
    /// `kernel.sched_rt_period_us`.
    pub period_us: i64,
}

impl RtThrottling {
    /// Reads it below `proc`, usually `/proc`. `None` where the file is missing: then there is nothing to turn off.
    pub fn read(proc: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(proc.join("sys/kernel").join(name)).ok()?.trim().parse().ok();
        let runtime_us = read("sched_rt_runtime_us")?;
        Some(Self { runtime_us, period_us: read("sched_rt_period_us").unwrap_or(USUAL_PERIOD_US) })
    }

    /// Whether it limits anything. Linux takes a runtime as long as the period for no limit, as it does a negative one
    /// (`sched_rt_runtime_exceeded` in kernel/sched/rt.c).
    pub fn is_on(self) -> bool {
        (0..self.period_us).contains(&self.runtime_us)
    }

    /// How much of each period is theirs; `None`: all of it.
    pub fn runtime(self) -> Option<Nanos> {
        let limited = Some(self.runtime_us).filter(|_| self.is_on());
        limited.and_then(|us| u64::try_from(us).ok()).map(Nanos::from_micros)
    }

    /// The command that turns it on: the kernel's own share of this period, for it takes no runtime above the period.
    pub fn turn_on(self) -> String {
        format!("sysctl kernel.sched_rt_runtime_us={}", self.period_us / 100 * 95)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_runtime_and_one_as_long_as_the_period_are_no_limit() {
        let us = Nanos::from_micros;
        for (runtime_us, period_us, runtime, advice) in [
            (950_000, 1_000_000, Some(us(950_000)), 950_000),
            (999_999, 1_000_000, Some(us(999_999)), 950_000),
            (1_000_000, 1_000_000, None, 950_000),
            (1_000_001, 1_000_000, None, 950_000),
            (100_000, 100_000, None, 95_000),
            (-1, 1_000_000, None, 950_000),
            // No time at all is a limit.
            (0, 1_000_000, Some(Nanos::ZERO), 950_000),
        ] {
            let found = RtThrottling { runtime_us, period_us };
            assert_eq!((found.is_on(), found.runtime()), (runtime.is_some(), runtime), "{found:?}");
            assert!(found.turn_on().ends_with(&format!("={advice}")), "{}", found.turn_on());
        }
    }

    #[test]
    fn it_is_read_where_the_kernel_tells_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RtThrottling::read(dir.path()), None);
        fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        fs::write(dir.path().join("sys/kernel/sched_rt_runtime_us"), "-1\n").unwrap();
        assert_eq!(RtThrottling::read(dir.path()), Some(RtThrottling { runtime_us: -1, period_us: USUAL_PERIOD_US }));
        fs::write(dir.path().join("sys/kernel/sched_rt_period_us"), "500000\n").unwrap();
        assert_eq!(RtThrottling::read(dir.path()), Some(RtThrottling { runtime_us: -1, period_us: 500_000 }));
    }
}
