//! `host slice`'s arguments.

use crate::host::shared::YEAR;
use crate::host::xen::XenSliceArgs;
use clap::{ArgGroup, Args};
use gleaner_command::args::{JsonArg, any_duration, duration_within};
use std::ffi::OsString;
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
