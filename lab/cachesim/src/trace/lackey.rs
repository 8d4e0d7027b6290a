//! The text of `valgrind --tool=lackey --trace-mem=yes`:
//!
//! ```text
//! I  04001f30,3        an instruction, hexadecimal address, size in bytes
//!  S 1ffefffe58,8      a store
//!  L 04025cd8,8        a load
//!  M 0421c7cc,4        a load and a store of the same place
//! SB 04001f30          a superblock's start (--trace-superblocks=yes), passed over
//! ==1234== ...         valgrind's own messages, passed over; also "--1234--", "**1234**", "vex ...", "disInstr..."
//! ```
//!
//! Text without a single instruction (filtered to its data) counts an instruction for each access. [`Lackey::open`]
//! reads it from a file packed by zstd, whose checksum and end show that nothing is missing.
//!
//! An instruction's fetch is handed on only where it leaves the cache line (64 bytes) of the one before: the fetches
//! between cannot miss, and they are three quarters of the text. What that hides is the number of L1I hits. An access
//! that straddles lines becomes one access to each. Other lines are errors: a program that writes to the same stream
//! spoils a trace unnoticed otherwise (`--log-file` keeps them apart).

use super::fetches::Fetches;
use super::text::{Lines, hexadecimal};
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How a recording is made, and what a line has to look like.
pub const EXPECTED: &str = "record with 'valgrind --tool=lackey --trace-mem=yes --log-fd=9 PROGRAM 9> >(zstd >FILE)', which writes lines \
                            like 'I  04001f30,3' and ' L 04025cd8,8'";
/// No single access of any x86 instruction is longer than this (XSAVE).
const SIZE_BYTES_MAX: u64 = 16384;

/// Reads lackey's text.
pub struct Lackey<R> {
    lines: Lines<R>,
    fetches: Fetches,
    /// Whether an instruction was seen.
    instructions: bool,
    empty: bool,
}

impl Lackey<Box<dyn Read>> {
    /// From a file that zstd packed.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::read(path, source);
        let unpacked = zstd::Decoder::new(File::open(path).map_err(failed)?).map_err(failed)?;
        Ok(Self::new(path, Box::new(unpacked)))
    }
}

impl<R: Read> Lackey<R> {
    /// From any stream, such as valgrind's own output; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self { lines: Lines::new(path, input), fetches: Fetches::default(), instructions: false, empty: true }
    }
}

impl<R: Read> Trace for Lackey<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full {
            let Some(line) = self.lines.next()? else { break };
            let (message, parsed) = (is_message(line), parse(line));
            self.lines.whole()?;
            if message {
                continue;
            }
            let Some((letter, address, size_bytes)) = parsed else {
                return Err(self.lines.error(format!("{} is no line of lackey's; {EXPECTED}", self.lines.shown())));
            };
            self.instructions |= letter == b'I';
            if !self.instructions {
                self.fetches.executed();
            }
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

/// What is not an access: valgrind's words, blocks of code.
fn is_message(line: &[u8]) -> bool {
    let starts: [&[u8]; 6] = [b"==", b"--", b"**", b"SB ", b"vex ", b"disInstr"];
    line.is_empty() || starts.iter().any(|start| line.starts_with(start))
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

fn parse(line: &[u8]) -> Option<(u8, u64, u64)> {
    let line = line.trim_ascii_start();
    let (letter, rest) = line.split_first()?;
    if !matches!(letter, b'I' | b'L' | b'S' | b'M') || !rest.starts_with(b" ") {
        return None;
    }
    let (address, size) = split_once(rest.trim_ascii_start(), b',')?;
    let address = hexadecimal(address)?;
    let size: u64 = std::str::from_utf8(size.trim_ascii_start()).ok()?.parse().ok()?;
    (1..=SIZE_BYTES_MAX).contains(&size).then_some((*letter, address, size))
}
