//! ChampSim's traces (`inc/trace_instruction.h`), without header or end, little-endian. `input_instr` has 64 bytes an
//! instruction:
//!
//! ```text
//! ip u64   is_branch u8   branch_taken u8   registers written u8[2]   read u8[4]
//! places written u64[2] (0: none)   places read u64[4]
//! ```
//!
//! `cloudsuite_instr` (`--cloudsuite`) has 96: four registers and four places written, six bytes of padding, and two
//! bytes of address space at the end. Since 2025 either has a byte more for the kind of load, which makes `input_instr`
//! 72 bytes. Which one a file has is told by its beginning.
//!
//! A file of such records cannot say that its end is missing, except by a last record that is cut. What else can be
//! wrong shows by the two flags and by where instructions are. Places may be anywhere: AArch64 programs use 48 bits and
//! more, with a tag above, x86-64 ones up to 57. Sizes are not in it: each place counts as one access.

use super::fetches::Fetches;
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One of the records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layout {
    bytes: usize,
    /// Where the first place written is; places are eight bytes each.
    places_at: usize,
    written: usize,
    read: usize,
}

impl Layout {
    const INPUT: Self = Self { bytes: 64, places_at: 16, written: 2, read: 4 };
    const INPUT_WITH_LOAD: Self = Self { bytes: 72, ..Self::INPUT };
    const CLOUDSUITE: Self = Self { bytes: 96, places_at: 24, written: 4, read: 4 };
    const ALL: [Self; 3] = [Self::INPUT, Self::CLOUDSUITE, Self::INPUT_WITH_LOAD];

    /// The one that the beginning of a file may have. Of several, one all of whose instructions are somewhere, and that
    /// ends with a file that ends there.
    pub(super) fn of(start: &[u8], whole: bool) -> Option<Self> {
        let all = |layout: &Self, is: fn(&[u8]) -> bool| {
            start.len() >= layout.bytes && start.chunks_exact(layout.bytes).all(is)
        };
        let quality = |layout: &&Self| {
            let ends = !whole || start.len().is_multiple_of(layout.bytes);
            (all(layout, |record| word(record, 0) != 0), ends)
        };
        // The first of the best: `max_by_key` takes the last.
        Self::ALL.iter().rev().filter(|layout| all(layout, has_flags)).max_by_key(quality).copied()
    }
}

fn has_flags(record: &[u8]) -> bool {
    record[8] <= 1 && record[9] <= 1
}

fn word(record: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Reads records.
pub struct ChampSim<R> {
    path: PathBuf,
    input: R,
    layout: Layout,
    offset: u64,
    fetches: Fetches,
    bytes: Vec<u8>,
}

impl<R: Read> ChampSim<R> {
    /// From any stream, unpacked, of `input_instr`; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self::of(path, input, Layout::INPUT)
    }

    pub(super) fn of(path: &Path, input: R, layout: Layout) -> Self {
        Self { path: path.to_owned(), input, layout, offset: 0, fetches: Fetches::default(), bytes: Vec::new() }
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::format(&self.path, self.offset, what)
    }

    /// Reads many records at once; a cut one at the end is an error.
    fn read(&mut self) -> Result<usize, TraceError> {
        let record_bytes = self.layout.bytes;
        self.bytes.resize(record_bytes * BATCH / 4, 0);
        let mut filled = 0;
        while filled < self.bytes.len() {
            match self.input.read(&mut self.bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::read(&self.path, error)),
            }
        }
        if !filled.is_multiple_of(record_bytes) {
            self.offset += (filled / record_bytes * record_bytes) as u64;
            return Err(self.wrong(format!(
                "the file ends {} bytes into an instruction of {record_bytes}: it was cut short",
                filled % record_bytes
            )));
        }
        Ok(filled)
    }
}

/// What no program can have, if anything.
fn check(record: &[u8]) -> Result<(), String> {
    if record[8] > 1 || record[9] > 1 {
        return Err(format!(
            "flags of {} and {} are neither 0 nor 1: this is no trace of ChampSim's",
            record[8], record[9]
        ));
    }
    let ip = word(record, 0);
    // Zeros are what a hole in a file is read as, and would be instructions without an access, without end.
    if ip == 0 {
        return Err("an instruction at address 0: this is damaged, or no trace of ChampSim's".to_owned());
    }
    if is_code(ip) {
        return Ok(());
    }
    let swapped = is_code(ip.swap_bytes());
    let why = if swapped {
        "written in big-endian byte order, and this format is little-endian"
    } else {
        "damaged, or no trace of ChampSim's"
    };
    Err(format!("no program has instructions at {ip:#x}: the file is {why}"))
}

/// Whether code may be there: 57 bits of x86-64, 52 of AArch64, with a sign.
fn is_code(address: u64) -> bool {
    matches!(address >> 56, 0 | 0xff)
}

/// Whether the beginning of a file has the addresses of a big-endian one, all of which end in two zero bytes.
pub(super) fn is_big_endian(start: &[u8], layout: Layout) -> bool {
    let swapped = |record: &[u8]| {
        let ip = word(record, 0);
        ip.trailing_zeros() >= 16 && ip >> 47 != 0 && ip.swap_bytes() >> 47 == 0
    };
    start.chunks_exact(layout.bytes).all(swapped)
}

impl<R: Read> Trace for ChampSim<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let before = batch.len();
        let Layout { bytes, places_at, written, read } = self.layout;
        let places = |places: Range<usize>| places.map(move |place| places_at + 8 * place);
        // Instructions without any access of their own fill no batch, and an empty one would be the end.
        while batch.len() == before {
            let filled = self.read()?;
            if filled == 0 && self.offset == 0 {
                return Err(TraceError::Empty {
                    path: self.path.clone(),
                    expected: "a ChampSim trace has 64 bytes for each instruction",
                });
            }
            if filled == 0 {
                return Ok(());
            }
            for at in (0..filled).step_by(bytes) {
                let record = &self.bytes[at..at + bytes];
                check(record).map_err(|what| self.wrong(what))?;
                self.fetches.instruction(batch, word(record, 0), 1);
                for address in
                    places(written..written + read).map(|at| word(record, at)).filter(|address| *address != 0)
                {
                    self.fetches.push(batch, Kind::Read, address, 1);
                }
                for address in places(0..written).map(|at| word(record, at)).filter(|address| *address != 0) {
                    self.fetches.push(batch, Kind::Write, address, 1);
                }
                self.offset += bytes as u64;
            }
        }
        Ok(())
    }
}
