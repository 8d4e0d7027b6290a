//! `gleaner.slice/1`: the slice that was asked for against the slices that were delivered.

use crate::show::{Document, Row, Shown, line, notes, table};
use crate::text::{count, percent, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner host slice` did and saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceReport {
    pub schema: String,
    /// The slice asked for.
    pub requested_ns: u64,
    /// Median of the run intervals that ended by preemption, of all threads together that were continuously runnable
    /// (ran or waited for 95 % of the time), or of all where none was; null where none did, or without BPF.
    pub delivered_p50_ns: Option<u64>,
    /// Their 90th percentile.
    pub delivered_p90_ns: Option<u64>,
    /// Their mean; without BPF that of all run intervals, whatever ended them.
    pub delivered_mean_ns: Option<u64>,
    /// How many there were; null without BPF.
    pub delivered_n: Option<u64>,
    /// How the slice was enforced: `hrtick` and `tick` (by the kernel), `ticker`, or `none`.
    pub method: String,
    /// CPU time of the tickers' threads by wall time, as a share of one CPU, the mean over the CPUs that needed one;
    /// null where the kernel enforces, and does not say what that costs it.
    pub enforcement_cpu_ratio: Option<f64>,
    /// CPU time of asking where threads compete, by wall time; all CPUs together.
    pub asking_cpu_ratio: Option<f64>,
    /// `bpf` or `procfs`.
    pub observer: String,
    /// How long it was in force.
    pub wall_ns: u64,
    /// The slice of a thread that asks for none; null where the kernel has no slices of threads, so that only a ticker
    /// shortens them.
    pub base_slice_ns: Option<u64>,
    /// One context switch, measured before; null where it could not be.
    pub switch_cost_ns: Option<u64>,
    /// The threads, in the order in which they were given.
    pub threads: Vec<SliceThread>,
    /// The CPUs that had a ticker.
    pub cpus: Vec<SliceCpu>,
    /// The command that was run meanwhile; empty for none.
    pub command: Vec<String>,
    /// Its exit status, as a shell would say it; null without one.
    pub exit_status: Option<i32>,
    /// What the reader should know.
    pub notes: Vec<String>,
    /// Whether all slices are again what they were.
    pub restored: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceThread {
    /// Its id.
    pub tid: i32,
    pub name: String,
    /// The VM it is a vCPU of; null where it was named by its id.
    pub vm: Option<String>,
    pub vcpu: Option<u32>,
    /// Its policy: `other`, `batch` or `idle`.
    pub policy: String,
    /// Its nice value.
    pub nice: i32,
    /// The slice it had before; null where the kernel has none.
    pub was_ns: Option<u64>,
    /// The slice it was given, read back; null likewise, or when it ended first.
    pub set_ns: Option<u64>,
    /// Whether it ended meanwhile.
    pub ended: bool,
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time it was able to run and did not.
    pub wait_ns: u64,
    /// Run intervals that ended by preemption; null without BPF.
    pub preempted_n: Option<u64>,
    /// Their median.
    pub delivered_p50_ns: Option<u64>,
    /// Their 90th percentile.
    pub delivered_p90_ns: Option<u64>,
    /// Run intervals that ended by sleeping.
    pub slept_n: Option<u64>,
    /// Their median.
    pub slept_p50_ns: Option<u64>,
    /// From being woken to running, median.
    pub wake_to_run_p50_ns: Option<u64>,
    /// The same, 99th percentile.
    pub wake_to_run_p99_ns: Option<u64>,
    /// From being preempted to running again, median.
    pub latency_p50_ns: Option<u64>,
    /// The same, 99th percentile.
    pub latency_p99_ns: Option<u64>,
}

/// One CPU's ticker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceCpu {
    pub cpu: u32,
    /// Times the ticker woke.
    pub ticks: u64,
    /// Its CPU time by wall time.
    pub cpu_ratio: f64,
    /// The share of the time in which it was not asleep for want of competition.
    pub awake_ratio: f64,
    /// How often its period was stretched to keep to its budget.
    pub stretched: u64,
}

impl SliceThread {
    /// `web/0`, or the thread's name.
    fn label(&self) -> String {
        match (&self.vm, self.vcpu) {
            (Some(vm), Some(vcpu)) => format!("{vm}/{vcpu}"),
            _ => self.name.clone(),
        }
    }
}

impl Shown for SliceReport {
    fn document(&self) -> Document {
        let mut document = Document::new("Slices asked for and delivered");
        let (asked, wall) = (time(self.requested_ns), time(self.wall_ns));
        document.both(line(format!("Asked for {asked}, for {wall}: {}.", self.delivered())));
        document.both(self.enforcement().into_iter().map(line));
        document.both(table("", self.threads.iter().map(SliceThread::cells)));
        document.both(notes(&self.notes));
        document
    }
}

impl SliceReport {
    fn delivered(&self) -> String {
        match (self.delivered_p50_ns, self.delivered_mean_ns) {
            (Some(p50), _) => {
                let intervals = count(self.delivered_n.unwrap_or(0), "run interval");
                let (p50, p90) = (time(p50), time(self.delivered_p90_ns));
                format!("delivered p50 {p50}, p90 {p90}, in {intervals} that ended by preemption")
            }
            (None, Some(mean)) => format!(
                "run intervals were {} in the mean, whatever ended them (without BPF no more is known)",
                time(mean)
            ),
            (None, None) if self.observer == "procfs" => "none of the threads ran".to_owned(),
            (None, None) => "no thread was preempted. No other wanted its CPU, so no slice had to be cut".to_owned(),
        }
    }

    fn enforcement(&self) -> Vec<String> {
        let cpu = |cpu: &SliceCpu| {
            let stretched = if cpu.stretched > 0 { ", and its period was stretched to keep to its budget" } else { "" };
            let (share, ticks, awake) = (percent(cpu.cpu_ratio), count(cpu.ticks, "tick"), percent(cpu.awake_ratio));
            format!("Ticker on CPU {}: {share} of the CPU, {ticks}, awake {awake} of the time{stretched}.", cpu.cpu)
        };
        let words = match self.method.as_str() {
            "hrtick" => "The kernel enforces it (HRTICK).",
            "tick" => "The kernel's tick ends slices this long soon enough: no ticker is needed.",
            "none" => "It was not enforced.",
            _ if self.cpus.is_empty() => "No ticker was needed: the threads competed nowhere for more than moments.",
            _ => return self.cpus.iter().map(cpu).collect(),
        };
        vec![words.to_owned()]
    }
}

impl SliceThread {
    fn cells(&self) -> Row {
        Row::default()
            .text("thread", self.label() + if self.ended { " (ended)" } else { "" })
            .number("tid", self.tid)
            .time("slice", self.set_ns)
            .number("preempted", self.preempted_n)
            .time("p50", self.delivered_p50_ns)
            .time("p90", self.delivered_p90_ns)
            .number("slept", self.slept_n)
            .time("woken p99", self.wake_to_run_p99_ns)
            .time("latency p99", self.latency_p99_ns)
    }
}
