//! The `gleaner-lab` binary: for those who must decide for machines that they do not have. Parse -> validated options
//! -> run.

mod args;
mod cache;
mod report;
mod sim;

use args::{Cli, Command};
use clap::Parser;
// The rooms of this binary name them as their own.
use gleaner_command::{failure, files, interrupt, output, params, refusal};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::usage(&error)),
    };
    gleaner_command::log::start("off");
    let result = match cli.command {
        Command::Sim(args) => sim::main(&args),
        Command::Cache(args) => cache::main(&args),
        Command::Bed(args) => gleaner_testbed::main(&args),
        Command::Report(args) => report::main(&args),
    };
    match result {
        Ok(status) => ExitCode::from(output::status(status, 1)),
        Err(failure) => {
            output::say(&format!("gleaner-lab: {}", failure.message));
            ExitCode::from(failure.status)
        }
    }
}
