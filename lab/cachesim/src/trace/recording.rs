//! Gleaner's own recording of a trace: compact, streamed, and sure to notice when a part is missing.
//!
//! ```text
//! header   magic "\x89GLTRACE"  version u16 = 1  reserved u16 = 0  byte order 0x0a0b0c0d
//! block    payload bytes u32 (> 0)   records u32 (1..=65536)   payload: one zstd frame with checksum
//! ...
//! end      0 u32   0 u32   all records u64   all instructions u64          nothing may follow
//! ```
//!
//! Numbers are little-endian. Within a block's payload a record is two LEB128 numbers: `instructions * 4 + kind` (0
//! read, 1 write, 2 fetch), and the zigzag difference of the address from the last one of the same kind, 0 at the
//! block's start. Blocks can be read alone. A file without its end, as a killed recorder leaves it, is an error and not
//! a shorter trace, however little of it is read: its last bytes are looked at when it is opened. A pipe, or a packed
//! file, shows its end only to who reads that far.

use super::{Kind, Record, Trace, TraceError};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// First bytes of every recording. The first is no ASCII, so that no text passes.
pub const MAGIC: [u8; 8] = *b"\x89GLTRACE";
/// The format described above.
pub const VERSION: u16 = 1;
const BYTE_ORDER: u32 = 0x0a0b_0c0d;
const HEADER_BYTES: u64 = 16;
const END_BYTES: u64 = 24;
const BLOCK_RECORDS: usize = 1 << 16;
/// Two LEB128 numbers: of 34 and of 64 bits.
const RECORD_BYTES_MAX: usize = 5 + 10;
const BLOCK_BYTES_MAX: usize = BLOCK_RECORDS * RECORD_BYTES_MAX;
/// What zstd may make of a block that does not compress.
const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 128 + 1024;
/// Fast, and within a few per cent of the best for such data.
const ZSTD_LEVEL: i32 = 3;

#[derive(Default)]
struct LastAddress([u64; 3]);

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Fetch => 2,
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
    bytes.push(value as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

impl LastAddress {
    fn put(&mut self, bytes: &mut Vec<u8>, record: Record) {
        let code = code(record.kind);
        let last = &mut self.0[usize::from(code)];
        put_varint(bytes, u64::from(record.instructions) << 2 | u64::from(code));
        let difference = record.address.wrapping_sub(*last).cast_signed();
        put_varint(bytes, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
        *last = record.address;
    }

    #[inline]
    fn take(&mut self, bytes: &mut &[u8]) -> Option<Record> {
        let head = take_varint(bytes)?;
        let zigzag = take_varint(bytes)?;
        let kind = match head & 3 {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Fetch,
            _ => return None,
        };
        let last = &mut self.0[usize::from(code(kind))];
        *last = last.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
        Some(Record { address: *last, instructions: u32::try_from(head >> 2).ok()?, kind })
    }
}

/// Writes a recording as records come.
pub struct Recorder<W: Write = BufWriter<File>> {
    path: PathBuf,
    output: W,
    compressor: zstd::bulk::Compressor<'static>,
    last: LastAddress,
    block: Vec<u8>,
    block_records: u32,
    records: u64,
    instructions: u64,
}

impl Recorder {
    /// Creates the file, or empties it.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let file = File::create(path).map_err(|source| TraceError::write(path, source))?;
        Self::new(path, BufWriter::new(file))
    }

    /// Appends records.
    pub fn extend(&mut self, records: &[Record]) -> Result<(), TraceError> {
        records.iter().try_for_each(|record| self.push(*record))
    }
}

impl<W: Write> Recorder<W> {
    /// To any stream; `path` is what errors call it.
    pub fn new(path: &Path, output: W) -> Result<Self, TraceError> {
        let failed = |source| TraceError::write(path, source);
        let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
        compressor.include_checksum(true).map_err(failed)?;
        let mut recorder = Self {
            path: path.to_owned(),
            output,
            compressor,
            last: LastAddress::default(),
            block: Vec::with_capacity(BLOCK_BYTES_MAX / 4),
            block_records: 0,
            records: 0,
            instructions: 0,
        };
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 2]);
        header.extend(BYTE_ORDER.to_le_bytes());
        recorder.write(&header)?;
        Ok(recorder)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.output.write_all(bytes).map_err(|source| TraceError::write(&self.path, source))
    }

    /// Appends a record.
    pub fn push(&mut self, record: Record) -> Result<(), TraceError> {
        self.last.put(&mut self.block, record);
        self.block_records += 1;
        self.records += 1;
        self.instructions += u64::from(record.instructions);
        if self.block_records as usize == BLOCK_RECORDS { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), TraceError> {
        if self.block_records == 0 {
            return Ok(());
        }
        let payload = self.compressor.compress(&self.block).map_err(|source| TraceError::write(&self.path, source))?;
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.write(&payload_bytes.to_le_bytes())?;
        self.write(&self.block_records.to_le_bytes())?;
        self.write(&payload)?;
        self.block.clear();
        self.block_records = 0;
        self.last = LastAddress::default();
        Ok(())
    }

    /// Writes the end and hands back the stream. Without it the recording counts as truncated.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.end_block()?;
        let mut end = vec![0; 8];
        end.extend(self.records.to_le_bytes());
        end.extend(self.instructions.to_le_bytes());
        self.write(&end)?;
        self.output.flush().map_err(|source| TraceError::write(&self.path, source))?;
        Ok(self.output)
    }
}

/// Reads a recording block by block.
pub struct Recording<R = BufReader<File>> {
    path: PathBuf,
    input: R,
    offset: u64,
    decompressor: zstd::bulk::Decompressor<'static>,
    payload: Vec<u8>,
    block: Vec<u8>,
    records: u64,
    instructions: u64,
    over: bool,
}

impl Recording {
    /// From a file.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::read(path, source))?;
        let last = file.try_clone().map_err(|source| TraceError::read(path, source))?;
        let recording = Self::new(path, BufReader::new(file))?;
        check_end(path, &last)?;
        Ok(recording)
    }
}

impl<R: Read> Recording<R> {
    /// From any stream; `path` is what errors call it. Reads the header.
    pub fn new(path: &Path, input: R) -> Result<Self, TraceError> {
        let mut recording = Self {
            path: path.to_owned(),
            input,
            offset: 0,
            decompressor: zstd::bulk::Decompressor::new().map_err(|source| TraceError::read(path, source))?,
            payload: Vec::new(),
            block: Vec::new(),
            records: 0,
            instructions: 0,
            over: false,
        };
        recording.header()?;
        Ok(recording)
    }

    fn wrong(&self, offset: u64, what: impl Into<String>) -> TraceError {
        TraceError::format(&self.path, offset, what)
    }

    fn header(&mut self) -> Result<(), TraceError> {
        let magic: [u8; 8] = self.take("header")?;
        if magic != MAGIC {
            return Err(self.wrong(0, "not a recording of Gleaner's; 'gleaner-lab cache record -- CMD' makes one"));
        }
        let version: [u8; 2] = self.take("header")?;
        let _reserved: [u8; 2] = self.take("header")?;
        let order: [u8; 4] = self.take("header")?;
        if order == BYTE_ORDER.to_be_bytes() {
            return Err(
                self.wrong(12, "written in big-endian byte order; this format is little-endian: record it anew")
            );
        }
        if order != BYTE_ORDER.to_le_bytes() {
            return Err(self.wrong(12, "the header is damaged: record it anew"));
        }
        match u16::from_le_bytes(version) {
            VERSION => Ok(()),
            newer => Err(self.wrong(
                8,
                format!("version {newer} of the format; this program reads {VERSION}: use a newer one or record anew"),
            )),
        }
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TraceError> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes, what)?;
        Ok(bytes)
    }

    fn read_exact(&mut self, bytes: &mut [u8], what: &str) -> Result<(), TraceError> {
        self.input.read_exact(bytes).map_err(|source| {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                self.wrong(
                    self.offset,
                    format!("the file ends within its {what}: it was cut short, or its recorder was killed"),
                )
            } else {
                TraceError::read(&self.path, source)
            }
        })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<(), TraceError> {
        let records = u64::from_le_bytes(self.take("end")?);
        let instructions = u64::from_le_bytes(self.take("end")?);
        if (records, instructions) != (self.records, self.instructions) {
            return Err(self.wrong(
                self.offset,
                format!("its end promises {records} accesses, {} were there: blocks are missing", self.records),
            ));
        }
        let mut more = [0];
        if self.input.read(&mut more).map_err(|source| TraceError::read(&self.path, source))? > 0 {
            return Err(self.wrong(self.offset, "something follows the end: two recordings cannot be joined like that"));
        }
        self.over = true;
        if self.records == 0 {
            let expected = "the recorded program must have run";
            return Err(TraceError::Empty { path: self.path.clone(), expected });
        }
        Ok(())
    }
}

impl<R: Read> Trace for Recording<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        if self.over {
            return Ok(());
        }
        let start = self.offset;
        let payload_bytes = u32::from_le_bytes(self.take("next block")?) as usize;
        let records = u32::from_le_bytes(self.take("next block")?) as usize;
        if (payload_bytes, records) == (0, 0) {
            return self.end();
        }
        if payload_bytes > PAYLOAD_BYTES_MAX || !(1..=BLOCK_RECORDS).contains(&records) {
            let what =
                format!("a block of {payload_bytes} bytes and {records} accesses cannot be: the file is damaged");
            return Err(self.wrong(start, what));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(payload_bytes, 0);
        self.read_exact(&mut payload, "block")?;
        self.payload = payload;
        self.block.clear();
        self.block.reserve(BLOCK_BYTES_MAX);
        if let Err(error) = self.decompressor.decompress_to_buffer(&self.payload, &mut self.block) {
            return Err(self.wrong(start, format!("the block does not unpack ({error}): the file is damaged")));
        }
        let mut last = LastAddress::default();
        let mut bytes = &self.block[..];
        for _ in 0..records {
            let Some(record) = last.take(&mut bytes) else {
                return Err(self.wrong(start, "the block holds something that is no access: the file is damaged"));
            };
            self.instructions += u64::from(record.instructions);
            batch.push(record);
        }
        if !bytes.is_empty() {
            return Err(self.wrong(start, "the block holds more than its accesses: the file is damaged"));
        }
        self.records += records as u64;
        Ok(())
    }
}

/// Refuses a file whose last bytes are no recording's end. What cannot be read from its end, like a pipe, passes here.
pub(super) fn check_end(path: &Path, file: &File) -> Result<(), TraceError> {
    let failed = |source| TraceError::read(path, source);
    let is = file.metadata().map_err(failed)?;
    if !is.is_file() {
        return Ok(());
    }
    let mut mark = [1; 8];
    if let Some(end) = is.len().checked_sub(END_BYTES).filter(|end| *end >= HEADER_BYTES) {
        file.read_exact_at(&mut mark, end).map_err(failed)?;
    }
    // No block's last bytes look like that: they are packed, and zeros are what packs best.
    if mark == [0; 8] {
        return Ok(());
    }
    let what = "the file ends without a recording's end: it was cut short, or its recorder was killed; record it anew";
    Err(TraceError::format(path, is.len(), what))
}

/// Whether a file begins as a recording does, to tell formats apart.
pub fn is_recording(path: &Path) -> Result<bool, TraceError> {
    let failed = |source| TraceError::read(path, source);
    let mut start = Vec::new();
    File::open(path).map_err(failed)?.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(failed)?;
    Ok(start == MAGIC)
}
