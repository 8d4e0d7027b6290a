//! Where the contexts' accesses come from: made up, or recorded from real programs.

use super::programs::{Program, STORE_RATIO};
use super::result::ReproduceError;
use crate::trace::lackey::Lackey;
use crate::trace::synthetic::{LINE_BYTES, Synthetic};
use crate::trace::{BATCH, Kind, Record, Repeat, Trace, TraceError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Records of a made-up program, used in a circle: some tens of millions of instructions.
const CIRCLE_RECORDS: usize = 1 << 21;
/// Made and thrown away before them, until the program's whole footprint is in use.
const FIRST_RECORDS: usize = 1 << 20;

/// How far apart contexts of one recording start: a prime, so that no recording has begun again just there.
const APART_RECORDS: usize = 4_000_037;

/// Where a made-up program's reused data begin, and its stream.
const REUSED_FROM: u64 = 0x1000_0000;
const STREAM_FROM: u64 = 0x10_0000_0000;

/// A made-up program's records. Whoever comes second waits for the first.
type Made = Mutex<Option<Arc<[Record]>>>;

/// Traces by program.
#[derive(Debug, Default)]
pub struct Source {
    /// `None`: made up.
    recordings: Option<PathBuf>,
    made: Mutex<BTreeMap<&'static str, Arc<Made>>>,
}

impl Source {
    /// Made-up programs, or the recordings `DIR/<stand-in>.lackey.zst`.
    pub fn new(recordings: Option<PathBuf>) -> Self {
        Self { recordings, made: Mutex::default() }
    }

    /// Whether real programs stand for the paper's.
    pub fn is_recorded(&self) -> bool {
        self.recordings.is_some()
    }

    /// The recording that stands for a program; `None` where programs are made up.
    pub fn recording(&self, program: &Program) -> Option<PathBuf> {
        self.recordings.as_ref().map(|folder| folder.join(format!("{}.lackey.zst", program.stand_in)))
    }

    /// Whether two programs are played by the same trace.
    pub fn plays_the_same(&self, one: &Program, other: &Program) -> bool {
        if self.is_recorded() { one.stand_in == other.stand_in } else { one.name == other.name }
    }

    /// An endless trace. `turn` tells several contexts of one trace apart: each starts elsewhere.
    pub fn open(&self, program: &'static Program, turn: usize) -> Result<Box<dyn Trace>, ReproduceError> {
        let Some(path) = self.recording(program) else {
            let records = self.made_up(program)?;
            let at = records.len() / 16 * (5 * turn % 16);
            return Ok(Box::new(Circle { records, at }));
        };
        let mut trace = Repeat::new(move || Lackey::open(&path))?;
        // Contexts of one recording start a little apart, too.
        let (mut skipped, mut left) = (Vec::new(), turn * APART_RECORDS);
        while skipped.len() <= left {
            left -= skipped.len();
            skipped.clear();
            trace.fill(&mut skipped)?;
            if skipped.is_empty() {
                // Nothing in it, ever.
                left = 0;
                break;
            }
        }
        Ok(Box::new(Begun { first: skipped.split_off(left), trace }))
    }

    fn made_up(&self, program: &'static Program) -> Result<Arc<[Record]>, ReproduceError> {
        let place = Arc::clone(self.made.lock().expect("no panic while held").entry(program.name).or_default());
        let mut made_before = place.lock().expect("no panic while held");
        if let Some(records) = &*made_before {
            return Ok(Arc::clone(records));
        }
        let seed = program.name.bytes().fold(1, |seed, byte| seed * 31 + u64::from(byte));
        let mut made = MadeUp::new(program, seed)?;
        (0..FIRST_RECORDS).try_for_each(|_| made.next().map(drop))?;
        let records = (0..CIRCLE_RECORDS).map(|_| made.next()).collect::<Result<Arc<[Record]>, _>>()?;
        *made_before = Some(Arc::clone(&records));
        Ok(records)
    }
}

/// A program's stack distances, mixed with its stream.
struct MadeUp {
    reused: Option<Synthetic>,
    batch: Vec<Record>,
    stream_share: f64,
    stream_lines: u64,
    next_line: u64,
    instructions_per_access: f64,
    owed_instructions: f64,
    chance: fastrand::Rng,
}

impl MadeUp {
    fn new(program: &Program, seed: u64) -> Result<Self, ReproduceError> {
        let synthetic = |profile| Synthetic::new(profile, REUSED_FROM, seed, u64::MAX);
        let reused = program.profile().map(synthetic).transpose();
        let (stream_share, stream_lines) = program.stream();
        Ok(Self {
            reused: reused.map_err(|error| ReproduceError::Profile(format!("{}: {error}", program.name)))?,
            batch: Vec::new(),
            stream_share,
            stream_lines,
            next_line: 0,
            instructions_per_access: 1.0 / program.accesses_per_instruction(),
            owed_instructions: 0.0,
            chance: fastrand::Rng::with_seed(seed),
        })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some tens, never negative")]
    fn next(&mut self) -> Result<Record, TraceError> {
        self.owed_instructions += self.instructions_per_access;
        let instructions = self.owed_instructions as u32;
        self.owed_instructions -= f64::from(instructions);
        if let Some(reused) = self.reused.as_mut().filter(|_| self.chance.f64() >= self.stream_share) {
            if self.batch.is_empty() {
                reused.fill(&mut self.batch)?;
                self.batch.reverse();
            }
            if let Some(record) = self.batch.pop() {
                return Ok(Record { instructions, ..record });
            }
        }
        let address = STREAM_FROM + self.next_line * LINE_BYTES;
        self.next_line = (self.next_line + 1) % self.stream_lines;
        let kind = if self.chance.f64() < STORE_RATIO { Kind::Write } else { Kind::Read };
        Ok(Record { address, instructions, kind })
    }
}

/// A trace of which the first records have been read.
struct Begun<T> {
    first: Vec<Record>,
    trace: T,
}

impl<T: Trace> Trace for Begun<T> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        if self.first.is_empty() {
            return self.trace.fill(batch);
        }
        batch.append(&mut self.first);
        Ok(())
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
