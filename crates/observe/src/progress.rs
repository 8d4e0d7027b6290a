//! What the program got done, by a counter that it or its user keeps in a file.

use crate::ObserveError;
use regex_lite::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The number is looked for up to here.
const LONGEST: u64 = 16 * 1024;
/// The longest pattern: it is looked for in every window.
const LONGEST_PATTERN: usize = 200;
/// The most bytes that it may compile to: `(.{1000}){1000}` is short, and takes for ever.
const LARGEST_PATTERN: usize = 64 * 1024;
/// How often a file that is empty is read.
const TRIES: usize = 3;

/// Which number grows as the program gets on: `FILE`, its first one, or `FILE|REGEX`, that in what the pattern's first
/// group matches, or all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Counter {
    file: PathBuf,
    pattern: Option<String>,
}

impl Counter {
    /// Where it is read.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The same, for whoever is in another folder.
    #[must_use]
    pub fn absolute(&self) -> Self {
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        Self { file, pattern: self.pattern.clone() }
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

impl TryFrom<String> for Counter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Counter> for String {
    fn from(counter: Counter) -> Self {
        counter.to_string()
    }
}

/// Reads such a counter: `/sys/class/net/eth0/statistics/tx_packets`, or one that the program writes.
#[derive(Debug)]
pub struct ProgressFile {
    path: PathBuf,
    pattern: Option<Regex>,
    last: Option<u64>,
}

impl ProgressFile {
    /// The file may come later.
    pub fn new(counter: &Counter) -> Self {
        let pattern = counter.pattern.as_deref().and_then(|pattern| compiled(pattern).ok());
        Self { path: counter.file.clone(), pattern, last: None }
    }

    /// How far it got since the last call. `None`: nothing was known then, it does not exist yet, or it was reset.
    ///
    /// # Errors
    /// When the file cannot be read, or has no number.
    pub fn since_last(&mut self) -> Result<Option<u64>, ObserveError> {
        let now = self.read()?;
        let before = std::mem::replace(&mut self.last, now);
        Ok(now.zip(before).and_then(|(now, before)| now.checked_sub(before)))
    }
}

impl ProgressFile {
    /// The number; `None` where there is no file, or nothing in it.
    fn read(&self) -> Result<Option<u64>, ObserveError> {
        for _ in 0..TRIES {
            let file = match open(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file.map_err(|source| ObserveError::read(&self.path, source))?,
            };
            let wrong = |what: &str| ObserveError::Parse { path: self.path.clone(), line: 1, what: what.to_owned() };
            if !file.metadata().is_ok_and(|found| found.is_file()) {
                return Err(wrong("not a regular file"));
            }
            let mut text = Vec::new();
            file.take(LONGEST).read_to_end(&mut text).map_err(|source| ObserveError::read(&self.path, source))?;
            if text.trim_ascii().is_empty() {
                // It is being written.
                std::thread::yield_now();
                continue;
            }
            return self.number(&text).map(Some).ok_or_else(|| match &self.pattern {
                Some(pattern) => wrong(&format!("no number where {} matches", pattern.as_str())),
                None => wrong("no number"),
            });
        }
        Ok(None)
    }

    fn number(&self, text: &[u8]) -> Option<u64> {
        let Some(pattern) = &self.pattern else { return first_number(text) };
        let text = String::from_utf8_lossy(text);
        let found = pattern.captures(&text)?;
        first_number(found.get(1).or_else(|| found.get(0))?.as_str().as_bytes())
    }
}

/// The program that writes it is not trusted: a pipe must not keep the reader waiting, nor a link lead to a device.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn compiled(pattern: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build()
}

/// The first run of digits.
fn first_number(text: &[u8]) -> Option<u64> {
    let digits = text.split(|byte| !byte.is_ascii_digit()).find(|run| !run.is_empty())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_what_the_number_grew_by_since_the_last_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done");
        let mut file = ProgressFile::new(&path.display().to_string().parse().unwrap());
        assert_eq!(file.since_last().unwrap(), None, "not there yet");
        for (text, progress) in [
            ("10\n", None),
            ("requests: 35 (of 100)\n", Some(25)),
            ("35", Some(0)),
            ("", None),
            ("40", None),
            ("3", None),
            ("5", Some(2)),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(file.since_last().unwrap(), progress, "{text:?}");
        }
        std::fs::write(&path, "no number").unwrap();
        let said = file.since_last().unwrap_err().to_string();
        assert!(said.contains("done") && said.contains("no number"), "{said}");
    }

    #[test]
    fn a_pattern_picks_the_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("info");
        std::fs::write(&path, "connections:7\r\ncommands:12\r\ninput_kbps:0.08\r\n").unwrap();
        let number = |pattern: &str| {
            let counter: Counter = format!("{}|{pattern}", path.display()).parse().unwrap();
            assert_eq!(counter.to_string().parse::<Counter>().unwrap(), counter);
            ProgressFile::new(&counter).read()
        };
        for (pattern, found) in
            [("commands:([0-9]+)", 12), ("commands:.*", 12), ("none|input_kbps:0.(.*)", 8), ("7", 7)]
        {
            assert_eq!(number(pattern).unwrap(), Some(found), "{pattern}");
        }
        let said = number("no such").unwrap_err().to_string();
        assert!(said.contains("no number where no such matches"), "{said}");
    }

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
    }

    #[test]
    fn a_hostile_program_cannot_keep_its_reader_waiting_or_lead_it_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let [pipe, link, number] = ["pipe", "link", "number"].map(|name| dir.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::write(&number, "5").unwrap();
        std::os::unix::fs::symlink(&number, &link).unwrap();
        for (path, what) in [(&pipe, "not a regular file"), (&dir.path().to_owned(), "not a regular file"), (&link, "")]
        {
            let counter = path.display().to_string().parse().unwrap();
            let said = ProgressFile::new(&counter).since_last().unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
