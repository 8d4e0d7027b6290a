//! The text of `valgrind --tool=lackey --trace-mem=yes`:
//!
//! ```text
//! I  04001f30,3        an instruction, hexadecimal address, size in bytes
//!  S 1ffefffe58,8      a store
//!  L 04025cd8,8        a load
//!  M 0421c7cc,4        a load and a store of the same place
//! ==1234== ...         valgrind's own messages, passed over
//! ```
//!
//! An instruction's fetch is handed on only where it leaves the cache line (64 bytes) of the one before: the fetches between cannot miss, and
//! they are three quarters of the text. What that hides is the number of L1I hits. An access that straddles lines becomes one
//! access to each. Other lines are errors: a program that writes to the same stream spoils a trace unnoticed otherwise
//! (`--log-file` keeps them apart).

use super::fetches::Fetches;
use super::text::{self, Lines, hexadecimal, shown};
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What a line has to look like.
const EXPECTED: &str = "record with 'valgrind --tool=lackey --trace-mem=yes --log-file=FILE', which writes lines like 'I  04001f30,3' \
                        and ' L 04025cd8,8'";
/// No single access of any x86 instruction is longer than this (XSAVE).
const SIZE_BYTES_MAX: u64 = 16384;

/// Reads lackey's text.
pub struct Lackey<R = File> {
    lines: Lines<R>,
    fetches: Fetches,
    empty: bool,
}

impl Lackey {
    /// From a file.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Ok(Self::on(text::open(path)?))
    }
}

impl<R: Read> Lackey<R> {
    /// From any stream, such as valgrind's own output; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self::on(Lines::new(path, input))
    }

    fn on(lines: Lines<R>) -> Self {
        Self { lines, fetches: Fetches::default(), empty: true }
    }
}

impl<R: Read> Trace for Lackey<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full {
            let Some(line) = self.lines.next()? else { break };
            if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") || line.starts_with(b"**") {
                continue;
            }
            let Some((letter, address, size_bytes)) = parse(line) else {
                let what = format!("{} is no line of lackey's; {EXPECTED}", shown(line));
                return Err(self.lines.error(what));
            };
            match letter {
                b'I' => self.fetches.instruction(batch, address, size_bytes),
                b'L' => self.fetches.push(batch, Kind::Read, address, size_bytes),
                b'S' => self.fetches.push(batch, Kind::Write, address, size_bytes),
                _ => {
                    self.fetches.push(batch, Kind::Read, address, size_bytes);
                    self.fetches.push(batch, Kind::Write, address, size_bytes);
                }
            }
            self.empty = false;
        }
        if self.empty {
            return Err(TraceError::Empty { path: self.lines.path().to_owned(), expected: EXPECTED });
        }
        Ok(())
    }
}

fn parse(line: &[u8]) -> Option<(u8, u64, u64)> {
    let line = line.trim_ascii_start();
    let (letter, rest) = line.split_first()?;
    if !b"ILSM".contains(letter) || !rest.starts_with(b" ") {
        return None;
    }
    let mut fields = rest.trim_ascii_start().splitn(2, |byte| *byte == b',');
    let address = hexadecimal(fields.next()?)?;
    let size: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    (1..=SIZE_BYTES_MAX).contains(&size).then_some((*letter, address, size))
}
