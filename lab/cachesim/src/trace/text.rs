//! Lines of text with numbers, a limit on their length, hexadecimal addresses.
//!
//! Programs that write traces end every line. A last line without its end was cut, or may have been: half an address is
//! an address too.

use super::TraceError;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::{Path, PathBuf};

/// No line of any format is longer.
const LINE_BYTES_MAX: u64 = 4096;

/// Lines of a file or stream, with their numbers.
pub(super) struct Lines<R> {
    path: PathBuf,
    input: Take<BufReader<R>>,
    line: Vec<u8>,
    number: u64,
    /// The last line of the input has no end.
    cut: bool,
}

impl<R: Read> Lines<R> {
    /// From any stream; `path` is what errors call it.
    pub(super) fn new(path: &Path, input: R) -> Self {
        let input = BufReader::with_capacity(1 << 16, input).take(LINE_BYTES_MAX);
        Self { path: path.to_owned(), input, line: Vec::new(), number: 0, cut: false }
    }

    /// The next line without its end; `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.line.clear();
        self.input.set_limit(LINE_BYTES_MAX);
        let read =
            self.input.read_until(b'\n', &mut self.line).map_err(|source| TraceError::read(&self.path, source))?;
        self.number += 1;
        if read as u64 == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            return Err(self.error(format!("longer than {LINE_BYTES_MAX} bytes: this is no text trace")));
        }
        self.cut = read > 0 && self.line.last() != Some(&b'\n');
        Ok((read > 0).then(|| self.line.trim_ascii_end()))
    }

    /// Refuses the line read last if it is the input's last and has no end.
    pub(super) fn whole(&self) -> Result<(), TraceError> {
        if !self.cut {
            return Ok(());
        }
        let what = format!(
            "{}, the last line, has no line feed at its end: the file was cut short; make it anew, or end the line if it is whole",
            self.shown()
        );
        Err(self.error(what))
    }

    /// The line read last, fit to be shown.
    pub(super) fn shown(&self) -> String {
        shown(self.line.trim_ascii_end())
    }

    /// Something is wrong with the line read last.
    pub(super) fn error(&self, what: impl Into<String>) -> TraceError {
        TraceError::line(&self.path, self.number, what)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The beginning of a line, fit to be shown.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(40)]);
    let text: String = text.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
    format!("'{text}{}'", if line.len() > 40 { "..." } else { "" })
}

/// One to sixteen hexadecimal digits, with or without `0x`.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits
        .iter()
        .try_fold(0_u64, |value, digit| char::from(*digit).to_digit(16).map(|digit| value << 4 | u64::from(digit)))
}
