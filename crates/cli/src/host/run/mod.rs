//! `gleaner host run`: the host agent. observe -> decide -> act -> print, until told to end; then everything is undone.
//!
//! ```text
//!   agent     the loop                        watch    vCPU threads -> HostWindow
//!   options   the command line, validated     means    slices set and enforced, and given back
//!   record    what is said at the end
//! ```

mod agent;
mod means;
mod options;
mod record;
mod watch;

use crate::args::JsonArg;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use clap::{Args, ValueEnum};
use options::Options;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Policies:\n\
                  \x20 adaptive  one slice for each set of VMs that share CPUs, found by trying: short where waiting and spinning cost\n\
                  \x20           more than switches do, long where only the cache would suffer. Each step is judged, and taken back if\n\
                  \x20           it did not help or made shares unfair\n\
                  \x20 static    the same slice for every VM (--slice)\n\n\
                  VMs may come and go. Whatever ends the agent, every thread gets its slice back.\n\n\
                  Examples:\n\
                  \x20 gleaner host run\n\
                  \x20 gleaner host run --policy static --slice 1ms --for 1m --json run.json\n\
                  \x20 gleaner host run --vm web --vm db")]
pub struct RunArgs {
    /// How slices are chosen [default: adaptive; static where --slice is given]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub policy: Option<PolicyArg>,
    /// The slice of policy static [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = crate::args::duration)]
    pub slice: Option<Duration>,
    /// Only this VM, by its name or pid (may be repeated)
    #[arg(long, value_name = "NAME|PID")]
    pub vm: Vec<String>,
    /// End after so long [default: when told to]
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    pub length: Option<Duration>,
    /// Length of an observation window
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span)]
    pub interval: Duration,
    /// Parameters of the policy, a TOML file (docs/tuning.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set slices, but let the kernel's tick end them
    #[arg(long)]
    pub no_enforce: bool,
    /// Count VM exits by PAUSE, which tell a VM that spins, through KVM's tracepoint: some time at every exit (docs/host.md)
    #[arg(long)]
    pub pause_exits: bool,
    #[command(flatten)]
    pub json: JsonArg,
}

/// How slices are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// One for all.
    Static,
    /// One for each set of VMs that share CPUs.
    Adaptive,
}

/// A year will do.
fn span(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 500ms, 10s or 2h"))?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(365 * 24 * 3600);
    if allowed.contains(&parsed) { Ok(parsed) } else { Err("must be within 100ms and a year".to_owned()) }
}

pub fn main(args: &RunArgs) -> Result<u8, Failure> {
    let options = Options::from_args(args)?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let report = agent::run(&options, &interrupted)?;
    output.json(&report)?;
    output.text(&report);
    Ok(u8::from(!report.restored))
}
