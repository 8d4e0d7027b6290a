//! Who wakes whom: what is counted of it in a window, and what that looks like.

use crate::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// Wake-ups of a group's threads in a window, by who did it. What a timer wakes is the interrupt's, and what any
/// interrupt wakes on an idle vCPU. What a device's wakes on a busy one counts as the interrupted thread's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakes {
    /// By a thread of the group.
    pub own: u64,
    /// Of these, by one that had last been woken by whom it now wakes: to and fro.
    pub returned: u64,
    /// Stints on a vCPU in which a thread woke others of its group.
    pub bursts: u64,
    /// Of `own`, in stints that woke three or more.
    pub wide: u64,
    /// By interrupts: of devices, of timers.
    pub interrupts: u64,
    /// By threads of others.
    pub outside: u64,
    /// Threads of the group that were woken at all, by whomever.
    pub woken_threads: u64,
}

impl Wakes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.own + self.interrupts + self.outside
    }
}

impl AddAssign for Wakes {
    /// Counts add up; of threads the most in one window stays.
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.returned += other.returned;
        self.bursts += other.bursts;
        self.wide += other.wide;
        self.interrupts += other.interrupts;
        self.outside += other.outside;
        self.woken_threads = self.woken_threads.max(other.woken_threads);
    }
}

/// What who wakes whom looks like. [`fmt::Display`] says it in plain words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum WakePattern {
    /// One thread wakes another, and waits: packing suits them.
    HandOffs {
        /// Threads that are woken.
        threads: u64,
        /// Wake-ups by one another, per second.
        per_s: f64,
        /// Whether most go to whom the waker was woken by.
        to_and_fro: bool,
    },
    /// One thread wakes several at once: a barrier, a broadcast, a fork. Packing makes them wait for one another.
    Broadcasts {
        /// How many one wakes, on average.
        woken: f64,
        /// How often, per second.
        per_s: f64,
    },
    /// Others wake them: they serve requests, or wait for replies.
    RequestReply {
        /// Wake-ups by others, per second.
        per_s: f64,
    },
    /// They hardly wait for one another.
    Independent {
        /// All wake-ups, per second.
        per_s: f64,
        /// Of these, by interrupts, 0 to 1.
        by_interrupts: f64,
    },
}

impl WakePattern {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::HandOffs { .. } => "hand-offs",
            Self::Broadcasts { .. } => "broadcasts",
            Self::RequestReply { .. } => "request-reply",
            Self::Independent { .. } => "independent",
        }
    }
}

/// `9,800`.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = Nanos::from_f64(self.0.round()).0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for WakePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match *self {
            Self::HandOffs { threads: 2, per_s, .. } => {
                write!(f, "2 threads wake each other {} times a second", Rate(per_s))
            }
            Self::HandOffs { threads, per_s, to_and_fro } => {
                let how = if to_and_fro { "to and fro, " } else { "" };
                // A group that has just begun was not counted yet.
                let count = if threads < 2 { String::new() } else { format!("{threads} ") };
                write!(f, "{count}threads wake one another, {how}{} times a second", Rate(per_s))
            }
            Self::Broadcasts { woken, per_s } => {
                write!(f, "a thread wakes {woken:.1} others at once, {} times a second", Rate(per_s))
            }
            Self::RequestReply { per_s } => {
                write!(f, "other programs wake its threads {} times a second", Rate(per_s))
            }
            Self::Independent { per_s, by_interrupts } if by_interrupts >= 0.5 => {
                let percent = by_interrupts * 100.0;
                write!(f, "devices and timers end {percent:.0} % of its threads' waits, {} waits a second", Rate(per_s))
            }
            Self::Independent { per_s, .. } => {
                write!(f, "its threads hardly wait for one another, {} waits a second", Rate(per_s))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_told_in_a_line() {
        let hand_offs = |threads, to_and_fro| WakePattern::HandOffs { threads, per_s: 9_800.4, to_and_fro };
        for (pattern, text) in [
            (hand_offs(2, true), "hand-offs: 2 threads wake each other 9,800 times a second"),
            (hand_offs(0, false), "hand-offs: threads wake one another, 9,800 times a second"),
            (hand_offs(5, false), "hand-offs: 5 threads wake one another, 9,800 times a second"),
            (hand_offs(5, true), "hand-offs: 5 threads wake one another, to and fro, 9,800 times a second"),
            (
                WakePattern::Broadcasts { woken: 3.04, per_s: 1_234_567.0 },
                "broadcasts: a thread wakes 3.0 others at once, 1,234,567 times a second",
            ),
            (
                WakePattern::RequestReply { per_s: 100.0 },
                "request-reply: other programs wake its threads 100 times a second",
            ),
            (
                WakePattern::Independent { per_s: 7.6, by_interrupts: 0.1 },
                "independent: its threads hardly wait for one another, 8 waits a second",
            ),
            (
                WakePattern::Independent { per_s: 0.0, by_interrupts: 0.9 },
                "independent: devices and timers end 90 % of its threads' waits, 0 waits a second",
            ),
        ] {
            assert_eq!(pattern.to_string(), text);
        }
    }
}
