//! `gleaner host run`: the host agent. observe -> decide -> act -> print, until told to end; then everything is undone.
//!
//! ```text
//!   agent     the loop                        watch    vCPU threads -> HostWindow
//!   options   the command line, validated     backend  slices set and enforced, and given back
//!   record    what is said at the end         news     what is said at once
//!   turns     the policy and slices for all, in turn
//! ```

mod agent;
mod backend;
mod news;
mod options;
mod record;
mod turns;
mod watch;

use super::xen::{self, XenSlice, XenSliceArgs};
use crate::args::JsonArg;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use clap::{Args, ValueEnum};
use options::Options;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Policies:\n\
                  \x20 adaptive  one slice for each set of VMs that share CPUs, found by trying:\n\
                  \x20           short where waiting and spinning cost more than switches do, long\n\
                  \x20           where only the cache would suffer. Each step is judged, and taken\n\
                  \x20           back if it did not help or made shares unfair\n\
                  \x20 static    the same slice for every VM (--slice)\n\n\
                  VMs may come and go. Whatever ends the agent, every thread gets its slice back.\n\n\
                  Examples:\n\
                  \x20 gleaner host run\n\
                  \x20 gleaner host run --policy static --slice 1ms --for 1m --json run.json\n\
                  \x20 gleaner host run --vm web --vm db\n\
                  \x20 gleaner host run --in-turn 30ms,5ms,1ms --passes 20 --json compared.json\n\
                  \x20 gleaner host run --qmp /run/old-vm.qmp")]
pub struct RunArgs {
    /// How slices are chosen [default: adaptive; static where --slice is given]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub policy: Option<PolicyArg>,
    /// The slice of policy static [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = crate::args::duration)]
    pub slice: Option<Duration>,
    /// Only this VM, by its name or pid (may be repeated)
    #[arg(long, value_name = "NAME|PID", value_parser = crate::host::list::vm_word())]
    pub vm: Vec<String>,
    /// Ask this QEMU monitor which thread is which vCPU (may be repeated)
    #[arg(long, value_name = "SOCKET")]
    pub qmp: Vec<PathBuf>,
    /// End after so long [default: when told to]
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    pub length: Option<Duration>,
    /// Length of an observation window [default: 1s; 200ms with --in-turn]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub interval: Option<Duration>,
    /// Parameters of the policy: a TOML file with any of the keys that `gleaner params host` prints
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set slices, but let the kernel's tick end them
    #[arg(long)]
    pub no_enforce: bool,
    /// Count VM exits by PAUSE, which tell a VM that spins, through KVM's tracepoint: takes some time at every exit
    #[arg(long)]
    pub pause_exits: bool,
    #[command(flatten)]
    pub json: JsonArg,
    #[command(flatten)]
    pub compare: InTurnArgs,
    #[command(flatten)]
    pub xen: XenSliceArgs,
}

/// The policy against slices for all, on VMs that go on working.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparing")]
pub struct InTurnArgs {
    /// Give the policy and each of these slices for all a turn, over and over, in random order, and say what VMs ran and waited under each
    #[arg(long, value_name = "SLICE,...", value_delimiter = ',', value_parser = crate::args::duration)]
    pub in_turn: Vec<Duration>,
    /// What counts of a turn, after 0.4 s until its slices are in force
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span, requires = "in_turn")]
    pub turn: Duration,
    /// How long the policy has for itself before the first turn
    #[arg(long, value_name = "DURATION", default_value = "12s", value_parser = span, requires = "in_turn")]
    pub lead: Duration,
    /// End after so many turns of each [default: when told to]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "in_turn")]
    pub passes: Option<u32>,
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
    if args.xen.apply() {
        return on_xen(args);
    }
    let options = Options::from_args(args)?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let report = match agent::run(&options, &interrupted) {
        // Before there was anything to do or to tell.
        Err(_) if interrupted.load(Ordering::Relaxed) => return Ok(130),
        report => report?,
    };
    output.json(&report)?;
    output.text(&report);
    Ok(u8::from(!report.restored))
}

/// Xen takes one slice for all, and holds it; the rest of the agent takes what Xen does not tell.
fn on_xen(args: &RunArgs) -> Result<u8, Failure> {
    if args.policy == Some(PolicyArg::Adaptive) || (args.policy.is_none() && args.slice.is_none()) {
        return Err(Failure::input(
            "policy adaptive needs to see how long each vCPU waits and runs at a time, and Xen tells dom0 only its CPU time, to a tenth of a \
             second; on a Xen host use --policy static --slice 1ms",
        ));
    }
    for (given, option) in [
        (args.config.is_some(), "--config"),
        (args.pause_exits, "--pause-exits"),
        (args.no_enforce, "--no-enforce"),
        (!args.compare.in_turn.is_empty(), "--in-turn"),
    ] {
        if given {
            return Err(Failure::input(format!(
                "{option} means nothing on a Xen host, which enforces slices itself; leave it out"
            )));
        }
    }
    if !args.qmp.is_empty() {
        return Err(Failure::input(
            "--qmp means nothing on a Xen host, where Xen itself knows its vCPUs; leave it out",
        ));
    }
    let slice = Some(args.slice.unwrap_or(options::DEFAULT_SLICE));
    xen::slice(&XenSlice { options: &args.xen, slice, domains: &args.vm, length: args.length, json: &args.json })
}
