//! `gleaner-lab sim`: hosts and guests that you do not have, with the policy code that you ship.

pub(crate) mod limits;
mod list;
mod probe;
pub(crate) mod reproduce;
mod results;
mod run;
mod sweep;

use clap::{Args, Subcommand};
use gleaner_command::failure::Failure;

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Simulate a scenario: the files that the test bed runs, on hosts that you do not have
    Run(run::RunArgs),
    /// Simulate a scenario over a grid of parameters and seeds, on all cores or shared out over machines
    Sweep(sweep::SweepArgs),
    /// What can be simulated: programs, schedulers, costs and where their values are from
    List(list::ListArgs),
    /// Simulate a table or figure of the two papers, and compare with what they say
    Reproduce(reproduce::ReproduceArgs),
}

pub fn main(args: &SimArgs) -> Result<u8, Failure> {
    match &args.command {
        SimCommand::Run(args) => run::main(args),
        SimCommand::Sweep(args) => sweep::main(args),
        SimCommand::List(args) => list::main(args),
        SimCommand::Reproduce(args) => reproduce::main(args),
    }
}
