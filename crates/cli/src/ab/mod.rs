//! `gleaner ab`: a program with and without Gleaner, or under any two policies, in interleaved pairs.
//!
//! ```text
//!   args -> Plan -> Series (runs, one child each: measure, capture) -> summary -> AbReport
//! ```
//!
//! Every run, `off` too, is a `gleaner run` of this very binary, so that starting costs both modes the same. What a
//! halt costs is measured once, before the first run, and handed to all of them.

mod args;
mod capture;
mod interrupt;
mod measure;
mod number;
mod plan;
mod series;
mod summary;

pub use args::AbArgs;

use crate::failure::Failure;
use crate::output::{Output, say};
use interrupt::Interrupt;
use plan::Plan;
use series::Series;

/// The status where a comparison came out as `--fail-if` names.
const FAILED_IF: u8 = 3;

pub fn main(args: &AbArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let plan = Plan::from_args(args)?;
    let interrupt = Interrupt::listen().map_err(|error| {
        Failure::run(format!("no thread to listen to signals: {}", gleaner_sys::why_refused(&error)))
    })?;
    let series = Series::measured(&plan, &interrupt)?;
    let report = summary::report(&plan, &series);
    // The summary first: if the JSON cannot be written, the result is not lost.
    if !report.runs.is_empty() {
        output.text(&report);
    }
    output.json(&report).map_err(|failure| Failure { status: 125, ..failure })?;
    let Some(stop) = series.stop else {
        let failed = args.fail_if.is_some_and(|fail_if| fail_if.names(&report.verdict));
        return Ok(if failed { FAILED_IF } else { 0 });
    };
    say(&format!("gleaner: {}", stop.message));
    Ok(stop.status)
}
