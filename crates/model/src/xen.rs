//! Xen's nouns: cpupools with their schedulers, and what each can be set to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A scheduler of Xen's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XenScheduler {
    /// `credit`: one time slice for a whole cpupool, in whole milliseconds.
    Credit,
    /// `credit2`: no time slice; a limit on how soon a vCPU may be preempted.
    Credit2,
    /// `rtds`: a budget in each period, for each vCPU, in microseconds.
    Rtds,
    /// One without a time to set (`null`, `arinc653`), or one that we do not know, by Xen's name for it.
    Other(String),
}

impl From<&str> for XenScheduler {
    fn from(name: &str) -> Self {
        match name {
            "credit" => Self::Credit,
            "credit2" => Self::Credit2,
            "rtds" => Self::Rtds,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for XenScheduler {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Credit => "credit",
            Self::Credit2 => "credit2",
            Self::Rtds => "rtds",
            Self::Other(name) => name,
        })
    }
}

/// The times that something of Xen's is set to, and what that something is. Units are Xen's own, for it takes no
/// others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheduler", rename_all = "kebab-case", deny_unknown_fields)]
pub enum XenSetting {
    /// A cpupool under credit.
    Credit {
        /// The cpupool.
        pool: String,
        /// How long a vCPU may run while others wait: 1 to 1000.
        slice_ms: u32,
        /// How long it runs at least before a waking one may take its place: 100 to 500,000 and at most the slice; 0:
        /// no limit.
        ratelimit_us: u32,
    },
    /// A cpupool under credit2.
    Credit2 {
        /// The cpupool.
        pool: String,
        /// As credit's, without a slice above it.
        ratelimit_us: u32,
    },
    /// A vCPU under RTDS.
    Rtds {
        /// Its domain's number.
        domain: u32,
        /// The vCPU as its domain numbers it.
        vcpu: u32,
        /// How often it gets its budget: 10 at least.
        period_us: u32,
        /// How long it may run in each period: 10 at least, the period at most.
        budget_us: u32,
        /// Whether it may also have what nobody else's budget claims.
        extratime: bool,
    },
}

impl XenSetting {
    /// What is set, without to what.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Credit { pool, .. } | Self::Credit2 { pool, .. } => format!("cpupool {pool}"),
            Self::Rtds { domain, vcpu, .. } => format!("vCPU {vcpu} of domain {domain}"),
        }
    }
}

/// `slice 1 ms, ratelimit 500 us`.
impl fmt::Display for XenSetting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Credit { slice_ms, ratelimit_us, .. } => {
                write!(f, "slice {slice_ms} ms, ratelimit {ratelimit_us} us")
            }
            Self::Credit2 { ratelimit_us, .. } => write!(f, "ratelimit {ratelimit_us} us"),
            Self::Rtds { period_us, budget_us, extratime, .. } => {
                let extra = if *extratime { ", extra time" } else { "" };
                write!(f, "budget {budget_us} us in each period of {period_us} us{extra}")
            }
        }
    }
}

/// A cpupool: physical CPUs with a scheduler of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenPool {
    /// Its name; a Xen without pools of its user's has one, `Pool-0`.
    pub name: String,
    /// Who schedules there.
    pub scheduler: XenScheduler,
    /// How many physical CPUs it has.
    pub pcpus: u32,
    /// What it is set to: one entry under credit and credit2, one for each vCPU under RTDS, none otherwise.
    pub settings: Vec<XenSetting>,
}
