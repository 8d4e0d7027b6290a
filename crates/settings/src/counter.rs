//! A counter of what a program gets done, that it or its user keeps in a file.

use crate::table::{Value, read_text};
use crate::value::AbsolutePath;
use gleaner_model::printable;
use regex_lite::{Regex, RegexBuilder};
use serde::{Deserializer, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest pattern: it is looked for in every window.
const LONGEST_PATTERN: usize = 200;
/// The most bytes that it may compile to: `(.{1000}){1000}` is short, and takes for ever.
const LARGEST_PATTERN: usize = 64 * 1024;

/// Which number grows as the program gets on: `FILE`, its first one, or `FILE|REGEX`, that in what the pattern's first
/// group matches, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    file: PathBuf,
    pattern: Option<String>,
}

impl Counter {
    /// Where it is read.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What is looked for in it.
    pub fn pattern(&self) -> Option<Regex> {
        compiled(self.pattern.as_deref()?).ok()
    }
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (file, pattern) = text.split_once('|').map_or((text, None), |(file, pattern)| (file, Some(pattern)));
        if file.is_empty() {
            return Err("name a file: FILE, or FILE|REGEX".to_owned());
        }
        if let Some(pattern) = pattern {
            if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
                return Err(format!("a pattern has 1 to {LONGEST_PATTERN} bytes"));
            }
            compiled(pattern).map_err(|error| format!("{pattern}: {error}"))?;
        }
        Ok(Self { file: file.into(), pattern: pattern.map(str::to_owned) })
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.pattern.iter().try_for_each(|pattern| write!(f, "|{pattern}"))
    }
}

impl Value for Counter {
    const EXAMPLE: &'static str = "\"/run/redis/progress\"";

    fn allowed() -> String {
        "a path, or PATH|REGEX: the number where that matches".to_owned()
    }

    /// Whoever reads it is in another folder.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, |text| {
            let found: Self = text.parse().map_err(|why: String| printable(why.as_bytes()))?;
            AbsolutePath::new(&found.file).map(|_| found)
        })
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        into.collect_str(&Self { file, pattern: self.pattern.clone() })
    }
}

fn compiled(pattern: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_counter_is_refused() {
        let long = format!("f|{}", "x".repeat(LONGEST_PATTERN + 1));
        for (text, why) in [
            ("", "FILE|REGEX"),
            ("|x", "FILE|REGEX"),
            ("f|", "1 to 200 bytes"),
            ("f|(", "("),
            ("f|(.{1000}){1000}", "{1000}: "),
            (&long, "200"),
        ] {
            let said = text.parse::<Counter>().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let counter: Counter = "f|none|input:(.*)".parse().unwrap();
        assert_eq!(counter.to_string().parse::<Counter>().unwrap(), counter);
    }
}
