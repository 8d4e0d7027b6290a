//! `gleaner daemon` and `gleaner config`: the service, and what it is to do; and who asks it.

mod args;
mod ask;

use crate::run::summary;
pub use args::{AskArgs, ConfigArgs, DaemonArgs, ExplainArgs, HoldArgs, StatusArgs, VerifyArgs};
use args::{CheckArgs, ConfigCommand};
pub use ask::{explain, hold, release, reload, status, verify};
use gleaner_act::default_state_dir;
use gleaner_command::failure::Failure;
use gleaner_command::output::{Output, say};
use gleaner_daemon::{Configuration, DaemonError, Options, waiting_now};
use gleaner_report::StatusWaiting;
use std::path::Path;
use std::sync::Arc;

pub fn main(args: DaemonArgs) -> Result<u8, Failure> {
    let state_dir = args.state_dir.unwrap_or_else(default_state_dir);
    let options = Options { file: args.config, dry_run: args.dry_run, state_dir, summarize: summary::of_group };
    let quiet = gleaner_command::output::quiet();
    let told = move |line: &str| {
        if !quiet {
            say(&line);
        }
    };
    gleaner_daemon::run(options, Arc::new(told)).map(|()| 0).map_err(|error| match error {
        DaemonError::Config(error) => Failure::input(error),
        error => Failure::work(error),
    })
}

pub fn config(args: &ConfigArgs) -> Result<u8, Failure> {
    match &args.command {
        ConfigCommand::Check(CheckArgs { file }) => {
            let found = load(file.as_deref())?;
            let from = found.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
            let groups = found.groups.len();
            Output::Text.text(&match (found.files.is_empty(), found.names_no_group) {
                (true, _) => {
                    "No file: the daemon would watch everything, and change nothing. Write /etc/gleaner/gleaner.toml."
                        .to_owned()
                }
                (_, true) => format!("{from}: right. No group is named: the daemon would watch, and change nothing."),
                _ => {
                    let host = if found.host.is_some() { ", and the host agent" } else { "" };
                    let waiting = StatusWaiting::lines(&waiting_now(&found));
                    format!("{from}: right, {groups} group{}{host}.\n{waiting}", if groups == 1 { "" } else { "s" })
                }
            });
        }
        ConfigCommand::Show(CheckArgs { file }) => {
            Output::Text.text(&load(file.as_deref())?);
        }
    }
    Ok(0)
}

fn load(file: Option<&Path>) -> Result<Configuration, Failure> {
    Configuration::load(file).map_err(Failure::input)
}
