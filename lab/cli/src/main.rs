//! The `gleaner-lab` binary: for those who must decide for machines that they do not have. Parse -> validated options
//! -> run.

mod args;
mod cache;
mod report;
mod sim;

use args::{Cli, Command};
use clap::Parser;
use gleaner_command::output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::usage(&error)),
    };
    cli.everywhere.apply();
    gleaner_command::log::start(cli.everywhere.log());
    let result = match cli.command {
        Command::Sim(args) => sim::main(&args),
        Command::Cache(args) => cache::main(&args),
        Command::Bed(args) => gleaner_testbed::main(&args),
        Command::Report(args) => report::main(&args),
    };
    match result {
        Ok(status) => ExitCode::from(output::status(status, 1)),
        Err(failure) => {
            output::complain("gleaner-lab", &failure.message);
            ExitCode::from(failure.status)
        }
    }
}
