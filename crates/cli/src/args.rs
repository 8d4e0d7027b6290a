//! The command line: all commands. Each brings its own arguments, and knows nothing of this.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use gleaner_command::everywhere::EverywhereArgs;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

/// Makes multithreaded programs in virtual machines run as if virtual CPUs were CPUs.
///
/// A virtual CPU vanishes when it idles: the hypervisor takes it away, and every wake-up pays to get it back. Gleaner
/// bridges short idle periods (retention), and packs work onto fewer vCPUs where that makes idle periods short
/// (consolidation). It needs no change to kernel, hypervisor or program, and leaves the machine as it found it.
#[derive(Debug, Parser)]
#[command(
    name = "gleaner",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("GLEANER_BUILT_FROM"), ")"),
    max_term_width = 100,
    after_help = "Start with `gleaner doctor`, then `gleaner run -- YOUR-PROGRAM`.\n\
                  GLEANER_LOG=debug in the environment prints what -vv does.\n\n\
                  Exit status: 0 done, 1 the work failed, 2 bad usage or input. Of `run`: the program's own (128+n for \
                  signal n), or 125 when Gleaner failed, 126 not executable, 127 not found."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub everywhere: EverywhereArgs,
}

/// The commands as the first help shows them: a title, and those below it. `host` is shown by what it has.
const GROUPS: [(&str, &[&str]); 5] = [
    ("In a guest", &["doctor", "run", "attach", "ab"]),
    (
        "As a service",
        &["daemon", "status", "explain", "top", "verify", "hold", "release", "reload", "capture", "config"],
    ),
    ("On a host", &["host"]),
    ("Look and measure", &["probe", "replay", "dump", "workload", "report"]),
    ("Besides", &["params", "restore"]),
];

/// The whole command line.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let header = *command.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{header}Everywhere:{header:#}\n{{options}}\
         {{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

/// Every command with what it does, in groups.
fn groups(command: &clap::Command) -> String {
    let mut rows: Vec<(&str, Vec<(String, String)>)> = Vec::new();
    for (title, names) in GROUPS {
        let of_group = names.iter().filter_map(|name| command.find_subcommand(name));
        rows.push((title, of_group.flat_map(|command| with_its_own("", command)).collect()));
    }
    let all = rows.iter().flat_map(|(_, commands)| commands);
    let width = all.map(|(name, _)| name.len()).max().unwrap_or(0);
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text = String::new();
    for (title, commands) in rows {
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for (name, about) in commands {
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    text
}

/// A command, or those that it has.
fn with_its_own(above: &str, command: &clap::Command) -> Vec<(String, String)> {
    let name = format!("{above}{}", command.get_name());
    if command.has_subcommands() {
        return command.get_subcommands().flat_map(|own| with_its_own(&format!("{name} "), own)).collect();
    }
    vec![(name, command.get_about().map(ToString::to_string).unwrap_or_default())]
}

/// What the words say.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what this machine is, what Gleaner can do here, and whether it would help
    Doctor(crate::doctor::DoctorArgs),
    /// Measure what waking a blocked thread costs here, with the vCPU kept awake and halted
    Probe(crate::probe::ProbeArgs),
    /// Run a program under Gleaner
    Run(crate::run::RunArgs),
    /// Keep idle vCPUs awake for something that runs already
    Attach(crate::attach::AttachArgs),
    /// Do for many services what `attach` does for one, as a configuration file says
    Daemon(crate::daemon::DaemonArgs),
    /// Say what the daemon manages, how, and what it has won
    Status(crate::daemon::StatusArgs),
    /// Say why: the newest decisions with the numbers compared, and what would change them
    Explain(crate::daemon::ExplainArgs),
    /// Show what the daemon sees and does, live: vCPUs, groups, decisions
    Top(crate::top::TopArgs),
    /// Compare the machine with what the daemon set
    Verify(crate::daemon::VerifyArgs),
    /// Make the daemon leave a group alone until it is released
    Hold(crate::daemon::HoldArgs),
    /// Let the daemon manage a held group again
    Release(crate::daemon::HoldArgs),
    /// Make the daemon read its configuration anew
    Reload(crate::daemon::AskArgs),
    /// Check or print the daemon's configuration
    Config(crate::daemon::ConfigArgs),
    /// Compare a program with and without Gleaner, in interleaved pairs
    Ab(crate::ab::AbArgs),
    /// Run a built-in program with known synchronization
    Workload(crate::workload::WorkloadArgs),
    /// Make one HTML page of results
    Report(crate::report::ReportArgs),
    /// VMs and their vCPUs, for whoever runs the hypervisor: slices, cache, the host agent
    Host(crate::host::HostArgs),
    /// Write what the daemon has recorded to a file
    Capture(crate::capture::CaptureArgs),
    /// Decide again what a capture recorded, as it was or with other parameters
    Replay(crate::capture::ReplayArgs),
    /// Print what is in a capture
    Dump(crate::capture::DumpArgs),
    /// Print every parameter of a policy: default, range, unit, and what it is
    Params(crate::parameters::ParamsArgs),
    /// Undo what a killed Gleaner left behind
    Restore(crate::restore::RestoreArgs),
    /// Undo a run's changes when its main process dies (started by Gleaner itself)
    #[command(hide = true)]
    Guardian {
        /// The run's journal
        journal: PathBuf,
    },
}

#[cfg(test)]
mod tests;
