//! `gleaner-lab cache`: what time-shared contexts do to a last-level cache, simulated.

mod classify;
mod record;
mod reproduce;
mod run;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use gleaner_cachesim::trace::TraceError;
use gleaner_command::args::size;

#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Simulate contexts that take turns on cores and their caches
    Run(run::RunArgs),
    /// Record the memory accesses of a real program
    Record(record::RecordArgs),
    /// Say whether a program is CPU-bound, cache-friendly or thrashing
    Classify(classify::ClassifyArgs),
    /// Reproduce a figure of the micro-sliced paper
    Reproduce(reproduce::ReproduceArgs),
}

pub fn main(args: &CacheArgs) -> Result<u8, Failure> {
    match &args.command {
        CacheCommand::Run(args) => run::main(args),
        CacheCommand::Record(args) => record::main(args),
        CacheCommand::Classify(args) => classify::main(args),
        CacheCommand::Reproduce(args) => reproduce::main(args),
    }
}

/// A trace that cannot be read is bad input.
fn trace_failure(error: &TraceError) -> Failure {
    match error {
        TraceError::Write { .. } => Failure::work(error),
        _ => Failure::input(error),
    }
}

/// A number of things, with k, M or G for thousands, millions, thousand millions.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "write a whole number, like 5000, 20M or 1G".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more than can be counted; write a smaller number".to_owned())
}

/// As [`count`], and not nothing.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    count(text).and_then(|count| if count > 0 { Ok(count) } else { Err("give at least 1".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_take_units() {
        assert_eq!(["7", "20k", "50M", "2G", "0"].map(count), [7, 20_000, 50_000_000, 2_000_000_000, 0].map(Ok));
        for bad in ["", "M", "1.5M", "-1", "20 M", "99999999999G", "ten"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }
}
