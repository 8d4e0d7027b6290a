//! `gleaner.workload/1`: what one of the built-in programs did.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner workload NAME` did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadReport {
    /// `gleaner.workload/1`.
    pub schema: String,
    /// The program.
    pub name: String,
    /// As asked for; each program says what it counts.
    pub threads: u64,
    /// Threads that were started.
    pub threads_total: u64,
    /// Computation between two synchronization points, nominally: turns of the loop at a fixed number to the
    /// microsecond.
    pub granularity_ns: u64,
    /// The same in turns of the loop, which is what is fixed.
    pub granularity_iterations: u64,
    /// Where its data came from.
    pub seed: u64,
    /// Items finished.
    pub items: u64,
    /// From the moment all threads were there to the end of the last one.
    pub wall_ns: u64,
    /// Items by wall time.
    pub items_per_second: f64,
    /// Sixteen hexadecimal digits: the same for the same program, items, seed and granularity (of some programs: and
    /// threads).
    pub checksum: String,
    /// `items`, `time`, or `signal`.
    pub ended_by: String,
    /// How long requests took; of `spin-lock`, how long the lock was waited for; null where the program has neither.
    pub latency: Option<LatencyReport>,
    /// How long the lock of `spin-lock` was held at a time; null elsewhere.
    pub holding: Option<LatencyReport>,
    /// How late the open-loop client sent its requests, which is a part of `latency`; null elsewhere.
    pub send_delay: Option<LatencyReport>,
    /// Requests that failed; null where none can.
    pub errors: Option<u64>,
    /// Switches by threads that waited.
    pub voluntary_switches: u64,
    /// Switches by threads whose CPU was taken.
    pub involuntary_switches: u64,
    /// User and system time of all threads.
    pub cpu_time_ns: u64,
}

/// A distribution of latencies, to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyReport {
    /// Requests.
    pub n: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl WorkloadReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.workload/1";
}

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns| text::duration(Some(ns));
        let (p50, p90, p99) = (time(self.p50_ns), time(self.p90_ns), time(self.p99_ns));
        write!(f, "p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {}, max {}", time(self.p999_ns), time(self.max_ns))
    }
}

impl fmt::Display for WorkloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns| text::duration(Some(ns));
        writeln!(
            f,
            "{}: {} in {}, {:.1} items/s",
            self.name,
            text::count(self.items, "item"),
            time(self.wall_ns),
            self.items_per_second
        )?;
        if let Some(latency) = &self.latency {
            writeln!(f, "latency: {latency}")?;
        }
        if let Some(holding) = &self.holding {
            writeln!(f, "holding: {holding}")?;
        }
        if let Some(delay) = &self.send_delay {
            writeln!(f, "of which sent late: {delay}")?;
        }
        if let Some(errors) = self.errors {
            writeln!(f, "errors: {errors}")?;
        }
        writeln!(
            f,
            "{} (--threads {}), granularity {} ({} iterations), checksum {}",
            text::count(self.threads_total, "thread"),
            self.threads,
            time(self.granularity_ns),
            self.granularity_iterations,
            self.checksum
        )?;
        writeln!(
            f,
            "CPU time {}; {} voluntary and {} involuntary context switches",
            time(self.cpu_time_ns),
            self.voluntary_switches,
            self.involuntary_switches
        )
    }
}
