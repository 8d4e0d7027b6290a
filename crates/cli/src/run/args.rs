//! `run`'s arguments.

use clap::Args;
use gleaner_command::args::{JsonArg, PolicyArg};
use gleaner_command::params::ParamsArg;
use gleaner_settings::{GroupSettings, MachineSettings};
use std::ffi::OsString;

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner run [OPTIONS] -- CMD [ARG]...",
    after_help = "The program's stdin, stdout, stderr, signals and exit status are its own; the summary goes to \
                  stderr. If Gleaner is killed, the program goes on and everything Gleaner changed is undone.\n\n\
                  Examples:\n\
                  \x20 gleaner run -- pbzip2 -kf big.tar\n\
                  \x20 gleaner run --policy observe -- make -j8       # only watch\n\
                  \x20 gleaner run --profile frugal -- make -j8       # on a shared machine\n\
                  \x20 gleaner run --json run.json -- ./server --port 80"
)]
pub struct RunArgs {
    /// What Gleaner may do [default: full; observe under --profile observe-only]
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    #[command(flatten)]
    pub group: GroupSettings,
    #[command(flatten)]
    pub params: ParamsArg,
    #[command(flatten)]
    pub machine: MachineSettings,
    /// Refuse to run the program (status 125) when something the policy needs cannot be done here
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub daemon: crate::joined::DaemonArgs,
    #[command(flatten)]
    pub recording: crate::capture::RecordingArgs,
    #[command(flatten)]
    pub json: JsonArg,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}
