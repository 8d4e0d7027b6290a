//! Options that several commands take.

use clap::{Args, ValueEnum};
use gleaner_model::Policy;
use std::ops::RangeInclusive;
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
///
/// # Errors
/// What is wrong, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_micros(1)..=Duration::from_secs(1))
}

/// A duration with a unit, within bounds.
///
/// # Errors
/// What is wrong, in words.
pub fn duration_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 20us, 500us, 1ms, 5s or 10m"))?;
    if allowed.contains(&parsed) {
        return Ok(parsed);
    }
    let [low, high] = [allowed.start(), allowed.end()].map(|end| humantime::format_duration(*end));
    Err(format!("must be within {low} and {high}"))
}

/// A duration with a unit, of any length.
///
/// # Errors
/// What is wrong, in words.
pub fn any_duration(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::ZERO..=Duration::MAX)
}

/// A size of 4 KiB to 1 GiB in bytes, with k, M or G for powers of 1024.
///
/// # Errors
/// What is wrong, in words.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "write a size in bytes, like 262144, 256k or 2M".to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (4096..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| "must be within 4k and 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_have_bounds() {
        assert_eq!(
            ["262144", "256k", "256K", "2M", "1G"].map(size),
            [1 << 18, 1 << 18, 1 << 18, 2 << 20, 1 << 30].map(Ok)
        );
        for bad in ["", "2MB", "0", "1k", "17G", "99999999999999999G", "-2M", "two"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_take_units_and_have_bounds() {
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        for bad in ["5", "2s", "0us", "soon"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("2s"), Err("must be within 1us and 1s".into()));
    }
}
