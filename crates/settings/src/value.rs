//! Settings that have a range: times, shares of a CPU, sizes, numbers. Each range and its words exist once, here.

use crate::table::{Value, read_plain, read_text};
use gleaner_model::printable;
use serde::de::Error;
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A time with a unit, within bounds.
pub fn duration_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let [low, high] = [allowed.start(), allowed.end()].map(|end| humantime::format_duration(*end).to_string());
    time(text, allowed, &low, &high)
}

fn time(text: &str, allowed: RangeInclusive<Duration>, low: &str, high: &str) -> Result<Duration, String> {
    let found = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 20us, 500us, 1ms, 5s or 10m"))?;
    allowed.contains(&found).then_some(found).ok_or_else(|| format!("write {low} to {high}"))
}

/// A share, in per cent, within bounds.
pub fn percent_within(text: &str, low: &str, high: &str) -> Result<f64, String> {
    let range = percent(low).zip(percent(high)).map(|(low, high)| low..=high);
    // `contains` is false for NaN.
    let found = percent(text).filter(|found| range.is_some_and(|range| range.contains(found)));
    found.ok_or_else(|| format!("write {low} to {high}"))
}

fn percent(text: &str) -> Option<f64> {
    text.strip_suffix('%').unwrap_or(text).trim().parse().ok()
}

/// Bytes, with k, M or G for powers of 1024, within bounds that are written so.
pub fn size_within(text: &str, low: &str, high: &str) -> Result<u64, String> {
    let range = bytes(low).zip(bytes(high)).map(|(low, high)| low..=high);
    let found = bytes(text).filter(|found| range.is_some_and(|range| range.contains(found)));
    found.ok_or_else(|| format!("write {low} to {high}, in bytes, such as 2097152, 2048k or 2M"))
}

fn bytes(text: &str) -> Option<u64> {
    let units = [('k', 10), ('K', 10), ('M', 20), ('G', 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift))
}

/// `told` with what was written before it.
fn of(text: &str, told: &str) -> String {
    format!("{}: {told}", printable(text.as_bytes()))
}

/// Types that are written as text: how they are parsed and shown, and the range.
macro_rules! texts {
    ($(
        $(#[$doc:meta])*
        $name:ident($inner:ty): $low:literal to $high:literal, $example:literal, $parse:expr, $show:expr;
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text, $low, $high).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&$show(&self.0))
            }
        }

        impl Value for $name {
            const EXAMPLE: &'static str = $example;

            fn allowed() -> String {
                concat!($low, " to ", $high).to_owned()
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read_text(from, |text| text.parse().map_err(|told: String| of(text, &told)))
            }

            fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
                into.collect_str(self)
            }
        }
    )+};
}

texts! {
    /// How long an idle vCPU is kept awake.
    RetainFor(Duration): "1us" to "1s", "\"200us\"", time_between, shown;
    /// A window of the host agent.
    Interval(Duration): "100ms" to "60s", "\"1s\"", time_between, shown;
    /// What idle vCPUs may poll, in per cent of one CPU; several CPUs may poll.
    Budget(f64): "0%" to "100000%", "\"20%\"", percent_within, in_percent;
    /// What observing may take, in per cent of one CPU.
    Overhead(f64): "0.1%" to "20%", "\"0.5%\"", percent_within, in_percent;
    /// What the flight recorder keeps, in bytes.
    CaptureSize(u64): "1M" to "16G", "\"64M\"", size_within, ToString::to_string;
}

fn time_between(text: &str, low: &str, high: &str) -> Result<Duration, String> {
    let end = |word| humantime::parse_duration(word).unwrap_or_default();
    time(text, end(low)..=end(high), low, high)
}

fn shown(time: &Duration) -> String {
    humantime::format_duration(*time).to_string().replace(' ', "")
}

fn in_percent(number: impl fmt::Display) -> String {
    format!("{number}%")
}

/// A path that means the same to everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsolutePath(pub PathBuf);

impl AbsolutePath {
    pub fn new(path: &Path) -> Result<Self, String> {
        let wrong = || of(&path.to_string_lossy(), "write a path from / on");
        path.is_absolute().then(|| Self(path.to_owned())).ok_or_else(wrong)
    }
}

impl Value for AbsolutePath {
    const EXAMPLE: &'static str = "\"/var/lib/gleaner\"";

    fn allowed() -> String {
        "a path".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, |text| Self::new(Path::new(text)))
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(&self.0.display())
    }
}

impl Budget {
    /// As a share of one CPU.
    pub fn ratio(&self) -> f64 {
        self.0 / 100.0
    }
}

impl Overhead {
    /// As a share of one CPU.
    pub fn ratio(&self) -> f64 {
        self.0 / 100.0
    }
}

/// Groups managed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupsMax(pub usize);

impl Value for GroupsMax {
    const EXAMPLE: &'static str = "100";

    fn allowed() -> String {
        "1 to 1000".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number: i64 = read_plain(from)?;
        match usize::try_from(number) {
            Ok(number @ 1..=1000) => Ok(Self(number)),
            _ => Err(D::Error::custom(format!("groups_max = {number}: write 1 to 1000"))),
        }
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(into)
    }
}

/// VMs by name or process id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmNames(pub Vec<String>);

impl Value for VmNames {
    const EXAMPLE: &'static str = "[\"web\", \"db\"]";

    fn allowed() -> String {
        "a list of names".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names: Vec<String> = read_plain(from)?;
        if names.iter().any(String::is_empty) {
            return Err(D::Error::custom("vm: write each VM's name or process id"));
        }
        Ok(Self(names))
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_units_and_have_bounds() {
        assert_eq!("500us".parse(), Ok(RetainFor(Duration::from_micros(500))));
        for bad in ["5", "0us", "soon", "-1ms"] {
            assert!(bad.parse::<RetainFor>().is_err(), "{bad}");
        }
        assert_eq!("2s".parse::<RetainFor>(), Err("write 1us to 1s".into()));
        assert_eq!("1us".parse::<Interval>(), Err("write 100ms to 60s".into()));
        for shown in ["200us", "1s", "1ms500us"] {
            assert_eq!(shown.parse::<RetainFor>().map(|time| time.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn shares_are_percentages_within_bounds() {
        assert_eq!(["0.5", "5%"].map(str::parse), [Ok(Overhead(0.5)), Ok(Overhead(5.0))]);
        for bad in ["0", "50", "much", "-1", "NaN", "inf"] {
            assert_eq!(bad.parse::<Overhead>(), Err("write 0.1% to 20%".to_owned()), "{bad}");
        }
        let budget: Budget = "20%".parse().unwrap();
        assert!((budget.ratio() - 0.2).abs() < 1e-12);
        assert_eq!(budget.to_string(), "20%");
    }

    #[test]
    fn sizes_take_units_and_have_bounds() {
        assert_eq!(
            ["262144", "256k", "256K", "2M", "1G"].map(|text| size_within(text, "4k", "1G")),
            [1 << 18, 1 << 18, 1 << 18, 2 << 20, 1 << 30].map(Ok)
        );
        for bad in ["", "2MB", "0", "1k", "17G", "99999999999999999G", "-2M", "two"] {
            assert!(size_within(bad, "4k", "1G").unwrap_err().starts_with("write 4k to 1G"), "{bad}");
        }
    }
}
