//! Both papers' scheduling results, simulated: what `gleaner-lab sim reproduce` prints.
//!
//! ```text
//!   calibration.toml (few values, committed before the first comparison)
//!        |
//!   memory    what dedup asks of the kernel, in both
//!   gleaner/  the 2014 ATC paper: workload models after the real programs, its machine, its settings
//!   micro/    the 2014 MICRO paper
//!        |
//!   gleaner-papers: paper's figure, simulated figure, whether they agree, whether anything of the row was fitted
//! ```
//!
//! A row is `Predicted` only if everything in it comes from somewhere else than the row. Whatever is run in parallel,
//! the rows are the same: a simulation has its own seed, and results are put together in the order of the plan.

mod calibration;
pub mod gleaner;
mod memory;
pub mod micro;
mod result;

pub use gleaner_papers::{AGREES_WITHIN, Basis, Row, within};

pub use result::{Extent, IDS, ReproduceError, Reproduced};

/// Simulates one of [`IDS`].
///
/// # Errors
/// If there is no such identifier, or a simulation does not end.
pub fn reproduce(id: &str, extent: &Extent) -> Result<Reproduced, ReproduceError> {
    gleaner::reproduce(id, extent)
        .or_else(|| micro::reproduce(id, extent))
        .unwrap_or_else(|| Err(ReproduceError::Unknown(id.to_owned())))
}
