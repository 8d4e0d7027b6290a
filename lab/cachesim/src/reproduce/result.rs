//! What a reproduction is asked for, and what comes out.

use super::programs::Mix;
use crate::geometry::GeometryError;
use crate::trace::TraceError;
use gleaner_papers::Row;

/// A run shorter than this says nothing for certain, quanta of 30 ms for each context.
pub const QUANTA_FULL: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Page colouring, beside libquantum.
    Seven,
    /// CPI at 30 ms and 1 ms, and how much of it is cache pollution.
    Eight,
    /// CPI by technique, two contexts.
    Ten,
    /// Memory requests by technique, two contexts.
    Eleven,
    /// CPI by technique, four contexts.
    Twelve,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Seven, Self::Eight, Self::Ten, Self::Eleven, Self::Twelve];

    /// Its identifier on the command line and in results.
    pub fn id(self) -> &'static str {
        match self {
            Self::Seven => "micro:fig7",
            Self::Eight => "micro:fig8",
            Self::Ten => "micro:fig10",
            Self::Eleven => "micro:fig11",
            Self::Twelve => "micro:fig12",
        }
    }
}

/// How much is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Quanta of 30 ms that are counted for each context; at 1 ms, thirty times as many. At least 1.
    pub quanta: u64,
    /// Numbers of the mixes, from Table VI; empty for all. Figure 7 has programs beside libquantum and takes no notice.
    pub mixes: Vec<u32>,
}

impl Extent {
    /// Whether it is too little for a result.
    pub fn is_smoke(&self) -> bool {
        self.quanta < QUANTA_FULL
    }

    pub(super) fn has(&self, mix: &Mix) -> bool {
        self.mixes.is_empty() || self.mixes.contains(&mix.number)
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    pub figure: Figure,
    /// What it shows.
    pub title: String,
    /// Its rows: what was measured, then the paper's statements.
    pub rows: Vec<Row>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// A reproduction that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A recording that cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A machine that cannot be.
    #[error(transparent)]
    Machine(#[from] GeometryError),
    /// A program's profile that cannot be.
    #[error("{0}")]
    Profile(String),
    /// No threads to run it on.
    #[error("cannot start threads: {0}; try --jobs 1")]
    Threads(String),
    /// No mix is left.
    #[error("no mix to run: {0}")]
    NoMix(String),
}

/// Told how many simulations there will be, then once for each that is over. Called from several threads.
pub trait Progress: Sync {
    /// So many to do, in all.
    fn planned(&self, _simulations: u64) {}
    /// One is over.
    fn done(&self) {}
}

impl Progress for () {}
