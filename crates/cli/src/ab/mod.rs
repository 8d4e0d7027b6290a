//! `gleaner ab`: a program with and without Gleaner, or under any two policies, in interleaved pairs.
//!
//! ```text
//!   args -> Plan -> Series (runs, one child each: measure, capture) -> summary -> AbReport
//! ```
//!
//! Every run, `off` too, is a `gleaner run` of this very binary, so that starting costs both modes the same.

mod args;
mod capture;
mod interrupt;
mod measure;
mod number;
mod plan;
mod series;
mod summary;

pub use args::AbArgs;

use gleaner_command::failure::Failure;
use gleaner_command::files::Place;
use gleaner_command::output::{Output, say};
use gleaner_report::AbReport;
use interrupt::Interrupt;
use plan::Plan;
use series::Series;
use std::path::PathBuf;

/// The status where a comparison came out as `--fail-if` names.
const FAILED_IF: u8 = 3;

/// Files beside the JSON, tried out before the work begins.
struct Exports {
    csv: Option<(PathBuf, Place)>,
    markdown: Option<(PathBuf, Place)>,
}

impl Exports {
    fn open(args: &AbArgs) -> Result<Self, Failure> {
        let place = |path: &Option<PathBuf>| -> Result<Option<(PathBuf, Place)>, Failure> {
            let Some(path) = path else { return Ok(None) };
            let place = Place::open(path).map_err(|error| Failure::unwritten(path.display(), &error))?;
            Ok(Some((path.clone(), place)))
        };
        Ok(Self { csv: place(&args.export_csv)?, markdown: place(&args.export_markdown)? })
    }

    fn write(&mut self, report: &AbReport) -> Result<(), Failure> {
        for (file, text) in [(&mut self.csv, report.csv()), (&mut self.markdown, report.markdown())] {
            let Some((path, place)) = file else { continue };
            // The program may itself end with 1 or 2.
            let failed = |error| Failure { status: 125, ..Failure::unwritten(path.display(), &error) };
            place.write(text.as_bytes()).map_err(failed)?;
        }
        Ok(())
    }
}

pub fn main(args: &AbArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let mut exports = Exports::open(args)?;
    let plan = Plan::from_args(args)?;
    let interrupt = Interrupt::listen().map_err(|error| {
        Failure::run(format!("no thread to listen to signals: {}", gleaner_sys::why_refused(&error)))
    })?;
    let series = Series::measured(&plan, &interrupt, summary::so_far)?;
    let report = summary::report(&plan, &series);
    // The summary first: if the JSON cannot be written, the result is not lost.
    if !report.runs.is_empty() {
        output.text(&report);
    }
    output.json(&report).map_err(|failure| Failure { status: 125, ..failure })?;
    exports.write(&report)?;
    let Some(stop) = series.stop else {
        let failed = args.fail_if.is_some_and(|fail_if| report.verdicts().any(|verdict| fail_if.names(verdict)));
        return Ok(if failed { FAILED_IF } else { 0 });
    };
    say(&format!("gleaner: {}", stop.message));
    Ok(stop.status)
}
