//! The ways to keep an idle vCPU awake.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who keeps an idle vCPU from halting. In the order in which they are chosen: exact time-outs first, the kernel's own
/// before ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetainMeans {
    /// The haltpoll governor, with a limit that does not adapt. Its parameters are the whole machine's.
    Haltpoll,
    /// A BPF program at the head of the idle loop polls (`fentry/tick_nohz_idle_enter`). Any cpuidle driver, or none.
    IdlePoll,
    /// A PM QoS latency of zero makes the cpuidle governor choose its POLL state on that vCPU.
    PmQos,
    /// A thread of the lowest scheduling class that calls sched_yield (the paper, section 6). Needs no privilege.
    Yielding,
}

impl RetainMeans {
    /// All of them, in that order.
    pub const ALL: [Self; 4] = [Self::Haltpoll, Self::IdlePoll, Self::PmQos, Self::Yielding];

    /// The word that stands for it on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::IdlePoll => "idle-poll",
            Self::Haltpoll => "haltpoll",
            Self::PmQos => "pm-qos",
            Self::Yielding => "yielding",
        }
    }

    /// Whether the idle task itself polls: a wake-up then costs no interrupt, and no thread has to be displaced.
    pub fn polls_in_idle_task(self) -> bool {
        self != Self::Yielding
    }

    /// Whether it is a value in a file of the kernel's, which holds whatever becomes of the process that set it.
    pub fn is_set_in_files(self) -> bool {
        matches!(self, Self::Haltpoll | Self::PmQos)
    }

    /// Whether it can be had on one vCPU and not on another.
    pub fn is_per_vcpu(self) -> bool {
        self != Self::Haltpoll
    }
}

impl fmt::Display for RetainMeans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no means.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no way to keep a vCPU awake: write idle-poll, haltpoll, pm-qos or yielding")]
pub struct ParseRetainMeansError(String);

impl FromStr for RetainMeans {
    type Err = ParseRetainMeansError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|means| means.name() == word);
        found.ok_or_else(|| ParseRetainMeansError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_means_is_read_as_it_is_written() {
        for means in RetainMeans::ALL {
            assert_eq!(means.to_string().parse(), Ok(means));
        }
        let refused = "spin".parse::<RetainMeans>().unwrap_err().to_string();
        assert!(RetainMeans::ALL.iter().all(|means| refused.contains(means.name())), "{refused}");
    }

    /// A new one does not compile here; `crates/cli/tests/docs.rs` asks options and pages for all of them.
    #[test]
    fn all_are_all() {
        let after = |means| match means {
            RetainMeans::Haltpoll => Some(RetainMeans::IdlePoll),
            RetainMeans::IdlePoll => Some(RetainMeans::PmQos),
            RetainMeans::PmQos => Some(RetainMeans::Yielding),
            RetainMeans::Yielding => None,
        };
        let all: Vec<RetainMeans> = std::iter::successors(Some(RetainMeans::Haltpoll), |means| after(*means)).collect();
        assert_eq!(all, RetainMeans::ALL);
    }
}
