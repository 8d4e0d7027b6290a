//! CPU time and context switches of this process, from getrusage.

use gleaner_model::Nanos;
use std::ops::Sub;

/// What a process has used; a difference of two says what it used in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, over all threads.
    pub cpu_time: Nanos,
    /// A thread gave its CPU up, to wait.
    pub voluntary_switches: u64,
    /// A thread's CPU was taken.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Since this process began.
    pub fn now() -> Self {
        // SAFETY: a struct of integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the struct given; it cannot fail for RUSAGE_SELF.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let time = |t: libc::timeval| Nanos::from_secs(count(t.tv_sec)) + Nanos(count(t.tv_usec) * 1_000);
        Self {
            cpu_time: time(usage.ru_utime) + time(usage.ru_stime),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu_time: self.cpu_time - earlier.cpu_time,
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}
