//! What the program got done, by a counter that it or its user keeps in a file.

use gleaner_sys::SysError;
use regex_lite::Regex;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The number is looked for up to here.
const LONGEST: u64 = 16 * 1024;
/// How often a file that is empty is read.
const TRIES: usize = 3;

/// Reads a number that grows as the program gets on: `/sys/class/net/eth0/statistics/tx_packets`, or one that the
/// program writes.
#[derive(Debug)]
pub struct ProgressFile {
    path: PathBuf,
    pattern: Option<Regex>,
    last: Option<u64>,
    /// Whether it had a number once when somebody asked; `None`: nobody has.
    found: Option<bool>,
}

impl ProgressFile {
    /// The file may come later. It is its first number, or that in what the pattern's first group matches, or all of
    /// it.
    pub fn new(file: &Path, pattern: Option<Regex>) -> Self {
        Self { path: file.to_owned(), pattern, last: None, found: None }
    }

    /// How far it got since the last call. `None`: nothing was known then, it does not exist yet, or it was reset.
    pub fn since_last(&mut self) -> Result<Option<u64>, SysError> {
        let now = self.read()?;
        self.found = Some(now.is_some() || self.found == Some(true));
        let before = std::mem::replace(&mut self.last, now);
        Ok(now.zip(before).and_then(|(now, before)| now.checked_sub(before)))
    }

    /// The file, where there was none, or nothing in it, each time that somebody asked.
    pub fn missing(&self) -> Option<&Path> {
        (self.found == Some(false)).then_some(&*self.path)
    }
}

impl ProgressFile {
    /// The number; `None` where there is no file, or nothing in it.
    fn read(&self) -> Result<Option<u64>, SysError> {
        for _ in 0..TRIES {
            let file = match open(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file.map_err(|source| SysError::read(&self.path, source))?,
            };
            let wrong = |what: &str| SysError::parse(&self.path, 1, what);
            if !file.metadata().is_ok_and(|found| found.is_file()) {
                return Err(wrong("not a regular file"));
            }
            let mut text = Vec::new();
            file.take(LONGEST).read_to_end(&mut text).map_err(|source| SysError::read(&self.path, source))?;
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
        let mut file = ProgressFile::new(&path, None);
        assert_eq!(file.missing(), None, "nobody has asked");
        assert_eq!(file.since_last().unwrap(), None, "not there yet");
        assert_eq!(file.missing(), Some(&*path));
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
            assert_eq!(file.missing(), None, "{text:?}");
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
        let number = |pattern: &str| ProgressFile::new(&path, Some(Regex::new(pattern).unwrap())).read();
        for (pattern, found) in
            [("commands:([0-9]+)", 12), ("commands:.*", 12), ("none|input_kbps:0.(.*)", 8), ("7", 7)]
        {
            assert_eq!(number(pattern).unwrap(), Some(found), "{pattern}");
        }
        let said = number("no such").unwrap_err().to_string();
        assert!(said.contains("no number where no such matches"), "{said}");
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
            let said = ProgressFile::new(path, None).since_last().unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
