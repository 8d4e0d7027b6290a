//! The text of DynamoRIO's `drrun -t drmemtrace -tool view -indir TRACE` (or `-t drcachesim -simulator_type view`):
//!
//! ```text
//! Output format:
//! <--record#-> <--instr#->: <---tid---> <record details>
//! ------------------------------------------------------------
//!            1           0:     2765543 <marker: version 5>
//!        47445       37770:     2765543 ifetch       5 byte(s) @ 0x0000000000404a7e 48 8b 5c 24 08       mov    0x08(%rsp) ...
//!        47446       37770:     2765543 read         8 byte(s) @ 0x00007fdf64e2adc8 by PC 0x0000000000404a7e
//! ```
//!
//! Markers and the further lines of a long instruction are passed over. Record numbers that jump are an error: the view left something
//! out (`-skip_instrs` skips at the start only), or lines are missing. DynamoRIO's own files are not read here: they need the
//! program's binaries and a decoder of x86 to become accesses, which is what that command is.

use super::fetches::Fetches;
use super::text::{Lines, hexadecimal, shown};
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::io::Read;
use std::path::Path;

const EXPECTED: &str = "make it with 'drrun -t drmemtrace -tool view -indir TRACE 2> FILE', which writes lines like \
                        '1 1: 17 read 8 byte(s) @ 0x00007ffd1fded688 by PC 0x00007fcae55ed1a8'";
/// As long as the longest x86 access, and a vector's gather.
const SIZE_BYTES_MAX: u64 = 16384;

/// Reads the view's text.
pub struct MemtraceView<R> {
    lines: Lines<R>,
    fetches: Fetches,
    record: Option<u64>,
    empty: bool,
}

impl<R: Read> MemtraceView<R> {
    /// From any stream; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self { lines: Lines::new(path, input), fetches: Fetches::default(), record: None, empty: true }
    }
}

/// What a line is.
enum Line {
    /// Its record's number, and what was accessed if anything was.
    Record(u64, Option<(Kind, u64, u64)>),
    Other,
    Wrong,
}

fn parse(line: &[u8]) -> Line {
    let Some((head, details)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(": ")) else {
        return Line::Other;
    };
    let mut numbers = head.split_ascii_whitespace().map(str::parse::<u64>);
    let (Some(Ok(record)), Some(Ok(_)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return Line::Other;
    };
    let mut words = details.split_ascii_whitespace();
    let (Some(_thread), Some(kind)) = (words.next(), words.next()) else { return Line::Wrong };
    let kind = match kind {
        "ifetch" => Kind::Fetch,
        "read" => Kind::Read,
        "write" => Kind::Write,
        // Markers, prefetches, flushes, ends of threads.
        _ => return Line::Record(record, None),
    };
    let (size, unit, at, address) = (words.next(), words.next(), words.next(), words.next());
    let size = size.and_then(|size| size.parse().ok()).filter(|size| (1..=SIZE_BYTES_MAX).contains(size));
    match (size, unit, at, address.and_then(|address| hexadecimal(address.as_bytes()))) {
        (Some(size), Some("byte(s)"), Some("@"), Some(address)) => Line::Record(record, Some((kind, address, size))),
        _ => Line::Wrong,
    }
}

impl<R: Read> Trace for MemtraceView<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full {
            let Some(line) = self.lines.next()? else { break };
            let (record, access) = match parse(line) {
                Line::Other => continue,
                Line::Record(record, access) => (record, access),
                Line::Wrong => {
                    let what = format!("{} is no line of the view's; {EXPECTED}", shown(line));
                    return Err(self.lines.error(what));
                }
            };
            if let Some(last) = self.record.filter(|last| record != last + 1) {
                return Err(self
                    .lines
                    .error(format!("record {record} follows record {last}: lines are missing; {EXPECTED}")));
            }
            self.record = Some(record);
            match access {
                Some((Kind::Fetch, address, size)) => self.fetches.instruction(batch, address, size),
                Some((kind, address, size)) => self.fetches.push(batch, kind, address, size),
                None => continue,
            }
            self.empty = false;
        }
        if self.empty {
            return Err(TraceError::Empty { path: self.lines.path().to_owned(), expected: EXPECTED });
        }
        Ok(())
    }
}
