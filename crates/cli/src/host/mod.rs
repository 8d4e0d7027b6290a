//! `gleaner host`: for whoever runs the hypervisor.

mod list;
mod probe;
mod run;
mod shared;
mod xen;

use clap::{Args, Subcommand};
use gleaner_command::failure::Failure;
use gleaner_sys::{OwnProc, ProcRoot, own_proc};

#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// List every VM with its vCPU threads, and what they wait for
    List(list::ListArgs),
    /// Say what this host can do, and what switches cost here
    Probe(probe::ProbeArgs),
    /// The host agent: one slice for all VMs, or the best for those that share CPUs
    Run(Box<run::RunArgs>),
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
        HostCommand::Run(args) => run::main(args),
    }
}
