//! `gleaner.host-list/1`: the VMs of this host, what their vCPUs got and waited for, and the run queues they stood in.

use crate::show::{Document, Part, Row, Shown, line, notes, table};
use crate::text::{count, time};
use serde::{Deserialize, Serialize};

/// What `gleaner host list` saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostListReport {
    pub schema: String,
    /// How long was watched.
    pub interval_ns: u64,
    /// Times the run queues were looked at in it.
    pub samples: u64,
    /// How run-queue lengths were found: `sampled`.
    pub run_queue_method: String,
    /// The VMs, ascending by pid.
    pub vms: Vec<HostVm>,
    /// The physical CPUs on which their vCPUs were seen.
    pub pcpus: Vec<HostPcpu>,
    /// What the reader should know about these figures.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostVcpu {
    /// As its VM numbers it.
    pub index: u32,
    pub tid: i32,
    pub thread: String,
    /// Physical CPUs it may use, as a CPU list.
    pub pcpus_allowed: Option<String>,
    /// The one on which it was queued most, or which it used last.
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPcpu {
    pub pcpu: u32,
    /// vCPUs that were queued here more than elsewhere.
    pub vcpus: u64,
    /// `[n]`: samples in which n vCPUs were queued, the running one included.
    pub run_queue_samples: Vec<u64>,
    /// Mean length over all samples.
    pub run_queue_mean: f64,
    /// Median.
    pub run_queue_p50: u64,
    pub run_queue_p90: u64,
    pub run_queue_max: u64,
    /// Mean over the samples in which one vCPU at least was queued; null where none ever was.
    pub competing_mean: Option<f64>,
    /// Mean slice of the vCPUs here; null where unknown.
    pub slice_ns: Option<u64>,
    /// Equation 1 of the paper: `slice_ns` * (`competing_mean` - 1).
    pub scheduling_latency_ns: Option<u64>,
    /// Mean wait of these vCPUs each time they got a CPU.
    pub wait_per_run_ns: Option<u64>,
}

impl HostPcpu {
    /// From its distribution of run-queue lengths; the mean slice, runs and waits of the vCPUs here where they are
    /// known.
    pub fn new(pcpu: u32, vcpus: u64, lengths: Vec<u64>, slice_ns: Option<u64>, wait_per_run_ns: Option<u64>) -> Self {
        let samples: u64 = lengths.iter().sum();
        let queued: u64 = (0..).zip(&lengths).map(|(length, samples)| length * samples).sum();
        let busy: u64 = lengths.iter().skip(1).sum();
        let competing_mean = (busy > 0).then(|| queued as f64 / busy as f64);
        let latency = slice_ns.zip(competing_mean).map(|(slice, competing)| slice as f64 * (competing - 1.0));
        Self {
            pcpu,
            vcpus,
            run_queue_mean: if samples == 0 { 0.0 } else { queued as f64 / samples as f64 },
            run_queue_p50: quantile(&lengths, samples, 50),
            run_queue_p90: quantile(&lengths, samples, 90),
            run_queue_max: (0..)
                .zip(&lengths)
                .filter(|(_, samples)| **samples > 0)
                .map(|(length, _)| length)
                .max()
                .unwrap_or(0),
            run_queue_samples: lengths,
            competing_mean,
            slice_ns,
            scheduling_latency_ns: latency.map(|latency| gleaner_model::Nanos::from_f64(latency).0),
            wait_per_run_ns,
        }
    }
}

/// The smallest length that at least so many per cent of the samples do not exceed.
fn quantile(lengths: &[u64], samples: u64, percent: u64) -> u64 {
    let mut seen = 0;
    for (length, count) in (0..).zip(lengths) {
        seen += count;
        if seen * 100 >= samples * percent {
            return length;
        }
    }
    0
}

impl Shown for HostListReport {
    fn document(&self) -> Document {
        let mut document = Document::new("The host's VMs");
        document.both(self.vms.iter().flat_map(|vm| vm.parts(self.interval_ns)));
        if self.vms.is_empty() {
            document.both(line("No VM runs here, or none that this user may see."));
        }
        if !self.pcpus.is_empty() {
            let (samples, interval) = (count(self.samples, "sample"), time(self.interval_ns));
            document.both(line(format!("vCPUs queued on each physical CPU, {samples} over {interval}:")));
            document.both(table("", self.pcpus.iter().map(HostPcpu::cells)));
            document.both(line(
                "expected: slice * (vCPUs queued - 1), equation 1 of the paper; measured: mean wait of these vCPUs \
                 each time they got a CPU.",
            ));
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

/// Run queues up to this length have a column each.
const COLUMNS: usize = 5;

impl HostPcpu {
    fn cells(&self) -> Row {
        let samples = self.run_queue_samples.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let share = |count: u64| count as f64 / samples.max(1) as f64;
        let count = |length: usize| self.run_queue_samples.get(length).copied().unwrap_or(0);
        let row = Row::default()
            .number("pCPU", self.pcpu)
            .number("vCPUs", self.vcpus)
            .fixed("mean", self.run_queue_mean, 1)
            .number("p90", self.run_queue_p90);
        (0..COLUMNS - 1)
            .fold(row, |row, length| row.percent(length.to_string(), share(count(length))))
            .percent(format!("{}+", COLUMNS - 1), share(self.run_queue_samples.iter().skip(COLUMNS - 1).sum()))
            .time("expected", self.scheduling_latency_ns)
            .time("measured", self.wait_per_run_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_1_counts_the_others() {
        // Half of the time idle, else two vCPUs: each waits for one other.
        let pcpu = HostPcpu::new(3, 2, vec![50, 0, 50], Some(1_000_000), Some(900_000));
        assert_eq!((pcpu.competing_mean, pcpu.scheduling_latency_ns), (Some(2.0), Some(1_000_000)));
        assert_eq!((pcpu.run_queue_p50, pcpu.run_queue_p90, pcpu.run_queue_max), (0, 2, 2));
        assert!((pcpu.run_queue_mean - 1.0).abs() < 1e-9);
        // The paper's hosts: 30 ms, three queued.
        let pcpu = HostPcpu::new(0, 3, vec![0, 0, 0, 7, 0], Some(30_000_000), None);
        assert_eq!((pcpu.scheduling_latency_ns, pcpu.run_queue_max), (Some(60_000_000), 3));
        let idle = HostPcpu::new(0, 0, vec![9], Some(30_000_000), None);
        assert_eq!((idle.competing_mean, idle.scheduling_latency_ns), (None, None));
    }
}
