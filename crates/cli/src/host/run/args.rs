//! `host run`'s arguments.

use crate::host::shared::YEAR;
use crate::host::xen::XenArgs;
use clap::Args;
use gleaner_command::args::{JsonArg, duration_within};
use gleaner_settings::HostSettings;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "`--slice adaptive` finds one slice for each set of VMs that share CPUs, by trying: short where \
                        waiting and spinning cost more than switches do, long where only the cache would suffer. It \
                        judges each step, and takes it back if it did not help or made shares unfair.\n\n\
                        VMs may come and go. Whatever ends the agent, every thread gets its slice back.\n\n\
                        Examples:\n\
                        \x20 gleaner host run\n\
                        \x20 gleaner host run --slice 1ms --for 1m --json run.json\n\
                        \x20 gleaner host run --vm web --vm db\n\
                        \x20 gleaner host run --tid 4711 4712 --slice 1ms --for 10s\n\
                        \x20 gleaner host run --in-turn 30ms,5ms,1ms --passes 20 --json compared.json"
)]
pub struct RunArgs {
    #[command(flatten)]
    pub settings: HostSettings,
    /// Only this VM, by its name or pid (may be repeated)
    #[arg(long, value_name = "NAME|PID", value_parser = crate::host::list::vm_word())]
    pub vm: Vec<String>,
    /// These threads of no VM, by their ids
    #[arg(long, value_name = "TID", num_args = 1.., conflicts_with = "vm", value_parser = clap::value_parser!(i32).range(1..))]
    pub tid: Vec<i32>,
    /// End after so long [default: when told to]
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    pub length: Option<Duration>,
    /// Print a line of JSON after each window, and nothing else on stdout: for the daemon
    #[arg(long, hide = true, conflicts_with_all = ["json", "in_turn"])]
    pub status: bool,
    #[command(flatten)]
    pub json: JsonArg,
    #[command(flatten)]
    pub tuning: TuningArgs,
    #[command(flatten)]
    pub compare: InTurnArgs,
    #[command(flatten)]
    pub xen: XenArgs,
}

/// What `adaptive` goes by.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tuning")]
pub struct TuningArgs {
    /// Parameters of `adaptive`: a TOML file with any of the keys that `gleaner params host` prints
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What is chosen against slices for all, on VMs that go on working.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparing")]
pub struct InTurnArgs {
    /// Compare --slice with each of these: all take turns, in random order, and the report says what VMs ran and waited
    /// under each
    #[arg(long, value_name = "SLICE,...", value_delimiter = ',', value_parser = gleaner_command::args::duration)]
    pub in_turn: Vec<Duration>,
    /// Length of a turn; another 0.4 s before it do not count
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span, requires = "in_turn")]
    pub turn: Duration,
    /// How long --slice runs alone before the first turn
    #[arg(long, value_name = "DURATION", default_value = "12s", value_parser = span, requires = "in_turn")]
    pub lead: Duration,
    /// End after so many turns of each [default: when told to]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "in_turn")]
    pub passes: Option<u32>,
}

/// A year will do.
fn span(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(100)..=YEAR)
}
