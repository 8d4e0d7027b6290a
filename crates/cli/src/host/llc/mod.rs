//! `gleaner host llc`: thrashing VMs get the least of the last-level cache, cache-friendly ones the rest.
//!
//! ```text
//! subjects   which VMs, and which of their threads
//! backend    what the host has: resctrl, its ways, counters; and what is missing
//! agent      the loop: count, judge (decide's LlcPolicy)
//! allocation the groups of this run; moves threads between them
//! ```

mod agent;
mod allocation;
mod args;
mod backend;
mod subjects;

use backend::Backend;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_report::LlcReport;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use subjects::Subjects;

pub use args::LlcArgs;
pub use backend::in_a_line;

pub fn main(args: &LlcArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let report = run(args, &interrupted)?;
    output.json(&report)?;
    output.text(&report);
    Ok(u8::from(!report.missing.is_empty() || !report.restored))
}

fn run(args: &LlcArgs, interrupted: &Arc<AtomicBool>) -> Result<LlcReport, Failure> {
    let subjects = Subjects::find(args, interrupted)?;
    let backend = Backend::find(args, &subjects);
    agent::run(args, subjects, backend, interrupted)
}
