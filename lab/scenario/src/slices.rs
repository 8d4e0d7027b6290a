//! How long vCPUs run at a time: the host's slices that a scenario compares.

use gleaner_model::Nanos;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the kernel takes as a thread's slice (kernel/sched/syscalls.c).
const SLICES: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_millis(100);

/// Who decides how long vCPUs run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostSlice {
    /// The host's kernel, as it is.
    #[default]
    Kernel,
    /// `gleaner host run`: this slice for all, enforced.
    Fixed(Duration),
    /// `gleaner host run`.
    Adaptive,
}

impl HostSlice {
    /// `kernel`, `adaptive`, or a duration.
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        match word {
            "kernel" => return Ok(Self::Kernel),
            "adaptive" => return Ok(Self::Adaptive),
            _ => {}
        }
        let found = humantime::parse_duration(word).ok().filter(|slice| SLICES.contains(slice));
        found.map(Self::Fixed).ok_or_else(|| format!("slice {word:?}; must be kernel, adaptive, or 100us to 100ms"))
    }
}

impl fmt::Display for HostSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("kernel"),
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(slice) => write!(f, "{}", humantime::format_duration(*slice)),
        }
    }
}

impl Serialize for HostSlice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl HostSlice {
    /// The slice for all, if there is one.
    pub fn fixed(self) -> Option<Nanos> {
        match self {
            Self::Fixed(slice) => Some(Nanos::from(slice)),
            Self::Kernel | Self::Adaptive => None,
        }
    }
}
