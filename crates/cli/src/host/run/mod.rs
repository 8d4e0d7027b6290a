//! `gleaner host run`: the host agent. observe -> decide -> act -> print, until told to end; then everything is undone.
//!
//! ```text
//!   agent     the loop                        watch    vCPU threads -> HostWindow
//!   options   the command line, validated     backend  slices set and enforced, and given back
//!   record    what is said at the end         new_warnings  what is said at once
//!   turns     the policy and slices for all, in turn
//!   subjects  which VMs, or threads of no VM
//! ```

mod agent;
mod args;
mod backend;
mod new_warnings;
mod options;
mod record;
mod subjects;
mod turns;
mod watch;

pub use args::RunArgs;

use super::xen;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_settings::HostSlice;
use options::Options;

pub fn main(args: &RunArgs) -> Result<u8, Failure> {
    // In a dom0 too a thread is a thread.
    if args.tid.is_empty() && args.xen.apply() {
        return on_xen(args);
    }
    let options = Options::from_args(args)?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let report = agent::run(&options, &interrupted)?;
    output.json(&report)?;
    if !args.status {
        output.text(&report);
    }
    Ok(u8::from(!report.restored))
}

/// Xen takes one slice for all, and holds it; the rest of the agent takes what Xen does not tell.
fn on_xen(args: &RunArgs) -> Result<u8, Failure> {
    let slice = match (args.settings.slice(), args.settings.slice.is_none() && args.xen.ratelimit.is_some()) {
        (HostSlice::Fixed(slice), _) => Some(slice),
        (HostSlice::Adaptive, true) => None,
        (HostSlice::Adaptive, false) => {
            return Err(Failure::input(
                "--slice adaptive needs to see how long each vCPU waits and runs at a time, and Xen does not tell; on a \
                 Xen host say --slice 1ms",
            ));
        }
    };
    for (given, option) in [
        (!args.vm.is_empty(), "--vm"),
        (args.tuning.config.is_some(), "--config"),
        (args.settings.pause_exits == Some(true), "--pause-exits"),
        (args.settings.enforce == Some(false), "--no-enforce"),
        (!args.compare.in_turn.is_empty(), "--in-turn"),
    ] {
        if given {
            return Err(Failure::input(format!(
                "{option} means nothing on a Xen host, which enforces one slice for a whole cpupool; leave it out"
            )));
        }
    }
    xen::hold(&args.xen, slice, args.length, &args.json)
}
