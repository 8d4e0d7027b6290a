//! Reads a capture, record by record: what is damaged is told, with its place, and what follows it is read all the
//! same.

use crate::frame::{HEAD_BYTES, Head, MAGIC, MARKER, VERSION};
use crate::record::Record;
use crate::wire::Records;
use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// Bytes looked at in search of the next whole frame, all together: a file of nothing but beginnings would take for
/// ever.
const SEARCH_BYTES_MAX: u64 = 512 << 20;
/// Damaged places told of one file.
const DAMAGES_MAX: usize = 100;

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

/// A place that cannot be read.
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

/// The next thing in a file.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A record.
    Record(Record),
    /// Something is missing here.
    Damage(Damage),
}

/// Reads a capture. Holds one frame at a time, of 4 MiB at most.
#[derive(Debug)]
pub struct Reader<R: Read + Seek> {
    from: BufReader<R>,
    /// Where the next frame begins.
    offset: u64,
    /// Where the one begins that is being read.
    frame_at: u64,
    records: Records,
    /// Records so far.
    count: u64,
    damages: usize,
    searched: u64,
    is_over: bool,
    whole: bool,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads its beginning.
    ///
    /// # Errors
    /// If it is no capture of this version.
    pub fn new(from: R) -> Result<Self, CaptureError> {
        let mut from = BufReader::with_capacity(64 << 10, from);
        let mut start = [0; 9];
        let got = fill(&mut from, &mut start)?;
        if got < MAGIC.len() || start[..MAGIC.len()] != MAGIC {
            return Err(CaptureError::NotACapture);
        }
        if got == start.len() && start[8] != VERSION {
            return Err(CaptureError::Version { found: start[8] });
        }
        Ok(Self {
            from,
            offset: got as u64,
            frame_at: 0,
            records: Records::default(),
            count: 0,
            damages: 0,
            searched: 0,
            is_over: false,
            whole: false,
        })
    }

    /// Whether the last record says that there is no more. Otherwise whoever recorded goes on, or was killed.
    pub fn is_finished(&self) -> bool {
        self.whole
    }

    /// Records so far.
    pub fn records_read(&self) -> u64 {
        self.count
    }

    fn next_item(&mut self) -> Option<Item> {
        loop {
            match self.records.next() {
                Some(Ok(record)) => {
                    self.count += 1;
                    self.whole = matches!(record, Record::Ends(_));
                    return Some(Item::Record(record));
                }
                Some(Err(what)) => {
                    // The rest of the frame may rest on it.
                    self.records = Records::default();
                    return Some(self.damage(self.frame_at, what));
                }
                None if self.is_over => return None,
                None => {
                    if let Some(damage) = self.next_frame() {
                        return Some(damage);
                    }
                }
            }
        }
    }

    /// Opens the next frame, or notices the end; `Some`: something is wrong there.
    fn next_frame(&mut self) -> Option<Item> {
        let at = self.offset;
        match self.frame() {
            Ok(Some(Found::Frame(block, length))) => {
                (self.frame_at, self.offset) = (at, at + length);
                self.records = Records::of(block);
                None
            }
            Ok(Some(Found::Segment)) => {
                self.offset = at + MAGIC.len() as u64 + 1;
                None
            }
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(what) => {
                let damage = self.damage(at, &what);
                self.whole = false;
                self.is_over = self.is_over || self.damages >= DAMAGES_MAX || !self.find_next(at + 1);
                Some(damage)
            }
        }
    }

    fn damage(&mut self, offset: u64, what: &str) -> Item {
        self.damages += 1;
        Item::Damage(Damage { offset, record: self.count + 1, what: what.to_owned() })
    }

    /// What begins where the file is read now; `None` at its end.
    fn frame(&mut self) -> Result<Option<Found>, String> {
        let cannot_read = |error: io::Error| format!("it cannot be read: {error}");
        let mut head = [0; HEAD_BYTES];
        let got = fill(&mut self.from, &mut head[..MARKER.len()]).map_err(cannot_read)?;
        match &head[..MARKER.len()] {
            _ if got == 0 => return Ok(None),
            _ if got < MARKER.len() => return Err("the file ends within a frame".to_owned()),
            begin if begin == &MAGIC[..MARKER.len()] => {
                let rest = &mut head[MARKER.len()..=MAGIC.len()];
                let got = fill(&mut self.from, rest).map_err(cannot_read)?;
                return match rest {
                    _ if got < rest.len() => Err("the file ends within the beginning of a segment".to_owned()),
                    rest if rest[..4] != MAGIC[MARKER.len()..] => Err("no frame begins here".to_owned()),
                    rest if rest[4] != VERSION => Err(format!("a segment of version {} begins here", rest[4])),
                    _ => Ok(Some(Found::Segment)),
                };
            }
            begin if begin != MARKER => return Err("no frame begins here".to_owned()),
            _ => {}
        }
        let got = fill(&mut self.from, &mut head[MARKER.len()..]).map_err(cannot_read)?;
        if got < HEAD_BYTES - MARKER.len() {
            return Err("the file ends within a frame".to_owned());
        }
        let head = Head::parse(&head).ok_or("its lengths cannot be")?;
        let mut payload = Vec::new();
        // Grows with what there is: a length alone allocates nothing.
        (&mut self.from).take(head.payload as u64).read_to_end(&mut payload).map_err(cannot_read)?;
        if payload.len() < head.payload {
            return Err("the file ends within a frame".to_owned());
        }
        Ok(Some(Found::Frame(head.open(&payload)?, (HEAD_BYTES + head.payload) as u64)))
    }

    /// Goes to the next place from `at` on where a whole frame or a segment begins; false: there is none.
    fn find_next(&mut self, mut at: u64) -> bool {
        while self.searched < SEARCH_BYTES_MAX {
            let Some(found) = self.find_beginning(at) else { return false };
            if self.from.seek(SeekFrom::Start(found)).is_err() {
                return false;
            }
            let is_whole = matches!(self.frame(), Ok(Some(_)));
            self.searched += self.from.stream_position().unwrap_or(found).saturating_sub(found);
            if is_whole && self.from.seek(SeekFrom::Start(found)).is_ok() {
                self.offset = found;
                return true;
            }
            at = found + 1;
        }
        false
    }

    /// The first place from `at` on that looks like a beginning.
    fn find_beginning(&mut self, mut at: u64) -> Option<u64> {
        let mut bytes = vec![0; 64 << 10];
        while self.searched < SEARCH_BYTES_MAX {
            self.from.seek(SeekFrom::Start(at)).ok()?;
            let got = fill(&mut self.from, &mut bytes).ok()?;
            let begins = |four: &[u8]| four == MARKER || *four == MAGIC[..MARKER.len()];
            if let Some(found) = bytes[..got].windows(MARKER.len()).position(begins) {
                self.searched += found as u64;
                return Some(at + found as u64);
            }
            if got < bytes.len() {
                return None;
            }
            // One may begin in the last three.
            let passed = (got - (MARKER.len() - 1)) as u64;
            at += passed;
            self.searched += passed;
        }
        None
    }
}

enum Found {
    /// With how long it is in the file.
    Frame(Vec<u8>, u64),
    Segment,
}

impl<R: Read + Seek> Iterator for Reader<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.next_item()
    }
}

/// As much as there is.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
