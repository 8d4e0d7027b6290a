//! Settings that are one of a few words. Each enum is what clap shows, what serde reads, and what the reference lists.

use crate::table::{Value, read_text};
use clap::ValueEnum;
use gleaner_model::{Policy, RetainMeans, printable};
use serde::{Deserializer, Serializer};

/// Names that are less alike are no typing errors of each other (Jaro-Winkler: 0 nothing, 1 all).
const ALIKE: f64 = 0.85;

/// The one of `known` that was meant by `written`, where one is near enough.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |name: &&str| strsim::jaro_winkler(name, written);
    known.into_iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|name| alike(name) > ALIKE)
}

/// Says that something is none of `known`, with the nearest one that is.
pub fn unknown(what: &str, written: &str, known: &[&str]) -> String {
    let shown = printable(written.as_bytes());
    match nearest(written, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} {shown}: did you mean {nearest}?"),
        None => format!("unknown {what} {shown}: there are {}", known.join(", ")),
    }
}

/// The word for it.
pub fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What a word, or an earlier one, stands for.
pub fn from_word<T: ValueEnum>(what: &str, written: &str) -> Result<T, String> {
    let is_it = |value: &&T| value.to_possible_value().is_some_and(|value| value.matches(written, false));
    T::value_variants().iter().find(is_it).cloned().ok_or_else(|| {
        let words = words::<T>();
        unknown(what, written, &words.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

fn words<T: ValueEnum>() -> Vec<String> {
    T::value_variants().iter().map(word).collect()
}

macro_rules! words {
    ($($type:ty, $what:literal, $example:literal;)+) => {$(
        impl Value for $type {
            const EXAMPLE: &'static str = $example;

            fn allowed() -> String {
                words::<Self>().join(", ")
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read_text(from, |text| from_word($what, text))
            }

            fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
                into.serialize_str(&word(self))
            }
        }
    )+};
}

words! {
    Profile, "profile", "\"latency\"";
    RetainChoice, "means", "\"auto\"";
    ObserverChoice, "observer", "\"auto\"";
}

/// How a group is managed, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// 50us where the idle loop polls, for 5 % of one CPU: for shared and burstable machines
    Frugal,
    /// 200us, for one CPU: for most programs
    #[default]
    Balanced,
    /// 5ms, without a limit: for machines of your own, and servers that must answer at once
    Latency,
    /// Nothing is kept awake: it is only watched
    ObserveOnly,
}

impl Profile {
    /// What may be done where nobody says.
    pub fn policy(self) -> Policy {
        if self == Self::ObserveOnly { Policy::Observe } else { Policy::Retain }
    }

    /// As the policy has it.
    pub fn of_policy(self) -> gleaner_model::Profile {
        match self {
            Self::Frugal => gleaner_model::Profile::Frugal,
            Self::Balanced | Self::ObserveOnly => gleaner_model::Profile::Balanced,
            Self::Latency => gleaner_model::Profile::Latency,
        }
    }
}

/// What keeps idle vCPUs awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RetainChoice {
    /// The first of these that this machine has
    #[default]
    Auto,
    /// A BPF program of Gleaner's polls in the idle loop
    IdlePoll,
    /// The kernel's haltpoll governor polls, on the whole machine
    Haltpoll,
    /// The kernel's cpuidle governor polls, by a PM QoS limit on each vCPU
    PmQos,
    /// A thread of the lowest class on each vCPU; needs no privilege
    Yielding,
    /// Nothing: idle vCPUs halt as without Gleaner
    None,
}

impl RetainChoice {
    /// The means asked for by name.
    pub fn means(self) -> Option<RetainMeans> {
        match self {
            Self::Auto | Self::None => None,
            Self::IdlePoll => Some(RetainMeans::IdlePoll),
            Self::Haltpoll => Some(RetainMeans::Haltpoll),
            Self::PmQos => Some(RetainMeans::PmQos),
            Self::Yielding => Some(RetainMeans::Yielding),
        }
    }
}

/// Who sees what groups do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ObserverChoice {
    /// BPF where it loads, else /proc
    #[default]
    Auto,
    /// BPF, or nothing is managed
    Bpf,
    /// /proc files only, no privilege
    Procfs,
}

impl Value for Policy {
    const EXAMPLE: &'static str = "\"retain\"";

    fn allowed() -> String {
        // What runs already is not moved, unless whoever started it asks for that.
        "off, observe, retain".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let named = |text: &str| Self::ALL.into_iter().find(|policy| policy.name() == text);
        read_text(from, |text| named(text).ok_or_else(|| unknown("policy", text, &["off", "observe", "retain"])))
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_answered_with_the_nearest_or_with_all() {
        assert_eq!(Profile::allowed(), "frugal, balanced, latency, observe-only");
        let said = from_word::<Profile>("profile", "latencie").unwrap_err();
        assert_eq!(said, "unknown profile latencie: did you mean latency?");
        assert!(from_word::<Profile>("profile", "x").unwrap_err().ends_with(&Profile::allowed()));
    }

    #[test]
    fn each_means_has_its_own_word() {
        for means in RetainMeans::ALL {
            assert_eq!(from_word::<RetainChoice>("means", means.name()).unwrap().means(), Some(means));
        }
    }
}
