//! Where the contexts' accesses come from: made up, or recorded from real programs.

use super::ReproduceError;
use super::programs::Program;
use crate::trace::recording::Recording;
use crate::trace::synthetic::Synthetic;
use crate::trace::{BATCH, Record, Repeat, Trace, TraceError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// Records of a made-up program, used in a circle: some tens of millions of instructions.
const CIRCLE_RECORDS: usize = 1 << 21;
/// Made and thrown away before them, until the program's whole footprint is in use.
const FIRST_RECORDS: usize = 1 << 20;

/// Traces by program.
#[derive(Debug, Default)]
pub struct Source {
    /// `None`: made up.
    recordings: Option<PathBuf>,
    made: Mutex<BTreeMap<&'static str, Arc<OnceLock<Arc<[Record]>>>>>,
}

impl Source {
    /// Made-up programs, or the recordings `DIR/<stand-in>.gltrace`.
    pub fn new(recordings: Option<PathBuf>) -> Self {
        Self { recordings, made: Mutex::default() }
    }

    /// Whether real programs stand for the paper's.
    pub fn is_recorded(&self) -> bool {
        self.recordings.is_some()
    }

    /// The recording that stands for a program; `None` where programs are made up.
    pub fn recording(&self, program: &Program) -> Option<PathBuf> {
        self.recordings.as_ref().map(|folder| folder.join(format!("{}.gltrace", program.stand_in)))
    }

    /// An endless trace. `turn` tells several contexts of one program apart: each starts elsewhere.
    pub fn open(&self, program: &'static Program, turn: usize) -> Result<Box<dyn Trace>, ReproduceError> {
        let Some(path) = self.recording(program) else {
            let records = self.made_up(program)?;
            let at = records.len() / 16 * (5 * turn % 16);
            return Ok(Box::new(Circle { records, at }));
        };
        let mut trace = Repeat::new(move || Recording::open(&path))?;
        // Contexts of one recording start a little apart, too.
        let mut skipped = Vec::new();
        for _ in 0..turn * 64 {
            skipped.clear();
            trace.fill(&mut skipped)?;
        }
        Ok(Box::new(trace))
    }

    fn made_up(&self, program: &'static Program) -> Result<Arc<[Record]>, ReproduceError> {
        let cell = Arc::clone(self.made.lock().expect("no panic while held").entry(program.name).or_default());
        if let Some(records) = cell.get() {
            return Ok(Arc::clone(records));
        }
        let seed = program.name.bytes().fold(1, |seed, byte| seed * 31 + u64::from(byte));
        let mut trace = Synthetic::new(program.profile(), 0x1000_0000, seed, u64::MAX)
            .map_err(|error| ReproduceError::Profile(format!("{}: {error}", program.name)))?;
        let mut records = Vec::with_capacity(CIRCLE_RECORDS + BATCH);
        let mut left = FIRST_RECORDS;
        while left > 0 {
            records.clear();
            trace.fill(&mut records)?;
            left = left.saturating_sub(records.len());
        }
        records.clear();
        while records.len() < CIRCLE_RECORDS {
            trace.fill(&mut records)?;
        }
        // Somebody else may have been faster; both have made the same.
        Ok(Arc::clone(cell.get_or_init(|| records.into())))
    }
}

/// Records in memory, over and over.
struct Circle {
    records: Arc<[Record]>,
    at: usize,
}

impl Trace for Circle {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let end = self.records.len().min(self.at + BATCH);
        batch.extend_from_slice(&self.records[self.at..end]);
        self.at = if end == self.records.len() { 0 } else { end };
        Ok(())
    }
}
