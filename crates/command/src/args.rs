//! Options that several commands take.

use clap::{Args, ValueEnum};
use gleaner_model::Policy;
pub use gleaner_settings::duration_within;
use gleaner_settings::size_within;
use std::path::PathBuf;
use std::time::Duration;

/// `--json [FILE]`.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Write the result as JSON to FILE; without FILE, or to `-`, to stdout, with the human text on stderr
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// `--policy P`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// Run it, do nothing
    Off,
    /// Watch and say what is seen
    Observe,
    /// Bridge short idle periods
    Retain,
    /// Pack work onto fewer vCPUs
    Consolidate,
    /// Both, as the paper does
    Full,
}

impl From<PolicyArg> for Policy {
    fn from(arg: PolicyArg) -> Self {
        match arg {
            PolicyArg::Off => Self::Off,
            PolicyArg::Observe => Self::Observe,
            PolicyArg::Retain => Self::Retain,
            PolicyArg::Consolidate => Self::Consolidate,
            PolicyArg::Full => Self::Full,
        }
    }
}

/// A duration of 1 us to 1 s: a retention time-out, a slice.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_micros(1)..=Duration::from_secs(1))
}

/// A duration with a unit, of any length.
pub fn any_duration(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::ZERO..=Duration::MAX)
}

/// A size of 4 KiB to 1 GiB in bytes, with k, M or G for powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    size_within(text, "4k", "1G")
}

/// The size of a file that is recorded to.
pub fn file_size(text: &str) -> Result<u64, String> {
    size_within(text, "64k", "1G")
}
