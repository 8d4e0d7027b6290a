//! Checks of single values: what is wrong with one, and where it stands.

use crate::format::Time;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;

/// Where, and what.
pub(crate) type Wrong = (Range<usize>, String);

pub(crate) fn identifier(name: &Spanned<String>) -> Result<String, Wrong> {
    let text = name.get_ref();
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=40).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('-') {
        return Ok(text.clone());
    }
    Err((name.span(), format!("name {text:?}: must be 1 to 40 lower-case letters, digits and '-', not '-' first")))
}

pub(crate) fn within<T: PartialOrd + Copy + std::fmt::Display>(
    key: &str,
    value: &Spanned<T>,
    allowed: RangeInclusive<T>,
) -> Result<T, Wrong> {
    let found = *value.get_ref();
    let what = || format!("{key} = {found}: must be within {} and {}", allowed.start(), allowed.end());
    allowed.contains(&found).then_some(found).ok_or_else(|| (value.span(), what()))
}

pub(crate) fn time(
    key: &str,
    value: Option<Spanned<Time>>,
    default: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<Duration, Wrong> {
    let Some(value) = value else { return Ok(default) };
    let found = value.get_ref().0;
    let words = humantime::format_duration;
    let what = || format!("{key}: must be within {} and {}", words(*allowed.start()), words(*allowed.end()));
    allowed.contains(&found).then_some(found).ok_or_else(|| (value.span(), what()))
}

/// One of a type's own words, as serde has them.
pub(crate) fn word_of<T: DeserializeOwned>(key: &str, value: &Spanned<String>) -> Result<T, Wrong> {
    let found = value.get_ref().as_str();
    T::deserialize(found.into_deserializer()).map_err(|error: ValueError| {
        // They come in backquotes, after the one that was found.
        let error = error.to_string();
        let words: Vec<String> = error.split('`').skip(3).step_by(2).map(|word| format!("{word:?}")).collect();
        (value.span(), format!("{key} = {found:?}: must be one of {}", words.join(", ")))
    })
}

pub(crate) fn word<T: Clone>(key: &str, value: &Spanned<String>, allowed: &[(&str, T)]) -> Result<T, Wrong> {
    let found = value.get_ref();
    if let Some((_, meaning)) = allowed.iter().find(|(word, _)| word == found) {
        return Ok(meaning.clone());
    }
    let words: Vec<String> = allowed.iter().map(|(word, _)| format!("{word:?}")).collect();
    Err((value.span(), format!("{key} = {found:?}: must be one of {}", words.join(", "))))
}
