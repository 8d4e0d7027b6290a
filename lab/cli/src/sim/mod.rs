//! `gleaner-lab sim`: hosts and guests that you do not have, with the policy code that you ship.

mod from_recording;
pub(crate) mod limits;
mod list;
mod probe;
pub(crate) mod reproduce;
mod results;
mod run;
mod sweep;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use gleaner_sim::Moment;
use limits::StoppedBy;

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
    /// Play a recording back elsewhere: more vCPUs, a neighbour, other slices, Gleaner
    FromRecording(from_recording::FromRecordingArgs),
    /// What can be simulated: programs, schedulers, costs and where their values are from
    List(list::ListArgs),
    /// Simulate a table or figure of the two papers, and compare with what they say
    Reproduce(reproduce::ReproduceArgs),
}

/// How much of a simulation is over, at least: its measured work may end before its time does.
fn share(at: Moment) -> f64 {
    at.now_ns as f64 / at.end_ns.max(1) as f64
}

/// Ended before there was anything to tell.
fn nothing_done(stopped: Option<StoppedBy>) -> Failure {
    let message = "ended before anything was simulated: there is no result".to_owned();
    let status = if stopped == Some(StoppedBy::Interrupt) { 130 } else { 1 };
    Failure { status, message }
}

pub fn main(args: &SimArgs) -> Result<u8, Failure> {
    match &args.command {
        SimCommand::Run(args) => run::main(args),
        SimCommand::Sweep(args) => sweep::main(args),
        SimCommand::FromRecording(args) => from_recording::main(args),
        SimCommand::List(args) => list::main(args),
        SimCommand::Reproduce(args) => reproduce::main(args),
    }
}
