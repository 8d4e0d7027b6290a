//! `gleaner-lab cache`: what time-shared contexts do to a last-level cache, simulated.

mod classify;
mod record;
mod reproduce;
mod run;

use clap::{Args, Subcommand};
use gleaner_command::failure::Failure;

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
