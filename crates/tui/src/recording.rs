//! Statuses from a file, as `gleaner status --json --every 1s` writes them: one JSON object after the other.
//!
//! A recording may be longer than memory: where each status begins is kept, and one is read when it is shown.

use gleaner_report::StatusReport;
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Statuses of a file that are found, at most: eleven days of one a second.
const STATUSES_MAX: usize = 1_000_000;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// It.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It has no status.
    #[error(
        "{} has no status ({why}); `gleaner status --json --every 1s > FILE` makes such a file",
        path.display()
    )]
    NoStatus {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        why: String,
    },
}

/// A file of statuses.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    /// Where each ends.
    ends: Vec<u64>,
    /// What comes after the last one, where that is none.
    broken: Option<String>,
}

impl Recording {
    /// # Errors
    /// When it cannot be read, or does not begin with a status.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let reader = BufReader::new(file.try_clone().map_err(failed)?);
        let mut values = serde_json::Deserializer::from_reader(reader).into_iter::<IgnoredAny>();
        let (mut ends, mut broken) = (Vec::new(), None);
        while let Some(value) = values.next() {
            match value {
                Ok(_) if ends.len() < STATUSES_MAX => ends.push(values.byte_offset() as u64),
                Ok(_) => broken = Some(format!("the file goes on after {STATUSES_MAX} statuses, which is not shown")),
                Err(error) => broken = Some(format!("after {} statuses the file is broken: {error}", ends.len())),
            }
            if broken.is_some() {
                break;
            }
        }
        let mut recording = Self { file, ends, broken };
        let first = recording.status(0).and_then(|status| {
            let is_one = status.schema == StatusReport::SCHEMA;
            if is_one { Ok(()) } else { Err(format!("it is {}, not {}", status.schema, StatusReport::SCHEMA)) }
        });
        first.map_err(|why| RecordingError::NoStatus { path: path.to_owned(), why }).map(|()| recording)
    }

    /// How many statuses there are; at least one.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What is wrong with the file's end.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The `n`th status, from 0.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn status(&mut self, n: usize) -> Result<Box<StatusReport>, String> {
        let Some(end) = self.ends.get(n).copied() else {
            return Err(self.broken.clone().unwrap_or_else(|| "it is empty".to_owned()));
        };
        let begin = n.checked_sub(1).and_then(|before| self.ends.get(before).copied()).unwrap_or(0);
        self.file.seek(SeekFrom::Start(begin)).map_err(|error| error.to_string())?;
        let text = io::read_to_string((&self.file).take(end - begin)).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("status {} is none: {error}", n + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(at: u64) -> StatusReport {
        StatusReport { schema: StatusReport::SCHEMA.into(), up_ns: at, ..StatusReport::default() }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn statuses_are_found_on_lines_and_over_lines() {
        let line = |at| serde_json::to_string(&status(at)).unwrap();
        let text = format!("{}\n\n{}{}\n", line(1), serde_json::to_string_pretty(&status(2)).unwrap(), line(3));
        let mut recording = Recording::open(file(&text).path()).unwrap();
        assert_eq!((recording.len(), recording.broken()), (3, None));
        for n in [2, 0, 1] {
            assert_eq!(recording.status(n).unwrap().up_ns, n as u64 + 1);
        }
        assert!(recording.status(3).is_err());
    }

    #[test]
    fn of_a_broken_file_what_is_whole_is_shown() {
        let line = serde_json::to_string(&status(1)).unwrap();
        for end in [&line[..line.len() / 2], "\u{0}\u{1}", "}}"] {
            let mut recording = Recording::open(file(&format!("{line}\n{line}\n{end}")).path()).unwrap();
            assert_eq!(recording.len(), 2);
            assert!(recording.broken().unwrap().starts_with("after 2 statuses the file is broken"), "{recording:?}");
            assert_eq!(recording.status(1).unwrap().up_ns, 1);
        }
        // One in the middle that is JSON and no status.
        let mut recording = Recording::open(file(&format!("{line}\n7\n{line}\n")).path()).unwrap();
        assert_eq!(recording.len(), 3);
        assert!(recording.status(1).unwrap_err().starts_with("status 2 is none"));
        assert!(recording.status(2).is_ok());
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in ["", "hello", "{}", "[1, 2]", "{\"schema\": \"gleaner.run/1\"}"] {
            let said = Recording::open(file(text).path()).unwrap_err().to_string();
            assert!(said.contains("has no status") && said.contains("--every"), "{said}");
        }
        let verify = StatusReport { schema: "gleaner.verify/1".into(), ..status(1) };
        let said = Recording::open(file(&serde_json::to_string(&verify).unwrap()).path()).unwrap_err().to_string();
        assert!(said.contains("gleaner.verify/1"), "{said}");
        assert!(Recording::open(Path::new("/no/such/file")).unwrap_err().to_string().contains("cannot read"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 256, failure_persistence: None, ..Default::default()
        })]

        /// Whatever was cut off or written over, a file is refused or shown, and never more than is in it.
        #[test]
        fn garbage_is_refused_or_shown(
            cut in 0_usize..2000, at in 0_usize..2000, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..8)
        ) {
            let line = serde_json::to_string(&status(1)).unwrap();
            let mut text = format!("{line}\n{line}\n{line}\n").into_bytes();
            let at = at.min(text.len());
            text.splice(at..(at + bytes.len()).min(text.len()), bytes);
            text.truncate(text.len().saturating_sub(cut));
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            if let Ok(mut recording) = Recording::open(file.path()) {
                proptest::prop_assert!((1..=4).contains(&recording.len()));
                (0..recording.len()).for_each(|n| drop(recording.status(n)));
            }
        }
    }
}
