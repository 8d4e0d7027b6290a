//! The `gleaner` command: parse -> validated options -> run. Glue only; what it glues is in the other rooms.
//!
//! A library beside its binary, so that man pages and completions are made of the same definition (`crates/reference`).

mod ab;
mod args;
mod attach;
mod busy;
mod calibrate;
mod capture;
mod daemon;
mod doctor;
mod host;
mod joined;
mod machine;
mod means;
mod parameters;
mod probe;
mod report;
mod restore;
mod run;
mod session;
mod stack;
mod top;
mod workload;

use args::Command;
pub use args::command;
use gleaner_command::{ending, failure, output};
use std::process::ExitCode;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    run::signals::hear_of_children();
    stack::with_room(obey)
}

/// Parses the command line and does what it says.
fn obey() -> ExitCode {
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::usage(&error)),
    };
    cli.everywhere.apply();
    // What a lost result is worth, where another status is the program's own.
    let lost = if matches!(cli.command, Command::Run(_) | Command::Ab(_)) { 125 } else { 1 };
    gleaner_command::log::start(cli.everywhere.log());
    let result = match cli.command {
        Command::Doctor(args) => doctor::main(&args),
        Command::Probe(args) => probe::main(&args),
        Command::Run(args) => run::main(args),
        Command::Attach(args) => attach::main(args),
        Command::Daemon(args) => daemon::main(args),
        Command::Status(args) => daemon::status(&args),
        Command::Explain(args) => daemon::explain(&args),
        Command::Top(args) => top::main(args),
        Command::Verify(args) => daemon::verify(&args),
        Command::Hold(args) => daemon::hold(&args),
        Command::Release(args) => daemon::release(&args),
        Command::Reload(args) => daemon::reload(&args),
        Command::Config(args) => daemon::config(&args),
        Command::Ab(args) => ab::main(&args),
        Command::Workload(args) => workload::main(&args),
        Command::Report(args) => report::main(&args),
        Command::Host(args) => host::main(&args),
        Command::Capture(args) => capture::take(&args),
        Command::Replay(args) => capture::replay(&args),
        Command::Dump(args) => capture::dump(&args),
        Command::Params(args) => {
            parameters::print(&args);
            Ok(0)
        }
        Command::Restore(_) => restore::main(),
        Command::Guardian { journal } => gleaner_runtime::guard(&journal).map(|()| 0).map_err(failure::Failure::work),
    };
    let status = match result {
        Ok(status) => output::status(status, lost),
        Err(failure) => {
            output::complain("gleaner", &failure.message);
            failure.status
        }
    };
    ending::by_signal(status);
    ExitCode::from(status)
}
