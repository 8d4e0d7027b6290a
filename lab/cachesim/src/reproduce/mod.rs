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
mod result;
mod simulate;
mod source;
mod statements;
#[cfg(test)]
mod tests;

pub use matrix::Technique;
pub use result::{Extent, Figure, Progress, QUANTA_FULL, ReproduceError, Reproduction};
pub use simulate::{ContextResult, Setup, simulate};
pub use source::Source;

pub use gleaner_papers::Row;
use programs::{MIXES, Mix, Program};

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
            "mixes left out for want of recordings: {}; {} is not there: {}",
            left_out.iter().map(|mix| mix.number.to_string()).collect::<Vec<_>>().join(", "),
            path.display(),
            crate::trace::lackey::EXPECTED
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
