//! The file of what the threads of a real program did: small, bounded, and never half believed. `gleaner record` writes
//! it, `gleaner-lab sim from-recording` reads it.
//!
//! ```text
//!   magic (8 bytes)  version (1 byte)
//!   block: kind (1)  length when compressed (u32 LE)  length (u32 LE)  zstd frame with a checksum
//!     'H' header, once, first; 'E' events, any number; 'S' summary, once, last. Nothing after it.
//!   event: tag (1)  time since the event before (zigzag varint)  cpu, tid (varints)  more, as the tag says (varints)
//! ```
//!
//! A file without its summary was not finished, wherever it was cut, and is refused. Reading holds one block at a time.

use gleaner_model::{Left, Nanos, ThreadEvent, ThreadHappening};
use std::io::{self, Read, Write};

/// The version that this program writes, and the only one that it reads.
pub const VERSION: u8 = 1;
const MAGIC: [u8; 8] = *b"GLTHRD\r\n";
/// A block is written when it is this long.
const BLOCK_BYTES: usize = 256 << 10;
/// No block is longer: what a damaged length may make us allocate.
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Of the command line, bytes kept at most.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Fast: the recorder shares the machine with what it records.
const ZSTD_LEVEL: i32 = 1;

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system's words.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("this is no recording of threads; `gleaner record --threads -- CMD` makes one")]
    NotARecording,
    /// Written by another Gleaner.
    #[error("the recording has version {found}, and this gleaner reads version {VERSION}; record it again")]
    Version {
        /// Its version.
        found: u8,
    },
    /// Its end is missing.
    #[error("the recording is not whole: it ends after {blocks} blocks, without its summary; record it again")]
    Truncated {
        /// Blocks that are whole.
        blocks: u64,
    },
    /// It was changed since it was written.
    #[error("the recording is damaged: block {block}: {what}; record it again")]
    Damaged {
        /// Which block, from 0.
        block: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is nothing in it.
    #[error("the recording has no threads in it; record a program that runs")]
    Empty,
    /// More than can be simulated.
    #[error(
        "the recording has more than {most} steps, too many to be simulated; record a shorter run, or with a smaller --max-bytes"
    )]
    TooLong {
        /// Steps at most.
        most: usize,
    },
}

/// Where a recording was made, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `uname -r`.
    pub kernel: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// vCPUs that the program could use.
    pub vcpus: u32,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedBy {
    /// The program ended.
    #[default]
    Exit,
    /// The file was as long as it may be. The program went on.
    Limit,
    /// Somebody interrupted.
    Interrupt,
}

impl EndedBy {
    /// As results say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Limit => "limit",
            Self::Interrupt => "interrupt",
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Events in the file.
    pub events: u64,
    /// Events that were lost because nobody took them in time.
    pub lost: u64,
    /// Threads that were too many to be recorded.
    pub untracked: u64,
    /// From the program's start to the recording's end, by the recorder's clock.
    pub wall_ns: u64,
}

impl Summary {
    /// What is not in the recording, in words.
    pub fn losses(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.lost > 0 {
            let lost = self.lost;
            notes.push(format!(
                "{lost} events were lost: the machine was too busy to write them down; waits became delays"
            ));
        }
        if self.untracked > 0 {
            notes.push(format!("{} threads were too many and are not in the recording", self.untracked));
        }
        notes
    }
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    block: Vec<u8>,
    last: u64,
    events: u64,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut to: W, header: &Header) -> Result<Self, RecordingError> {
        to.write_all(&MAGIC)?;
        to.write_all(&[VERSION])?;
        let mut writer = Self { to, block: Vec::new(), last: 0, events: 0, written: MAGIC.len() as u64 + 1 };
        let mut bytes = Vec::new();
        put_text(&mut bytes, &header.kernel);
        put(&mut bytes, u64::from(header.vcpus));
        // Command lines may have megabytes; what they are for here are the first words.
        let mut room = COMMAND_BYTES_MAX;
        let fits = |word: &&String| {
            let fits = word.len() < room;
            room = room.saturating_sub(word.len());
            fits
        };
        let command: Vec<&String> = header.command.iter().take_while(fits).collect();
        put(&mut bytes, command.len() as u64);
        for word in command {
            put_text(&mut bytes, word);
        }
        writer.block(b'H', &bytes)?;
        Ok(writer)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn event(&mut self, event: &ThreadEvent) -> Result<(), RecordingError> {
        let (tag, more) = match event.what {
            ThreadHappening::Born { parent: None } => (0, None),
            ThreadHappening::Born { parent: Some(parent) } => (1, Some(u64::from(parent))),
            ThreadHappening::In { from_idle: false } => (2, None),
            ThreadHappening::In { from_idle: true } => (3, None),
            ThreadHappening::Out { ran, why: Left::Displaced } => (4, Some(ran.0)),
            ThreadHappening::Out { ran, why: Left::Blocked } => (5, Some(ran.0)),
            ThreadHappening::Out { ran, why: Left::Ended } => (6, Some(ran.0)),
            ThreadHappening::Woken { waker: None } => (7, None),
            ThreadHappening::Woken { waker: Some(waker) } => (8, Some(u64::from(waker))),
        };
        self.block.push(tag);
        let delta = event.at.0.wrapping_sub(self.last).cast_signed();
        put(&mut self.block, ((delta << 1) ^ (delta >> 63)).cast_unsigned());
        put(&mut self.block, u64::from(event.cpu));
        put(&mut self.block, u64::from(event.tid));
        if let Some(more) = more {
            put(&mut self.block, more);
        }
        self.last = event.at.0;
        self.events += 1;
        if self.block.len() >= BLOCK_BYTES {
            let block = std::mem::take(&mut self.block);
            self.block(b'E', &block)?;
        }
        Ok(())
    }

    /// Bytes of the file so far, what has yet to be compressed included.
    pub fn bytes(&self) -> u64 {
        self.written + self.block.len() as u64
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Ends it. `summary.events` is counted here.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self, summary: &Summary) -> Result<(W, Summary), RecordingError> {
        let block = std::mem::take(&mut self.block);
        if !block.is_empty() {
            self.block(b'E', &block)?;
        }
        let summary = Summary { events: self.events, ..*summary };
        let ended_by = match summary.ended_by {
            EndedBy::Exit => 0,
            EndedBy::Limit => 1,
            EndedBy::Interrupt => 2,
        };
        let mut bytes = Vec::new();
        for value in [ended_by, summary.events, summary.lost, summary.untracked, summary.wall_ns] {
            put(&mut bytes, value);
        }
        self.block(b'S', &bytes)?;
        self.to.flush()?;
        Ok((self.to, summary))
    }

    fn block(&mut self, kind: u8, bytes: &[u8]) -> Result<(), RecordingError> {
        let mut frame = Vec::new();
        let mut encoder = zstd::Encoder::new(&mut frame, ZSTD_LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.write_all(bytes)?;
        encoder.finish()?;
        self.to.write_all(&[kind])?;
        for length in [frame.len(), bytes.len()] {
            self.to.write_all(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes())?;
        }
        self.to.write_all(&frame)?;
        self.written += 9 + frame.len() as u64;
        Ok(())
    }
}

/// Reads a recording, event by event.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    header: Header,
    block: Vec<u8>,
    at: usize,
    blocks: u64,
    last: u64,
    events: u64,
    summary: Option<Summary>,
}

impl<R: Read> Reader<R> {
    /// Reads its beginning.
    ///
    /// # Errors
    /// If it is no recording of this version.
    pub fn new(mut from: R) -> Result<Self, RecordingError> {
        let mut start = [0; 9];
        let got = fill(&mut from, &mut start)?;
        if got == 0 || start[..got.min(8)] != MAGIC[..got.min(8)] {
            return Err(RecordingError::NotARecording);
        }
        if got < start.len() {
            return Err(RecordingError::Truncated { blocks: 0 });
        }
        if start[8] != VERSION {
            return Err(RecordingError::Version { found: start[8] });
        }
        let header = Header::default();
        let mut reader = Self { from, header, block: Vec::new(), at: 0, blocks: 0, last: 0, events: 0, summary: None };
        if reader.next_block()? != b'H' {
            return Err(reader.damaged("the header is not first"));
        }
        let kernel = reader.text()?;
        let vcpus = reader.small()?;
        // Each word takes a byte at least, so a block bounds their number.
        let command =
            (0..reader.number()?.min(u64::from(BLOCK_BYTES_MAX))).map(|_| reader.text()).collect::<Result<_, _>>()?;
        reader.header = Header { kernel, command, vcpus };
        reader.used_up()?;
        Ok(reader)
    }

    /// Where it was made, and of what.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What came of it; `None` until the last event has been read.
    pub fn summary(&self) -> Option<Summary> {
        self.summary
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// If the file is cut off or damaged.
    pub fn event(&mut self) -> Result<Option<ThreadEvent>, RecordingError> {
        while self.at == self.block.len() {
            if self.summary.is_some() {
                return Ok(None);
            }
            match self.next_block()? {
                b'E' => {}
                b'S' => self.read_summary()?,
                _ => return Err(self.damaged("a kind of block that there is not")),
            }
        }
        let tag = self.block[self.at];
        self.at += 1;
        let zigzag = self.number()?;
        let delta = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        self.last = self.last.wrapping_add(delta.cast_unsigned());
        let (cpu, tid) = (self.small()?, self.small()?);
        let what = match tag {
            0 => ThreadHappening::Born { parent: None },
            1 => ThreadHappening::Born { parent: Some(self.small()?) },
            2 => ThreadHappening::In { from_idle: false },
            3 => ThreadHappening::In { from_idle: true },
            4 => ThreadHappening::Out { ran: Nanos(self.number()?), why: Left::Displaced },
            5 => ThreadHappening::Out { ran: Nanos(self.number()?), why: Left::Blocked },
            6 => ThreadHappening::Out { ran: Nanos(self.number()?), why: Left::Ended },
            7 => ThreadHappening::Woken { waker: None },
            8 => ThreadHappening::Woken { waker: Some(self.small()?) },
            _ => return Err(self.damaged("a kind of event that there is not")),
        };
        self.events += 1;
        Ok(Some(ThreadEvent { at: Nanos(self.last), cpu, tid, what }))
    }

    fn read_summary(&mut self) -> Result<(), RecordingError> {
        let ended_by = match self.number()? {
            0 => EndedBy::Exit,
            1 => EndedBy::Limit,
            2 => EndedBy::Interrupt,
            _ => return Err(self.damaged("an end that there is not")),
        };
        let (events, lost, untracked, wall_ns) = (self.number()?, self.number()?, self.number()?, self.number()?);
        self.used_up()?;
        if events != self.events {
            return Err(self.damaged("the summary counts other events than there are"));
        }
        if fill(&mut self.from, &mut [0])? != 0 {
            return Err(self.damaged("something follows the summary"));
        }
        self.summary = Some(Summary { ended_by, events, lost, untracked, wall_ns });
        Ok(())
    }

    fn next_block(&mut self) -> Result<u8, RecordingError> {
        let mut head = [0; 9];
        if fill(&mut self.from, &mut head)? < head.len() {
            return Err(RecordingError::Truncated { blocks: self.blocks });
        }
        let length = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (compressed, length) = (length(1), length(5));
        if length > BLOCK_BYTES_MAX || compressed > BLOCK_BYTES_MAX {
            return Err(self.damaged("its length cannot be"));
        }
        let mut frame = vec![0; compressed as usize];
        if fill(&mut self.from, &mut frame)? < frame.len() {
            return Err(RecordingError::Truncated { blocks: self.blocks });
        }
        self.block = zstd::bulk::decompress(&frame, length as usize)
            .ok()
            .filter(|block| block.len() == length as usize)
            .ok_or_else(|| self.damaged("it cannot be decompressed"))?;
        self.at = 0;
        self.blocks += 1;
        Ok(head[0])
    }

    fn number(&mut self) -> Result<u64, RecordingError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.block.get(self.at).copied() else { break };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number without an end"))
    }

    fn small(&mut self) -> Result<u32, RecordingError> {
        u32::try_from(self.number()?).map_err(|_| self.damaged("a number that is too large"))
    }

    fn text(&mut self) -> Result<String, RecordingError> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let end = self.at.checked_add(length).filter(|end| *end <= self.block.len());
        let Some(end) = end else { return Err(self.damaged("a text without an end")) };
        let text = String::from_utf8_lossy(&self.block[self.at..end]).into_owned();
        self.at = end;
        Ok(text)
    }

    fn used_up(&self) -> Result<(), RecordingError> {
        if self.at == self.block.len() { Ok(()) } else { Err(self.damaged("it has more than it should")) }
    }

    fn damaged(&self, what: &'static str) -> RecordingError {
        RecordingError::Damaged { block: self.blocks, what }
    }
}

/// Reads until the buffer is full or there is no more; says how much.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Seven bits a byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}
