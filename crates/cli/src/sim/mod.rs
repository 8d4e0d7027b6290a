//! `gleaner sim`: hosts and guests that you do not have, with the policy code that you ship.

mod from_recording;
mod list;
mod reproduce;
mod run;
mod sweep;

use crate::failure::Failure;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Simulate a scenario
    Run(run::RunArgs),
    /// The scenarios and reproductions that are built in
    List(list::ListArgs),
    /// Simulate a grid of parameters and seeds
    Sweep(sweep::SweepArgs),
    /// Reproduce a table or figure of the papers
    Reproduce(reproduce::ReproduceArgs),
    /// Make a scenario of a recorded program
    FromRecording(from_recording::FromRecordingArgs),
}

pub fn main(args: &SimArgs) -> Result<u8, Failure> {
    match &args.command {
        SimCommand::Run(args) => run::main(args),
        SimCommand::List(args) => list::main(args),
        SimCommand::Sweep(args) => sweep::main(args),
        SimCommand::Reproduce(args) => reproduce::main(args),
        SimCommand::FromRecording(args) => from_recording::main(args),
    }
}
