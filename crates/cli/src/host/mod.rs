//! `gleaner host`: for whoever runs the hypervisor.

mod list;
pub(crate) mod llc;
mod probe;
mod run;
mod slice;
mod xen;

use crate::failure::Failure;
use crate::interrupt::sleep_until;
use clap::{Args, Subcommand};
use gleaner_act::{SliceSupport, by_kernel, hrtick, tick};
use gleaner_model::Nanos;
use gleaner_observe::{KernelVersion, SliceIssue, slice_issues};
use gleaner_sys::{OwnProc, ProcRoot, own_proc};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The longest that anything lasts, as humantime counts it.
const YEAR: Duration = Duration::from_secs(31_557_600);

#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// List every VM with its vCPU threads, and what they wait for
    List(list::ListArgs),
    /// Say what this host can do, and what switches and exits cost here
    Probe(probe::ProbeArgs),
    /// Give vCPU threads a time slice, enforce it, and say what was delivered
    Slice(slice::SliceArgs),
    /// The host agent: one slice for all VMs, or the best for those that share CPUs
    Run(run::RunArgs),
    /// Give thrashing VMs the least of the last-level cache, and the others the rest
    Llc(llc::LlcArgs),
}

pub fn main(args: &HostArgs) -> Result<u8, Failure> {
    let root = ProcRoot::default();
    if own_proc(&root) == OwnProc::Foreign {
        // What is read there would be asked of other threads.
        return Err(Failure::work(format!(
            "{} is another PID namespace's: its numbers of processes and threads mean others here; mount one for this \
             namespace (mount -t proc proc /proc, unshare --mount-proc), or run gleaner in that one",
            root.proc.display()
        )));
    }
    match &args.command {
        HostCommand::List(args) => list::main(args),
        HostCommand::Probe(args) => probe::main(args),
        HostCommand::Slice(args) => slice::main(args),
        HostCommand::Run(args) => run::main(args),
        HostCommand::Llc(args) => llc::main(args),
    }
}

/// A signal has told the command to end.
struct Interrupted;

/// Sleeps until then, or until the command is told to end: what each of these loops waits for.
fn interrupted_before(due: Instant, interrupted: &AtomicBool) -> Option<Interrupted> {
    (!sleep_until(due, interrupted)).then_some(Interrupted)
}

/// Known faults of this kernel that slices bring out, or that setting them does not cure.
fn kernel_notes() -> Vec<String> {
    let uname = rustix::system::uname();
    let Some(version) = KernelVersion::parse(&uname.release().to_string_lossy()) else { return Vec::new() };
    let told = |issue: &SliceIssue| ["stale-group-slices", "group-slice-overflow"].contains(&issue.id);
    slice_issues(version).into_iter().filter(told).map(|issue| format!("Linux {version}: {}", issue.text)).collect()
}

/// Tells of a slice whether it takes a ticker to end it in time here.
fn takes_ticker() -> impl Fn(Nanos) -> bool {
    let (support, hrtick, tick) = (SliceSupport::probe(), hrtick(Path::new("/sys")), tick());
    move |slice| by_kernel(slice, support, hrtick, tick).is_none()
}
