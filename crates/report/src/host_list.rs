//! `gleaner.host-list/1`: the VMs of this host, what their vCPUs got and waited for, and the run queues they stood in.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner host list` saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostListReport {
    /// `gleaner.host-list/1`.
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

/// One VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostVm {
    /// Its name; `VMM-PID` where nothing tells.
    pub name: String,
    /// Its process.
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

/// One vCPU's thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostVcpu {
    /// As its VM numbers it.
    pub index: u32,
    /// The thread.
    pub tid: i32,
    /// The thread's name.
    pub thread: String,
    /// Physical CPUs it may use, as a CPU list.
    pub pcpus_allowed: Option<String>,
    /// The one on which it was queued most, or which it used last.
    pub pcpu: Option<u32>,
    /// Its cgroup, where it is another than the VM's.
    pub cgroup: Option<String>,
    /// Scheduling class: `other`, `batch`, `idle`, `fifo`, `rr`, `deadline`, `ext`.
    pub policy: Option<String>,
    /// Nice value.
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

/// One physical CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPcpu {
    /// As the kernel numbers it.
    pub pcpu: u32,
    /// vCPUs that were queued here more than elsewhere.
    pub vcpus: u64,
    /// `[n]`: samples in which n vCPUs were queued, the running one included.
    pub run_queue_samples: Vec<u64>,
    /// Mean length over all samples.
    pub run_queue_mean: f64,
    /// Median.
    pub run_queue_p50: u64,
    /// 90th percentile.
    pub run_queue_p90: u64,
    /// Longest seen.
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

impl HostListReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.host-list/1";
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

impl fmt::Display for HostListReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vm in &self.vms {
            vm.write(f, self.interval_ns)?;
        }
        if self.vms.is_empty() {
            writeln!(f, "No VM runs here, or none that this user may see.")?;
        }
        if !self.pcpus.is_empty() {
            writeln!(
                f,
                "vCPUs queued on each physical CPU, {} over {}:",
                text::count(self.samples, "sample"),
                text::duration(Some(self.interval_ns))
            )?;
            writeln!(f, "{}", pcpu_table(&self.pcpus))?;
            writeln!(
                f,
                "expected: slice * (vCPUs queued - 1), equation 1 of the paper; measured: mean wait of these vCPUs \
                 each time they got a CPU."
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}

impl HostVm {
    fn write(&self, f: &mut fmt::Formatter<'_>, interval_ns: u64) -> fmt::Result {
        let accelerator = self.accelerator.as_ref().map_or(String::new(), |accelerator| format!(" ({accelerator})"));
        let cgroup = self.cgroup.as_ref().map_or(String::new(), |cgroup| format!(", cgroup {cgroup}"));
        writeln!(f, "{}: {}{accelerator}, pid {}{cgroup}", self.name, self.vmm, self.pid)?;
        if !self.vcpus.is_empty() {
            let header = ["vCPU", "tid", "pCPUs", "on", "class", "nice", "slice", "run", "wait", "wait/run"];
            let mut table = text::table(&header);
            for vcpu in &self.vcpus {
                table.add_row(vcpu.row(interval_ns));
            }
            writeln!(f, "{table}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))?;
        writeln!(f)
    }
}

impl HostVcpu {
    fn row(&self, interval_ns: u64) -> [String; 10] {
        fn or_dash(value: Option<impl fmt::Display>) -> String {
            value.map_or_else(|| "-".to_owned(), |value| value.to_string())
        }
        let share = |ns: Option<u64>| or_dash(ns.map(|ns| text::percent(ns as f64 / interval_ns.max(1) as f64)));
        let class = match (self.policy.as_deref(), self.rt_priority) {
            (Some(policy), Some(priority)) => format!("{policy} {priority}"),
            (policy, _) => or_dash(policy),
        };
        [
            format!("  {}", self.index),
            self.tid.to_string(),
            or_dash(self.pcpus_allowed.as_deref()),
            or_dash(self.pcpu),
            if self.exited { "ended".to_owned() } else { class },
            or_dash(self.nice),
            text::duration(self.slice_ns),
            share(self.run_ns),
            share(self.wait_ns),
            text::duration(self.wait_per_run_ns),
        ]
    }
}

/// Run queues up to this length have a column each.
const COLUMNS: usize = 5;

fn pcpu_table(pcpus: &[HostPcpu]) -> comfy_table::Table {
    let mut header: Vec<String> = ["pCPU", "vCPUs", "mean", "p90"].map(str::to_owned).to_vec();
    header.extend((0..COLUMNS - 1).map(|length| length.to_string()));
    header.extend([format!("{}+", COLUMNS - 1), "expected".to_owned(), "measured".to_owned()]);
    let mut table = text::table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for pcpu in pcpus {
        let samples = pcpu.run_queue_samples.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let share = |count: u64| text::percent(count as f64 / samples.max(1) as f64);
        let count = |length: usize| pcpu.run_queue_samples.get(length).copied().unwrap_or(0);
        let mut row = vec![
            pcpu.pcpu.to_string(),
            pcpu.vcpus.to_string(),
            format!("{:.1}", pcpu.run_queue_mean),
            pcpu.run_queue_p90.to_string(),
        ];
        row.extend((0..COLUMNS - 1).map(|length| share(count(length))));
        row.push(share(pcpu.run_queue_samples.iter().skip(COLUMNS - 1).sum()));
        row.push(text::duration(pcpu.scheduling_latency_ns));
        row.push(text::duration(pcpu.wait_per_run_ns));
        table.add_row(row);
    }
    table
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
