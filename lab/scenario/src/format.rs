//! Values as the format writes and reads them: durations with units, CPU lists as strings, workloads as a word or a
//! table.

use crate::{TimeoutFrom, Workload};
use gleaner_model::CpuSet;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::fmt::Display;
use std::time::Duration;

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub fn as_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

// serde calls these with a reference to the field.
#[expect(clippy::ref_option)]
pub fn as_optional_duration<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_duration(duration, serializer),
        None => serializer.serialize_none(),
    }
}

#[expect(clippy::ref_option)]
pub fn as_option<S: Serializer, T: Display>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

pub fn as_lists<S: Serializer>(sets: &[CpuSet], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sets.iter().map(ToString::to_string))
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_str("nothing"),
            Self::Program(program) => program.serialize(serializer),
            Self::Command(command) => command.serialize(serializer),
        }
    }
}

impl Serialize for TimeoutFrom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Boot => serializer.serialize_str("boot"),
            Self::Run => serializer.serialize_str("run"),
            Self::Fixed(duration) => as_duration(duration, serializer),
        }
    }
}

/// A duration with its unit.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong =
            |error| de::Error::custom(format!("{text:?} is no duration ({error}); write it like \"20us\", \"1s\""));
        humantime::parse_duration(&text).map(Self).map_err(wrong)
    }
}

/// `boot`, `run`, or a duration.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutWord(pub TimeoutFrom);

impl<'de> Deserialize<'de> for TimeoutWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let allowed = Duration::from_micros(1)..=Duration::from_secs(1);
        match (text.as_str(), humantime::parse_duration(&text)) {
            ("boot", _) => Ok(Self(TimeoutFrom::Boot)),
            ("run", _) => Ok(Self(TimeoutFrom::Run)),
            (_, Ok(duration)) if allowed.contains(&duration) => Ok(Self(TimeoutFrom::Fixed(duration))),
            _ => Err(de::Error::custom(format!(
                "timeout {text:?}: must be \"boot\" (measured after boot), \"run\" (the profile's own), \
                 or a duration within 1us and 1s"
            ))),
        }
    }
}

/// A list of host CPUs.
#[derive(Clone, Debug)]
pub struct CpuList(pub CpuSet);

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<CpuSet>() {
            Ok(cpus) if cpus.is_empty() => Err(de::Error::custom("an empty list of CPUs; write it like \"0-1,3\"")),
            Ok(cpus) => Ok(Self(cpus)),
            Err(error) => Err(de::Error::custom(format!("{error}; write it like \"0-1,3\""))),
        }
    }
}

/// Something that is either a word or a table.
#[derive(Clone, Debug)]
pub enum WordOr<T> {
    Word(String),
    Other(T),
}

/// What a value other than a word may be, and how it is read.
pub trait Other: Sized {
    const EXPECTED: &'static str;

    fn from_map<'de, M: de::MapAccess<'de>>(_: M) -> Result<Self, M::Error> {
        Err(de::Error::custom(format!("a table; expected {}", Self::EXPECTED)))
    }

    fn from_seq<'de, A: de::SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(de::Error::custom(format!("a list; expected {}", Self::EXPECTED)))
    }
}

impl<'de, T: Other> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

struct Visitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Other> de::Visitor<'de> for Visitor<T> {
    type Value = WordOr<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
        Ok(WordOr::Word(word.to_owned()))
    }

    fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        T::from_map(map).map(WordOr::Other)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::from_seq(seq).map(WordOr::Other)
    }
}
