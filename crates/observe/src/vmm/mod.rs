//! Which VMs run on this host, and which threads are their vCPUs, whoever runs them.
//!
//! Problem: a slice is set on a thread, and every hypervisor names its vCPUs' threads in its own way, or not at all.
//! What tells them, in this order:
//!
//! ```text
//!   the threads' names          "CPU 0/KVM", "fc_vcpu 0", "vcpu0", "crosvm_vcpu0", "kvm-vcpu-0"     (threads)
//!   debugfs kvm/PID-FD/vcpuN    the kernel's own word; root only                                     (kvm)
//!   /proc/PID/fd                anon_inode:kvm-vcpu:N says how many; which threads by what they wait in, or their guest time
//! ```
//!
//! One pass over `/proc`; a process that goes away meanwhile is no error. [`WatchedVcpus`] then say what the vCPUs got
//! and waited for.

mod activity;
mod cgroup;
mod command_line;
mod kvm;
mod limit;
mod name;
mod passed_over;
mod pause_exits;
mod process;
mod select;
mod threads;
mod vm;
mod weight;

pub use activity::{Activity, ThreadCounters, VcpuActivity, WatchedVcpus};
pub use cgroup::{CgroupPath, cgroup_of};
pub use limit::cpu_limit;
pub use passed_over::PassedOver;
pub use pause_exits::{PauseExitCounters, PauseExitRefusal};
pub use select::{SelectError, select};
pub use threads::{SchedPolicy, ThreadStat, thread_stat};
pub use vm::{Accelerator, VcpuThread, Vm, Vmm};
pub use weight::{VcpuLoad, entitlements};

use crate::ObserveError;
use gleaner_sys::ProcRoot;
use std::time::Instant;

/// Every VM on this machine, ascending by pid. `passed_over` is kept by whoever looks again.
pub fn discover(root: &ProcRoot, passed_over: &PassedOver) -> Result<Vec<Vm>, ObserveError> {
    vms_at(root, passed_over, Instant::now())
}

fn vms_at(root: &ProcRoot, passed_over: &PassedOver, now: Instant) -> Result<Vec<Vm>, ObserveError> {
    let in_kernel = kvm::debugfs_vcpus(root);
    let pids = process::pids(root)?;
    passed_over.keep(&pids);
    let mut vms = Vec::new();
    for pid in pids {
        let debugfs = in_kernel.get(&pid);
        if debugfs.is_none() && passed_over.rests(pid, now) {
            continue;
        }
        let vm = process::vm_of(root, pid, debugfs);
        passed_over.note(pid, vm.is_some(), now);
        vms.extend(vm);
    }
    select::tell_apart(&mut vms);
    Ok(vms)
}

#[cfg(test)]
mod tests;
