//! `gleaner.slice/1`: the slice that was asked for against the slices that were delivered.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner host slice` did and saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceReport {
    /// `gleaner.slice/1`.
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

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceThread {
    /// Its id.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The VM it is a vCPU of; null where it was named by its id.
    pub vm: Option<String>,
    /// Which vCPU of it.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SliceCpu {
    /// Its number.
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

impl SliceReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.slice/1";
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

impl fmt::Display for SliceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = text::duration;
        write!(f, "Asked for {}, for {}: ", time(Some(self.requested_ns)), time(Some(self.wall_ns)))?;
        match (self.delivered_p50_ns, self.delivered_mean_ns) {
            (Some(p50), _) => writeln!(
                f,
                "delivered p50 {}, p90 {}, in {}.",
                time(Some(p50)),
                time(self.delivered_p90_ns),
                text::count(self.delivered_n.unwrap_or(0), "run interval that ended by preemption")
                    .replace("interval that ended by preemptions", "intervals that ended by preemption"),
            )?,
            (None, Some(mean)) => writeln!(
                f,
                "run intervals were {} in the mean, whatever ended them (without BPF no more is known).",
                time(Some(mean))
            )?,
            (None, None) if self.observer == "procfs" => writeln!(f, "none of the threads ran.")?,
            (None, None) => {
                writeln!(f, "no thread was preempted. No other wanted its CPU, so no slice had to be cut.")?;
            }
        }
        self.enforcement(f)?;
        let mut table =
            text::table(&["thread", "tid", "slice", "preempted", "p50", "p90", "slept", "woken p99", "latency p99"]);
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for thread in &self.threads {
            let ended = if thread.ended { " (ended)" } else { "" };
            table.add_row([
                thread.label() + ended,
                thread.tid.to_string(),
                time(thread.set_ns),
                number(thread.preempted_n),
                time(thread.delivered_p50_ns),
                time(thread.delivered_p90_ns),
                number(thread.slept_n),
                time(thread.wake_to_run_p99_ns),
                time(thread.latency_p99_ns),
            ]);
        }
        writeln!(f, "{table}")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}

impl SliceReport {
    fn enforcement(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method.as_str() {
            "hrtick" => return writeln!(f, "The kernel enforces it (HRTICK)."),
            "tick" => return writeln!(f, "The kernel's tick ends slices this long soon enough: no ticker is needed."),
            "none" => return writeln!(f, "It was not enforced."),
            _ if self.cpus.is_empty() => {
                return writeln!(f, "No ticker was needed: the threads competed nowhere for more than moments.");
            }
            _ => {}
        }
        for cpu in &self.cpus {
            let stretched = if cpu.stretched > 0 { ", and its period was stretched to keep to its budget" } else { "" };
            writeln!(
                f,
                "Ticker on CPU {}: {} of the CPU, {}, awake {} of the time{stretched}.",
                cpu.cpu,
                text::percent(cpu.cpu_ratio),
                text::count(cpu.ticks, "tick"),
                text::percent(cpu.awake_ratio)
            )?;
        }
        Ok(())
    }
}
