//! ChampSim's traces (`inc/trace_instruction.h`, `input_instr`): 64 bytes an instruction, without header or end, little-endian.
//!
//! ```text
//! ip u64   is_branch u8   branch_taken u8   registers written u8[2]   read u8[4]
//! places written u64[2] (0: none)   places read u64[4]
//! ```
//!
//! A file of such records cannot say that its end is missing, except by a last record that is cut. What else can be wrong shows by the two flags and
//! by addresses that no x86-64 program can use, as those of big-endian files are. Sizes are not in it: each place counts as one access.

use super::fetches::Fetches;
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes of an instruction.
pub(super) const RECORD_BYTES: usize = 64;

/// Reads `input_instr` records.
pub struct ChampSim<R> {
    path: PathBuf,
    input: R,
    offset: u64,
    fetches: Fetches,
    bytes: Vec<u8>,
}

impl<R: Read> ChampSim<R> {
    /// From any stream, unpacked; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self { path: path.to_owned(), input, offset: 0, fetches: Fetches::default(), bytes: Vec::new() }
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::format(&self.path, self.offset, what)
    }

    /// Reads many records at once; a cut one at the end is an error.
    fn read(&mut self) -> Result<usize, TraceError> {
        self.bytes.resize(RECORD_BYTES * BATCH / 4, 0);
        let mut filled = 0;
        while filled < self.bytes.len() {
            match self.input.read(&mut self.bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::read(&self.path, error)),
            }
        }
        if !filled.is_multiple_of(RECORD_BYTES) {
            self.offset += (filled / RECORD_BYTES * RECORD_BYTES) as u64;
            return Err(self.wrong(format!(
                "the file ends {} bytes into an instruction of {RECORD_BYTES}: it was cut short",
                filled % RECORD_BYTES
            )));
        }
        Ok(filled)
    }
}

/// An instruction: where it is, what it writes, what it reads.
struct Instruction {
    ip: u64,
    written: [u64; 2],
    read: [u64; 4],
}

/// What no x86-64 program can have, if anything.
fn parse(bytes: &[u8]) -> Result<Instruction, String> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if bytes[8] > 1 || bytes[9] > 1 {
        return Err(format!(
            "flags of {} and {} are neither 0 nor 1: this is no trace of ChampSim's",
            bytes[8], bytes[9]
        ));
    }
    // Zeros are what a hole in a file is read as, and would be instructions without an access, without end.
    if word(0) == 0 {
        return Err("an instruction at address 0: this is damaged, or no trace of ChampSim's".to_owned());
    }
    let places = [16, 24, 32, 40, 48, 56].map(word);
    let canonical = |address: u64| matches!(address >> 47, 0 | 0x1_ffff);
    if let Some(odd) = places.into_iter().chain([word(0)]).find(|address| !canonical(*address)) {
        let swapped = canonical(odd.swap_bytes());
        let why = if swapped {
            "written in big-endian byte order, and this format is little-endian"
        } else {
            "damaged, or no trace of ChampSim's"
        };
        return Err(format!("{odd:#x} is no address that an x86-64 program can use: the file is {why}"));
    }
    let [w0, w1, read @ ..] = places;
    Ok(Instruction { ip: word(0), written: [w0, w1], read })
}

/// Whether the beginning of a file may be such a trace.
pub(super) fn looks_like(start: &[u8]) -> bool {
    start.len() >= RECORD_BYTES && start.chunks_exact(RECORD_BYTES).all(|record| record[8] <= 1 && record[9] <= 1)
}

impl<R: Read> Trace for ChampSim<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let before = batch.len();
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
            for at in (0..filled).step_by(RECORD_BYTES) {
                let instruction = parse(&self.bytes[at..at + RECORD_BYTES]).map_err(|what| self.wrong(what))?;
                self.fetches.instruction(batch, instruction.ip, 1);
                for address in instruction.read.into_iter().filter(|address| *address != 0) {
                    self.fetches.push(batch, Kind::Read, address, 1);
                }
                for address in instruction.written.into_iter().filter(|address| *address != 0) {
                    self.fetches.push(batch, Kind::Write, address, 1);
                }
                self.offset += RECORD_BYTES as u64;
            }
        }
        Ok(())
    }
}
