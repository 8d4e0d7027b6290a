//! What is told of a virtual machine.

use super::cgroup::CgroupPath;
use gleaner_model::CpuSet;

/// A virtual machine: a process with vCPU threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name, of which there is one among the VMs found with it: [`Self::called`], or `NAME#PID` where several are
    /// called so.
    pub name: String,
    /// What its user calls it, fit to be shown; `VMM-PID` where nothing tells.
    pub called: String,
    pub pid: i32,
    /// Ticks since boot when the process was started: with the pid it names the process for good.
    pub start_time_ticks: u64,
    /// The program that runs it.
    pub vmm: Vmm,
    /// Whether KVM runs its instructions, or QEMU emulates them; `None` where nothing tells.
    pub accelerator: Option<Accelerator>,
    /// The process's cgroup.
    pub cgroup: Option<CgroupPath>,
    /// Its vCPUs, ascending by index. Empty where their threads cannot be told from others: [`Self::notes`] says why.
    pub vcpus: Vec<VcpuThread>,
    /// What could not be told, and what would help.
    pub notes: Vec<String>,
}

impl Vm {
    /// A name that means this VM whatever others are called; it may be asked for by it.
    pub fn unique_name(&self) -> String {
        format!("{}#{}", self.called, self.pid)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuThread {
    /// The vCPU as its VM numbers it.
    pub index: u32,
    pub tid: i32,
    /// The thread's name, fit to be shown.
    pub name: String,
    /// Ticks since boot when the thread was started: with the tid it names the thread for good.
    pub start_time_ticks: u64,
    /// The physical CPUs it may use; `None` where the kernel does not say.
    pub allowed: Option<CpuSet>,
    /// The thread's cgroup: libvirt gives each vCPU its own.
    pub cgroup: Option<CgroupPath>,
}

/// A program that runs VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vmm {
    /// QEMU, with KVM or without.
    Qemu,
    Firecracker,
    CloudHypervisor,
    Crosvm,
    /// kvmtool (`lkvm`).
    Kvmtool,
    StratoVirt,
    /// Dragonball, in Kata's shim.
    Dragonball,
    /// Some other user of KVM.
    Kvm,
}

impl Vmm {
    /// The word for it in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Firecracker => "firecracker",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Crosvm => "crosvm",
            Self::Kvmtool => "kvmtool",
            Self::StratoVirt => "stratovirt",
            Self::Dragonball => "dragonball",
            Self::Kvm => "kvm",
        }
    }
}

/// What runs a VM's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's emulator.
    Tcg,
}

impl Accelerator {
    /// The word for it in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}
