//! `gleaner.record/1` and `gleaner.sim-recording/1`: a real program's threads recorded, and what the recording comes to
//! elsewhere.

use crate::show::{Document, Row, Shown, line, notes, table};
use crate::text::{bytes, count, partial, time};
use serde::{Deserialize, Serialize};

/// What `gleaner record` wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordReport {
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where the recording is.
    pub file: String,
    pub file_bytes: u64,
    pub kernel: String,
    /// vCPUs that the program could use.
    pub vcpus: u32,
    /// From the program's start to its end, or to the recording's.
    pub wall_ns: u64,
    /// Threads born.
    pub threads: u64,
    pub events: u64,
    /// Events that were lost.
    pub lost_events: u64,
    /// Threads that were too many to be recorded.
    pub untracked_threads: u64,
    /// Why it ends: `exit`, `limit` (`--max-bytes`; the program went on) or `interrupt`.
    pub ended_by: String,
    /// The program's own status, 128 + n for signal n.
    pub exit_status: i32,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// What `gleaner-lab sim from-recording` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SimRecordingReport {
    pub schema: String,
    pub file: String,
    /// The recorded program and its arguments.
    pub command: Vec<String>,
    /// The kernel that it ran on.
    pub kernel: String,
    pub recorded: Recorded,
    /// Played back as it was recorded: as many vCPUs, each with a pCPU for itself, nobody managing.
    pub replay: Replayed,
    /// What was asked.
    pub what_if: WhatIf,
    /// Why there is less than was asked for: `interrupt`, `max-time` or `max-events`; null: there is all of it.
    pub stopped_by: Option<String>,
    /// The answer, for each policy.
    pub rows: Vec<WhatIfRow>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    /// vCPUs that the program could use.
    pub vcpus: u32,
    /// From the first event to the last.
    pub wall_ns: u64,
    /// CPU time of all threads.
    pub cpu_ns: u64,
    /// Threads wanted a vCPU that somebody else had taken from them.
    pub displaced_ns: u64,
    pub threads: u64,
    /// Of them, those that had not ended.
    pub unfinished_threads: u64,
    /// Blocks that a recorded thread ended.
    pub waits: u64,
    /// Blocks that somebody else ended.
    pub delays: u64,
    /// How long those lasted together.
    pub delays_ns: u64,
    pub events: u64,
    /// Events that were lost.
    pub lost_events: u64,
    /// Why it ends: `exit`, `limit` or `interrupt`.
    pub ended_by: String,
    /// The fastest tenth of wake-ups of other vCPUs took at most this; null with too few of them.
    pub wake_p10_ns: Option<u64>,
    /// Their median; null with too few of them.
    pub wake_p50_ns: Option<u64>,
}

/// The recording played back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replayed {
    /// Until the last thread ended.
    pub wall_ns: u64,
    /// Over the recording's.
    pub wall_ratio: f64,
}

/// The question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIf {
    pub vcpus: u32,
    /// Physical CPUs.
    pub pcpus: u32,
    /// The host's scheduler.
    pub scheduler: String,
    /// Its slice; null: its own.
    pub slice_ns: Option<u64>,
    /// What another VM of as many vCPUs runs; null: there is none.
    pub neighbour: Option<String>,
    /// Where costs are from: `recorded`, or a set's name.
    pub costs: String,
}

/// The answer under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfRow {
    pub policy: String,
    /// Until the last thread ended; null if it had not by the end of the simulation.
    pub wall_ns: Option<u64>,
    /// Times as fast as the replay; null with `wall_ns`.
    pub speedup: Option<f64>,
    /// Times as fast as under the first policy; null with either `wall_ns`.
    pub policy_speedup: Option<f64>,
    /// vCPUs waited for pCPUs.
    pub stolen_ns: u64,
    pub halts: u64,
    /// vCPUs the program was allowed, on average; null where nobody manages it.
    pub active_vcpus_mean: Option<f64>,
    /// Items a second of the neighbour; null without one.
    pub neighbour_items_per_s: Option<f64>,
}

fn program(command: &[String]) -> &str {
    command.first().map_or("?", String::as_str)
}

impl Shown for RecordReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A recording of a program's threads");
        let (events, threads) = (count(self.events, "event"), count(self.threads, "thread"));
        let (program, wall, size) = (program(&self.command), time(self.wall_ns), bytes(self.file_bytes));
        document.both(line(format!("{}: {events} of {threads} of {program} in {wall}, {size}.", self.file)));
        document.both(notes(&self.notes));
        document
    }
}

impl Shown for SimRecordingReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A recorded program, simulated elsewhere");
        document.both(self.stopped_by.as_deref().map(|by| line(partial(by))));
        document.both([self.was(), self.played_back(), self.asked()].map(line));
        document.both(table("", self.rows.iter().map(WhatIfRow::cells)));
        document.both(notes(&self.notes));
        document
    }
}

impl SimRecordingReport {
    fn was(&self) -> String {
        let Recorded { vcpus, wall_ns, cpu_ns, threads, waits, delays, .. } = &self.recorded;
        let (threads, program) = (count(*threads, "thread"), program(&self.command));
        let (wall, cpu, vcpus) = (time(*wall_ns), time(*cpu_ns), count(u64::from(*vcpus), "vCPU"));
        let waits = format!("{} for each other, {delays} for others or timers", count(*waits, "wait"));
        format!("{}: {threads} of {program} ran {wall} ({cpu} of CPU time) on {vcpus}: {waits}.", self.file)
    }

    fn played_back(&self) -> String {
        let percent = (self.replay.wall_ratio - 1.0) * 100.0;
        let wall = time(self.replay.wall_ns);
        format!("Played back on as many, each with a pCPU of its own: {wall} ({percent:+.1} %).")
    }

    fn asked(&self) -> String {
        let WhatIf { vcpus, pcpus, scheduler, .. } = &self.what_if;
        let slice = self.what_if.slice_ns.map_or_else(String::new, |ns| format!(", slices of {}", time(ns)));
        let beside = self.what_if.neighbour.as_ref().map_or_else(String::new, |program| format!(", beside {program}"));
        let (vcpus, pcpus) = (count(u64::from(*vcpus), "vCPU"), count(u64::from(*pcpus), "pCPU"));
        format!("On {vcpus} on {pcpus} under {scheduler}{slice}{beside}:")
    }
}

impl WhatIfRow {
    fn cells(&self) -> Row {
        Row::default()
            .text("policy", &self.policy)
            .number("takes", self.wall_ns.map_or_else(|| "did not end".to_owned(), time))
            .fixed("speedup over the replay", self.speedup, 2)
            .fixed("over the first policy", self.policy_speedup, 2)
            .time("stolen", self.stolen_ns)
            .number("halts", self.halts)
    }
}
