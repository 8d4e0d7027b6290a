//! `gleaner-lab cache`: what time-shared contexts do to a last-level cache, simulated.

mod reproduce;

use clap::{Args, Subcommand};
use gleaner_command::failure::Failure;

#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Reproduce a figure of the micro-sliced paper
    Reproduce(reproduce::ReproduceArgs),
}

pub fn main(args: &CacheArgs) -> Result<u8, Failure> {
    match &args.command {
        CacheCommand::Reproduce(args) => reproduce::main(args),
    }
}
