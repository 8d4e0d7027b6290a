//! `gleaner-lab sim`: hosts and guests that you do not have, with the policy code that you ship.

mod lines;
mod list;
mod probe;
pub(crate) mod reproduce;
mod results;
mod run;
mod set;
mod settings;

use clap::{Args, Subcommand};
use gleaner_command::failure::Failure;
use gleaner_command::output::{form, shown};
use indicatif::ProgressBar;

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Simulate a scenario: the files that the test bed runs, on hosts that you do not have
    Run(run::RunArgs),
    /// What can be simulated: programs, schedulers, costs and where their values are from
    List(list::ListArgs),
    /// Simulate a table or figure of the two papers, and compare with what they say
    Reproduce(reproduce::ReproduceArgs),
}

pub fn main(args: &SimArgs) -> Result<u8, Failure> {
    match &args.command {
        SimCommand::Run(args) => run::main(args),
        SimCommand::List(args) => list::main(args),
        SimCommand::Reproduce(args) => reproduce::main(args),
    }
}

/// A bar for so many simulations, figures or tables.
pub(crate) fn progress(of: usize) -> ProgressBar {
    let bar = shown(ProgressBar::new(of as u64));
    form(&bar, "  simulating [{bar:30}] {pos} of {len} {msg} {left}");
    bar
}
