//! The service's arguments.

use clap::{Args, Subcommand};
use gleaner_command::args::JsonArg;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Runs until SIGTERM or Ctrl-C; everything is undone then, after kill -9 as well. SIGHUP reloads the \
                        configuration; a broken one changes nothing.\n\n\
                        Files, later ones over earlier ones:\n\
                        \x20 /usr/share/gleaner/gleaner.toml\n\
                        \x20 /etc/gleaner/gleaner.toml\n\
                        \x20 /etc/gleaner/gleaner.d/*.toml\n\n\
                        A file as short as this will do; `gleaner config check` says what is wrong with one:\n\
                        \x20 [group.redis]\n\
                        \x20 unit = \"redis-server\"\n\
                        \x20 profile = \"latency\"\n\n\
                        Examples:\n\
                        \x20 gleaner daemon --dry-run\n\
                        \x20 gleaner daemon --config ./gleaner.toml"
)]
pub struct DaemonArgs {
    /// A configuration instead of the machine's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Watch and decide, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where its lock and its socket are, instead of /run/gleaner: for tests
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether the daemon's configuration is right, or what is wrong with it, where
    Check(CheckArgs),
    /// Print the daemon's configuration as it counts, all files taken together
    Show(CheckArgs),
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// This one, instead of the machine's
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Whom to ask.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Where its socket is, instead of /run/gleaner: for tests
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Without a daemon the status is 1.\n\n\
                        Examples:\n\
                        \x20 gleaner status\n\
                        \x20 gleaner status --textfile /var/lib/prometheus/node-exporter/gleaner.prom")]
pub struct StatusArgs {
    #[command(flatten)]
    pub ask: AskArgs,
    #[command(flatten)]
    pub json: JsonArg,
    /// Write the metrics to this file, for node_exporter's textfile collector; its name ends in .prom
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub textfile: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Without a daemon the status is 1.")]
pub struct VerifyArgs {
    #[command(flatten)]
    pub ask: AskArgs,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Which group.
#[derive(Debug, Args)]
#[command(after_help = "Only root and the daemon's own user may do that. A restart of the daemon forgets it.\n\n\
                        Examples:\n\
                        \x20 gleaner hold redis\n\
                        \x20 gleaner release redis\n\
                        \x20 gleaner hold web         # all groups that [group.web] with a wildcard stands for")]
pub struct HoldArgs {
    /// By its name in `gleaner status`
    #[arg(value_name = "GROUP")]
    pub group: String,
    #[command(flatten)]
    pub ask: AskArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n\
                        \x20 gleaner explain\n\
                        \x20 gleaner explain redis\n\
                        \x20 gleaner explain 3         # vCPU 3\n\
                        \x20 gleaner explain host      # what the host agent gives VMs, and why")]
pub struct ExplainArgs {
    /// A group, or a vCPU by its number; without it all groups
    #[arg(value_name = "GROUP|VCPU")]
    pub what: Option<String>,
    #[command(flatten)]
    pub ask: AskArgs,
}
