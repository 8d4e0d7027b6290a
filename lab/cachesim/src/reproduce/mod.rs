//! The MICRO'14 paper's figures on caches, reproduced: Figures 7, 8, 10, 11 and 12.
//!
//! ```text
//! programs (Table VI, profiles)  ─┐
//! source (made up, or recordings) ┴▶ simulate (one mix, one technique) ──▶ matrix (all of them, in parallel)
//!                                                                              │
//!                                            figures: rows and the paper's statements about them
//! ```
//!
//! Whatever is run in parallel, the rows are the same: every simulation has its own seeds and its own machine, and
//! results are put together in the order of the plan.

mod coloured;
mod figures;
mod matrix;
pub mod programs;
mod simulate;
mod source;
mod statements;
#[cfg(test)]
mod verdicts;

pub use matrix::Technique;
pub use simulate::{ContextResult, Preservation, Setup, simulate};
pub use source::Source;

use crate::geometry::GeometryError;
use crate::static_best::TooMany;
use crate::trace::TraceError;
use gleaner_model::Nanos;
pub use gleaner_papers::Row;
use programs::{MIXES, Mix, Program};

/// A run shorter than this says nothing for certain, quanta of 30 ms for each context.
pub const QUANTA_FULL: u64 = 10;

/// Which figure.
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

    fn has(&self, mix: &Mix) -> bool {
        self.mixes.is_empty() || self.mixes.contains(&mix.number)
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    /// Which figure.
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
    /// More contexts than combinations can be tried for.
    #[error(transparent)]
    TooMany(#[from] TooMany),
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

/// Runs a figure, `jobs` simulations at a time; 0 for as many as there are CPUs.
pub fn reproduce(
    figure: Figure,
    extent: &Extent,
    source: &Source,
    jobs: usize,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    let pool = pool.map_err(|error| ReproduceError::Threads(error.to_string()))?;
    pool.install(|| reproduce_here(figure, extent, source, progress))
}

fn reproduce_here(
    figure: Figure,
    extent: &Extent,
    source: &Source,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let wrong = extent.mixes.iter().find(|number| !MIXES.iter().any(|mix| mix.number == **number));
    if let Some(wrong) = wrong {
        return Err(ReproduceError::NoMix(format!("Table VI has no mix {wrong}; it has 1 to {}", MIXES.len())));
    }
    let mut notes = Vec::new();
    let has = |program: &Program| source.recording(program).is_none_or(|path| path.exists());
    let (mixes, left_out): (Vec<Mix>, Vec<Mix>) = MIXES
        .into_iter()
        .filter(|mix| extent.has(mix))
        .partition(|mix| mix.programs.iter().filter_map(|name| Program::by_name(name)).all(has));
    if let Some(first) = left_out.first() {
        let missing = first.programs.iter().filter_map(|name| Program::by_name(name)).find(|program| !has(program));
        let path = missing.and_then(|program| source.recording(program)).unwrap_or_default();
        notes.push(format!(
            "mixes left out for want of recordings: {}; {} is not there, and `gleaner-lab cache record` makes it",
            left_out.iter().map(|mix| mix.number.to_string()).collect::<Vec<_>>().join(", "),
            path.display()
        ));
    }
    if mixes.is_empty() {
        return Err(ReproduceError::NoMix(notes.concat()));
    }
    if extent.is_smoke() {
        notes.push(format!(
            "smoke run: a result has {QUANTA_FULL} or more quanta of 30 ms for each context, not {} (--quanta {QUANTA_FULL})",
            extent.quanta
        ));
    }
    let rows = match figure {
        Figure::Seven => coloured::rows(extent, &mixes, source, progress)?,
        _ => figures::rows(figure, extent, &mixes, source, progress)?,
    };
    let table = gleaner_papers::table(figure.id());
    notes.extend(table.notes);
    if source.is_recorded() {
        notes.push(
            "recorded programs stand for SPEC's: sjeng; x264 for h264 and namd; bzip2, also for astar; cc1 for gcc \
                    and soplex; xalan for xalancbmk and omnetpp; libquantum, also for milc and mcf"
                .to_owned(),
        );
    }
    Ok(Reproduction { figure, title: table.title, rows, notes })
}

/// The two slices that the paper compares.
pub(crate) const LONG: Nanos = Nanos(30_000_000);
pub(crate) const SHORT: Nanos = Nanos(1_000_000);

/// A run with the long slice, one quantum each before counting.
pub(crate) fn long(extent: &Extent) -> Setup {
    Setup {
        slice: LONG,
        warm_up_quanta: 1,
        quanta: extent.quanta.max(1),
        preservation: Preservation::None,
        prefetch: None,
        colour_shares: Vec::new(),
    }
}

/// A run with the short slice over the same time, two of the sampler's periods each before counting.
pub(crate) fn short(extent: &Extent) -> Setup {
    Setup { slice: SHORT, warm_up_quanta: 20, quanta: extent.quanta.max(1) * (LONG.0 / SHORT.0), ..long(extent) }
}
