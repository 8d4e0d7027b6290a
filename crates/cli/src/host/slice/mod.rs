//! `gleaner host slice`: give threads a slice, enforce it, measure what was delivered, put everything back.

mod chosen;
mod command;
mod enforce;
mod held;

pub use held::without_room;

use super::list::looking;
use super::xen::{self, XenSlice, XenSliceArgs};
use super::{YEAR, takes_ticker};
use crate::args::{JsonArg, any_duration, duration_within};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use clap::{ArgGroup, Args};
use gleaner_act::{SLICE_RANGE, refuse_slice, switch_cost};
use gleaner_model::Nanos;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("threads").args(["tid", "vm", "all"])),
    after_help = "Threads keep their nice value and scheduling policy. The kernel enforces a slice where its HRTICK \
                  feature is on. Elsewhere a SCHED_FIFO thread does, on each CPU where such threads compete; it sleeps \
                  while they do not. Slices are put back when the command ends, however it ends.\n\n\
                  Between VMs that compute all the time the shortest slice on a CPU is everybody's there: give it to \
                  all that compete (--all).\n\n\
                  Examples:\n\
                  \x20 gleaner host slice --all --slice 1ms              # until Ctrl-C\n\
                  \x20 gleaner host slice --vm web --vm db --slice 500us --for 1m --json slice.json\n\
                  \x20 gleaner host slice --tid 4711 4712 --slice 1ms -- ./measure-something\n\
                  \x20 gleaner host slice --all --slice 1ms --for 10s --no-enforce   # what the kernel alone makes of \
                  it"
)]
pub struct SliceArgs {
    /// These threads, by their ids
    #[arg(long, value_name = "TID", num_args = 1.., value_parser = clap::value_parser!(i32).range(1..))]
    pub tid: Vec<i32>,
    /// The vCPUs of these VMs, by name or pid
    #[arg(long, value_name = "NAME|PID", num_args = 1.., value_parser = crate::host::list::vm_word())]
    pub vm: Vec<String>,
    /// The vCPUs of every VM
    #[arg(long)]
    pub all: bool,
    /// Ask this QEMU monitor which thread is which vCPU (may be repeated)
    #[arg(long, value_name = "SOCKET", conflicts_with = "tid")]
    pub qmp: Vec<PathBuf>,
    /// The slice: 100us to 100ms (on a Xen host as its scheduler allows)
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub slice: Option<Duration>,
    /// End after so long [default: when the command ends, or when told to]
    #[arg(long = "for", value_name = "DURATION", value_parser = lasting, conflicts_with = "command")]
    pub length: Option<Duration>,
    /// Set slices, but let the kernel's tick end them
    #[arg(long)]
    pub no_enforce: bool,
    #[command(flatten)]
    pub json: JsonArg,
    /// A command to run meanwhile; its exit status is then Gleaner's
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
    #[command(flatten)]
    pub xen: XenSliceArgs,
}

fn lasting(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(10)..=YEAR)
}

pub fn main(args: &SliceArgs) -> Result<u8, Failure> {
    // In a dom0 too a thread is a thread.
    if args.tid.is_empty() && args.xen.apply() {
        if !args.command.is_empty() {
            return Err(Failure::input("on a Xen host no command is run meanwhile: say how long with --for"));
        }
        let (slice, domains, length) = (args.slice, args.vm.as_slice(), args.length);
        return xen::slice(&XenSlice { options: &args.xen, slice, domains, length, json: &args.json });
    }
    if args.tid.is_empty() && args.vm.is_empty() && !args.all {
        return Err(Failure::input("whose slice? Name VMs with --vm, threads with --tid, or give --all"));
    }
    let Some(slice) = args.slice.map(Nanos::from) else {
        return Err(Failure::input("--slice is missing: name the slice, like --slice 1ms"));
    };
    // Before anything is measured, looked for or changed.
    if !SLICE_RANGE.contains(&slice) {
        return Err(Failure::input(format!(
            "--slice {slice} is out of range: from {} to {}",
            SLICE_RANGE.start(),
            SLICE_RANGE.end()
        )));
    }
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let options = looking(&args.qmp, &interrupted);
    let (threads, wanted) = match chosen::choose(args, &options) {
        Err(_) if interrupted.load(Ordering::Relaxed) => return Ok(interrupt::status()),
        chosen => chosen?,
    };
    let switch = switch_cost();
    let takes_ticker = !args.no_enforce && takes_ticker()(slice);
    refuse_slice(slice, takes_ticker, switch, Path::new("/proc")).map_err(Failure::input)?;
    let wanted = RefCell::new(wanted);
    let look_again = || chosen::look_again(args, &options, &mut wanted.borrow_mut());
    let held = held::Request {
        slice,
        enforce: !args.no_enforce,
        length: args.length,
        command: &args.command,
        look_again: &look_again,
    };
    let report = held::hold(&held, threads, switch, &interrupted)?;
    output.text(&report);
    output.json(&report)?;
    Ok(status(report.exit_status, report.restored))
}

/// The command's own status; 1 where it went well, or there was none, and not everything could be put back.
fn status(command: Option<i32>, restored: bool) -> u8 {
    // A status is a byte.
    let own = command.map_or(0, |status| u8::try_from(status & 0xff).unwrap_or(1));
    if own == 0 { u8::from(!restored) } else { own }
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn what_could_not_be_put_back_is_a_failure() {
        for (command, restored, expected) in [
            (None, true, 0),
            (None, false, 1),
            (Some(0), true, 0),
            (Some(0), false, 1),
            (Some(7), true, 7),
            (Some(7), false, 7),
            (Some(143), false, 143),
        ] {
            assert_eq!(status(command, restored), expected, "{command:?} {restored}");
        }
    }
}
