//! Where frames go: one file, which ends when it is as long as it may be; or a ring of files, of which the oldest goes.

use crate::frame::whole_length;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A ring has so many segments, more or less: what goes at once.
const SEGMENTS: u64 = 8;
/// Of a file, kept for the frame that says that it is full.
const END_BYTES: u64 = 128;
const PREFIX: &str = "capture-";
const SUFFIX: &str = ".gleaner";

/// Why no more is written.
#[derive(Debug)]
pub(crate) enum Stop {
    /// All that may be is.
    Full,
    /// The system's words.
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Where frames go.
#[derive(Debug)]
pub(crate) enum Store {
    /// One file, of at most so many bytes.
    File { file: File, limit: u64, written: u64 },
    /// The newest segments in a folder.
    Ring(Ring),
}

impl Store {
    pub(crate) fn begin_segment(&mut self) -> Result<(), Stop> {
        match self {
            Self::File { .. } => {}
            Self::Ring(ring) => ring.begin()?,
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let length = bytes.len() as u64;
        match self {
            Self::File { file, limit, written } => {
                if *written + length + END_BYTES > *limit {
                    return Err(Stop::Full);
                }
                file.write_all(bytes)?;
                *written += length;
            }
            Self::Ring(ring) => ring.write(bytes)?,
        }
        Ok(())
    }

    /// Ends it with this, whatever the limit.
    pub(crate) fn write_last(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(bytes),
            Self::Ring(ring) => ring.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes)),
        }
    }

    /// Whether a new segment is due.
    pub(crate) fn is_segment_full(&self) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Ring(ring) => ring.since_begun >= ring.limit / SEGMENTS,
        }
    }

    /// What follows is no beginning any more: a segment may be full by it.
    pub(crate) fn begun(&mut self) {
        if let Self::Ring(ring) = self {
            ring.since_begun = 0;
        }
    }

    /// The segments there are, oldest first.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        match self {
            Self::File { .. } => Vec::new(),
            Self::Ring(ring) => ring.segments.iter().map(|(path, _)| path.clone()).collect(),
        }
    }
}

/// The newest segments in a folder.
#[derive(Debug)]
pub(crate) struct Ring {
    folder: PathBuf,
    limit: u64,
    /// Oldest first, with their lengths; the last one is being written.
    segments: VecDeque<(PathBuf, u64)>,
    file: Option<File>,
    next: u64,
    /// Bytes of the last one, without its beginning.
    since_begun: u64,
}

impl Ring {
    /// Goes on with what is in `folder`, which is made where it is missing. All segments together have `limit` bytes at
    /// most.
    pub(crate) fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some(number) = number_of(&path) {
                found.push((number, path.clone(), fs::symlink_metadata(&path)?.len()));
            }
        }
        found.sort();
        if let Some((_, newest, length)) = found.last_mut() {
            *length = cut_off_half_a_frame(newest)?;
        }
        let next = found.last().map_or(1, |(number, ..)| number + 1);
        let segments = found.into_iter().map(|(_, path, length)| (path, length)).collect();
        Ok(Self { folder: folder.to_owned(), limit, segments, file: None, next, since_begun: 0 })
    }

    fn begin(&mut self) -> io::Result<()> {
        self.file = None;
        let path = self.folder.join(format!("{PREFIX}{:010}{SUFFIX}", self.next));
        // A folder that was removed is not made again: somebody wanted it to be gone.
        self.file = Some(OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?);
        self.next += 1;
        self.segments.push_back((path, 0));
        self.since_begun = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let length = bytes.len() as u64;
        let mut all: u64 = self.segments.iter().map(|(_, length)| length).sum();
        while all + length > self.limit && self.segments.len() > 1 {
            let Some((oldest, length)) = self.segments.pop_front() else { break };
            match fs::remove_file(&oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => all -= length,
            }
        }
        if all + length > self.limit {
            return Err(Stop::Full);
        }
        let (Some(file), Some((path, written))) = (&mut self.file, self.segments.back_mut()) else {
            return Err(Stop::Io(io::Error::other("no segment has begun")));
        };
        // What is written to a removed file is written for nobody.
        fs::symlink_metadata(path)?;
        file.write_all(bytes)?;
        *written += length;
        self.since_begun += length;
        Ok(())
    }
}

/// A recorder that was killed may have left half a frame, and a reader of the ring would end there. How long the file
/// is then.
fn cut_off_half_a_frame(path: &Path) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    let whole = whole_length(&bytes);
    if whole < bytes.len() {
        OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(whole as u64)
}

/// Whether a file is, by its name, a segment of a ring.
pub fn is_segment(path: &Path) -> bool {
    number_of(path).is_some()
}

fn number_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}
