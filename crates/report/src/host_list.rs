//! `gleaner.host-list/1`: the VMs of this host, what their vCPUs got and waited for.

use crate::show::{Document, Part, Row, Shown, line, notes, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner host list` saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostListReport {
    pub schema: String,
    /// How long was watched.
    pub interval_ns: u64,
    /// The VMs, ascending by pid.
    pub vms: Vec<HostVm>,
    /// What the reader should know about these figures.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostVm {
    /// Its name; `VMM-PID` where nothing tells.
    pub name: String,
    pub pid: i32,
    /// The program that runs it: `qemu`, `firecracker`, `cloud-hypervisor`, `crosvm`, `kvmtool`, or `kvm` for another.
    pub vmm: String,
    /// `kvm`, or `tcg` where QEMU emulates; null where nothing tells.
    pub accelerator: Option<String>,
    /// Its process's cgroup, from the root of the hierarchy that shares out CPU time.
    pub cgroup: Option<String>,
    /// 1 or 2.
    pub cgroup_version: Option<u8>,
    /// Groups between it and the root.
    pub cgroup_depth: Option<u64>,
    /// Its vCPUs, ascending by index; empty where they cannot be told from other threads.
    pub vcpus: Vec<HostVcpu>,
    /// What could not be told, and what would help.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostVcpu {
    /// As its VM numbers it.
    pub index: u32,
    pub tid: i32,
    pub thread: String,
    /// Physical CPUs it may use, as a CPU list.
    pub pcpus_allowed: Option<String>,
    /// The one on which it is, or was last.
    pub pcpu: Option<u32>,
    /// Its cgroup, where it is another than the VM's.
    pub cgroup: Option<String>,
    /// Scheduling class: `other`, `batch`, `idle`, `fifo`, `rr`, `deadline`, `ext`.
    pub policy: Option<String>,
    pub nice: Option<i32>,
    /// Real-time priority; null for other classes.
    pub rt_priority: Option<u32>,
    /// The slice in force.
    pub slice_ns: Option<u64>,
    /// Where that is known from: `thread` (the kernel's word for this thread), `kernel` (the base slice of all); or why
    /// it is unknown.
    pub slice_from: String,
    /// CPU time in the interval.
    pub run_ns: Option<u64>,
    /// Time runnable without a CPU.
    pub wait_ns: Option<u64>,
    /// Times it got a CPU.
    pub runs: Option<u64>,
    /// Mean wait before it got one: `wait_ns` by `runs`.
    pub wait_per_run_ns: Option<u64>,
    /// Whether the thread ended meanwhile.
    pub exited: bool,
}

impl Shown for HostListReport {
    fn document(&self) -> Document {
        let mut document = Document::new("The host's VMs");
        document.both(self.vms.iter().flat_map(|vm| vm.parts(self.interval_ns)));
        if self.vms.is_empty() {
            document.both(line("No VM runs here, or none that this user may see."));
        }
        document.both(notes(&self.notes));
        document
    }
}

impl HostVm {
    fn parts(&self, interval_ns: u64) -> Vec<Part> {
        let accelerator = self.accelerator.as_ref().map_or(String::new(), |accelerator| format!(" ({accelerator})"));
        let cgroup = self.cgroup.as_ref().map_or(String::new(), |cgroup| format!(", cgroup {cgroup}"));
        let mut parts = vec![line(format!("{}: {}{accelerator}, pid {}{cgroup}", self.name, self.vmm, self.pid))];
        parts.extend(table("", self.vcpus.iter().map(|vcpu| vcpu.cells(interval_ns))));
        parts.extend(self.notes.iter().map(|note| line(format!("  note: {note}"))));
        parts.push(line(""));
        parts
    }
}

impl HostVcpu {
    fn cells(&self, interval_ns: u64) -> Row {
        let share = |ns: Option<u64>| ns.map(|ns| ns as f64 / interval_ns.max(1) as f64);
        let class = self.policy.as_ref().map(|policy| match self.rt_priority {
            Some(priority) => format!("{policy} {priority}"),
            None => policy.clone(),
        });
        Row::default()
            .text("vCPU", format!("  {}", self.index))
            .number("tid", self.tid)
            .text("pCPUs", self.pcpus_allowed.as_ref())
            .number("on", self.pcpu)
            .text("class", if self.exited { Some("ended".to_owned()) } else { class })
            .number("nice", self.nice)
            .time("slice", self.slice_ns)
            .percent("run", share(self.run_ns))
            .percent("wait", share(self.wait_ns))
            .time("wait/run", self.wait_per_run_ns)
    }
}
