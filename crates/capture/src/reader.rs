//! Reads a capture, record by record, up to its end or to the first place that cannot be read.

use crate::frame::{self, MAGIC, VERSION};
use crate::record::Record;
use crate::wire::Records;
use std::fmt;
use std::io::{self, BufReader, Read, Seek};

/// Why a file is not read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The system's words.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("this is no capture; `gleaner run --capture FILE` and `gleaner capture` make one")]
    NotACapture,
    /// Written by another Gleaner.
    #[error(
        "the capture has version {found}, and this gleaner reads version {VERSION}; read it with the gleaner that made it"
    )]
    Version {
        /// Its version.
        found: u8,
    },
}

/// A place that cannot be read: the reader ends there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte of the file, from 0, at which the frame begins.
    pub offset: u64,
    /// The number, from 1, that the first record there would have.
    pub record: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}, record {}: {}", self.offset, self.record, self.what)
    }
}

/// Reads a capture. Holds one frame at a time, of 4 MiB at most.
#[derive(Debug)]
pub struct Reader<R: Read + Seek> {
    from: BufReader<R>,
    /// Where the frame begins that is being read.
    frame_at: u64,
    records: Records,
    /// Records so far.
    count: u64,
    is_over: bool,
    is_finished: bool,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads its beginning.
    ///
    /// # Errors
    /// If it is no capture of this version.
    pub fn new(from: R) -> Result<Self, CaptureError> {
        let mut from = BufReader::with_capacity(64 << 10, from);
        let block = match frame::read(&mut from) {
            Ok(block) => block.unwrap_or_default(),
            // What is not the system's is said by zstd of something else's bytes.
            Err(error) if error.raw_os_error().is_some() => return Err(error.into()),
            Err(_) => return Err(CaptureError::NotACapture),
        };
        let records = match block.strip_prefix(&MAGIC).and_then(<[u8]>::split_first) {
            None => return Err(CaptureError::NotACapture),
            Some((&VERSION, records)) => Records::of(records.to_vec()),
            Some((&found, _)) => return Err(CaptureError::Version { found }),
        };
        Ok(Self { from, frame_at: 0, records, count: 0, is_over: false, is_finished: false })
    }

    /// Whether the last record says that there is no more. Otherwise whoever recorded goes on, or was killed.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Records so far.
    pub fn records_read(&self) -> u64 {
        self.count
    }

    /// Opens the next frame, or notices the end; `Err`: what is wrong there.
    fn next_frame(&mut self) -> Result<(), String> {
        self.frame_at = self.from.stream_position().map_err(|error| error.to_string())?;
        let Some(block) = frame::read(&mut self.from).map_err(|error| error.to_string())? else {
            self.is_over = true;
            return Ok(());
        };
        let records = match block.strip_prefix(&MAGIC) {
            None => block,
            Some([VERSION, records @ ..]) => records.to_vec(),
            Some(_) => return Err("a segment of another version begins here".to_owned()),
        };
        self.records = Records::of(records);
        Ok(())
    }

    /// What is behind it is not read: it may rest on what is missing.
    fn damage(&mut self, what: &str) -> Damage {
        self.is_over = true;
        self.is_finished = false;
        Damage { offset: self.frame_at, record: self.count + 1, what: what.to_owned() }
    }
}

impl<R: Read + Seek> Iterator for Reader<R> {
    type Item = Result<Record, Damage>;

    /// The next record. After a damage there is none.
    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.records.next() {
                Some(Ok(record)) => {
                    self.count += 1;
                    self.is_finished = matches!(record, Record::Ends(_));
                    return Some(Ok(record));
                }
                Some(Err(what)) => return Some(Err(self.damage(what))),
                None => {
                    if let Err(what) = self.next_frame() {
                        return Some(Err(self.damage(&what)));
                    }
                }
            }
        }
        None
    }
}
