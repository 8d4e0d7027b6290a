//! What a program did to memory, one record an access.
//!
//! | source | module |
//! | --- | --- |
//! | synthetic, by stack-distance profile | [`synthetic`] |
//! | what `valgrind --tool=lackey --trace-mem=yes` writes, packed by zstd | [`lackey`] |
//!
//! A source hands out records in batches: one call for thousands of them costs nothing, and memory does not depend on
//! the length of the trace.

mod fetches;
pub mod lackey;
pub mod synthetic;
mod text;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// The instruction itself.
    Fetch,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Virtual address, bytes.
    pub address: u64,
    /// Instructions executed since the record before, the one that makes this access included.
    pub instructions: u32,
    /// What it does.
    pub kind: Kind,
}

/// Records in a batch, at most.
pub const BATCH: usize = 4096;

/// A stream of accesses.
pub trait Trace {
    /// Appends up to about [`BATCH`] records. None at all means that the trace is over.
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError>;
}

impl<T: Trace + ?Sized> Trace for Box<T> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        (**self).fill(batch)
    }
}

/// Any records, for instance those of a test.
pub struct Records<I>(pub I);

impl<I: Iterator<Item = Record>> Trace for Records<I> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.extend(self.0.by_ref().take(BATCH));
        Ok(())
    }
}

/// Records in memory that several contexts, or several runs, share.
#[derive(Clone, Debug)]
pub struct Shared {
    records: Arc<[Record]>,
    at: usize,
}

impl Shared {
    /// From their first.
    pub fn new(records: impl Into<Arc<[Record]>>) -> Self {
        Self { records: records.into(), at: 0 }
    }
}

impl Trace for Shared {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let end = self.records.len().min(self.at + BATCH);
        batch.extend_from_slice(&self.records[self.at..end]);
        self.at = end;
        Ok(())
    }
}

/// A trace of at most so many records is kept rather than opened again: 4 MiB.
const KEPT_RECORDS_MAX: usize = 1 << 18;

/// Begins a trace again when it is over: a short one can stand for a program that goes on. A long one is opened again.
pub struct Repeat<F, T> {
    open: F,
    trace: T,
    /// All records so far; `None`: too many.
    kept: Option<Vec<Record>>,
    /// Where the kept ones are played back, once they are all.
    at: Option<usize>,
}

impl<F: FnMut() -> Result<T, TraceError>, T: Trace> Repeat<F, T> {
    /// Opens it for the first time.
    pub fn new(mut open: F) -> Result<Self, TraceError> {
        let trace = open()?;
        Ok(Self { open, trace, kept: Some(Vec::new()), at: None })
    }

    fn play_kept(&mut self, batch: &mut Vec<Record>, at: usize) {
        let kept = self.kept.as_deref().unwrap_or_default();
        let end = kept.len().min(at + BATCH);
        batch.extend_from_slice(&kept[at..end]);
        self.at = Some(if end == kept.len() { 0 } else { end });
    }
}

impl<F: FnMut() -> Result<T, TraceError>, T: Trace> Trace for Repeat<F, T> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        if let Some(at) = self.at {
            self.play_kept(batch, at);
            return Ok(());
        }
        let before = batch.len();
        self.trace.fill(batch)?;
        if batch.len() == before {
            if self.kept.is_some() {
                // An empty trace stays over.
                self.play_kept(batch, 0);
                return Ok(());
            }
            self.trace = (self.open)()?;
            self.trace.fill(batch)?;
            return Ok(());
        }
        let fits = |kept: &Vec<Record>| kept.len() + (batch.len() - before) <= KEPT_RECORDS_MAX;
        self.kept = self.kept.take().filter(fits);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&batch[before..]);
        }
        Ok(())
    }
}

/// A trace that cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file system's word.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of text that is no access.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// A trace without a single access.
    #[error("{}: no access in it; {expected}", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
    },
}

impl TraceError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn line(path: &Path, line: u64, what: impl Into<String>) -> Self {
        Self::Line { path: path.to_owned(), line, what: what.into() }
    }
}
