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
//! Older views have `<--record#->: T<tid>` before the details, 32-bit programs shorter addresses. Markers of any kind,
//! prefetches, flushes, ends of threads and the further lines of a long instruction are passed over.
//!
//! Record numbers show what is missing in the middle. What was not in DynamoRIO's file (injected system calls and
//! context switches) has the number of the record before, and a long instruction's further line that of its first.
//! Where the view itself skipped something, it drew a line of dashes. Any other jump is an error. A header starts anew:
//! views of several files may follow one another. Threads may be numbered each by itself.
//!
//! DynamoRIO's own files are not read here: they need the program's binaries and a decoder to become accesses, which is
//! what that command is.

use super::fetches::Fetches;
use super::text::{Lines, hexadecimal};
use super::{BATCH, Kind, Record, Trace, TraceError};
use rustc_hash::FxHashMap;
use std::io::Read;
use std::path::Path;

const EXPECTED: &str = "make it with 'drrun -t drmemtrace -tool view -indir TRACE 2> FILE', which writes lines like \
                        '1 1: 17 read 8 byte(s) @ 0x00007ffd1fded688 by PC 0x00007fcae55ed1a8'";
/// As long as the longest x86 access, and a vector's gather.
const SIZE_BYTES_MAX: u64 = 16384;

/// Threads whose last numbers are kept; beyond, whoever comes is new.
const THREADS_MAX: usize = 1 << 16;

/// Reads the view's text.
pub struct MemtraceView<R> {
    lines: Lines<R>,
    fetches: Fetches,
    numbers: Numbers,
    empty: bool,
}

impl<R: Read> MemtraceView<R> {
    /// From any stream; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self { lines: Lines::new(path, input), fetches: Fetches::default(), numbers: Numbers::default(), empty: true }
    }
}

/// Records' numbers so far.
#[derive(Default)]
struct Numbers {
    /// The last record's, with its thread.
    last: Option<(u64, u64)>,
    /// The last ones of threads that others came after.
    of_thread: FxHashMap<u64, u64>,
    /// The view may have skipped something here.
    gap: bool,
}

impl Numbers {
    /// Notes a record; `Err`: the one that it cannot follow.
    fn see(&mut self, record: u64, thread: u64) -> Result<(), u64> {
        let gap = std::mem::take(&mut self.gap);
        let Some((last, before)) = self.last.replace((record, thread)) else { return Ok(()) };
        if thread != before {
            if self.of_thread.len() == THREADS_MAX {
                self.of_thread.clear();
            }
            self.of_thread.insert(before, last);
        }
        let follows = |last: u64| record == last || Some(record) == last.checked_add(1);
        if follows(last) || (gap && record > last) {
            return Ok(());
        }
        let own = if thread == before { None } else { self.of_thread.get(&thread) };
        let by_itself = thread != before && own.map_or(record == 1, |own| follows(*own));
        if by_itself { Ok(()) } else { Err(last) }
    }
}

/// What a line is.
#[derive(Debug, PartialEq)]
enum Line {
    /// Its record's number and thread, and what was accessed if anything was.
    Record(u64, u64, Option<(Kind, u64, u64)>),
    /// The view begins.
    Header,
    /// A line of dashes.
    Divider,
    Other,
    Wrong,
}

fn parse(line: &[u8]) -> Line {
    let Ok(line) = std::str::from_utf8(line) else { return Line::Other };
    if line.starts_with("Output format:") {
        return Line::Header;
    }
    if line.len() > 20 && line.bytes().all(|byte| byte == b'-') {
        return Line::Divider;
    }
    let Some((head, details)) = line.split_once(": ") else { return Line::Other };
    let mut numbers = head.split_ascii_whitespace().map(str::parse::<u64>);
    let (Some(Ok(record)), instruction @ (None | Some(Ok(_))), None) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return Line::Other;
    };
    if instruction.is_none() && !details.starts_with('T') {
        return Line::Other;
    }
    let mut words = details.split_ascii_whitespace();
    let (Some(thread), Some(kind)) = (words.next(), words.next()) else { return Line::Wrong };
    let thread = hash(thread);
    let kind = match kind {
        "ifetch" => Kind::Fetch,
        "read" => Kind::Read,
        "write" => Kind::Write,
        _ => return Line::Record(record, thread, None),
    };
    let (size, unit, at, address) = (words.next(), words.next(), words.next(), words.next());
    // A vector's access whose elements are all masked has no size.
    let size =
        size.and_then(|size| size.parse().ok()).filter(|size| *size <= SIZE_BYTES_MAX).map(|size: u64| size.max(1));
    match (size, unit, at, address.and_then(|address| hexadecimal(address.as_bytes()))) {
        (Some(size), Some("byte(s)"), Some("@"), Some(address)) => {
            Line::Record(record, thread, Some((kind, address, size)))
        }
        _ => Line::Wrong,
    }
}

/// A thread's name as a number: it may be `2765543`, `T2765543` or `W0.T2765543`.
fn hash(thread: &str) -> u64 {
    thread.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl<R: Read> Trace for MemtraceView<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full {
            let Some(line) = self.lines.next()? else { break };
            let (record, thread, access) = match parse(line) {
                Line::Other => {
                    self.lines.whole()?;
                    continue;
                }
                Line::Header => {
                    self.numbers = Numbers::default();
                    continue;
                }
                Line::Divider => {
                    self.numbers.gap = true;
                    continue;
                }
                Line::Record(record, thread, access) => (record, thread, access),
                Line::Wrong => {
                    self.lines.whole()?;
                    let what = format!("{} is no line of the view's; {EXPECTED}", self.lines.shown());
                    return Err(self.lines.error(what));
                }
            };
            self.lines.whole()?;
            if let Err(last) = self.numbers.see(record, thread) {
                let what = format!("record {record} follows record {last}: lines are missing; {EXPECTED}");
                return Err(self.lines.error(what));
            }
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

/// Whether a line is the view's, to tell formats apart.
pub(super) fn looks_like(line: &[u8]) -> bool {
    let has = |words: &[u8]| line.windows(words.len()).any(|window| window == words);
    line.starts_with(b"Output format:") || has(b"byte(s) @ 0x") || has(b"<marker: ")
}
