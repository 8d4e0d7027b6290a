//! `gleaner.record/1` and `gleaner.sim-recording/1`: a real program's threads recorded, and what the recording comes to
//! elsewhere.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner record` wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordReport {
    /// `gleaner.record/1`.
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where the recording is.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// vCPUs that the program could use.
    pub vcpus: u32,
    /// From the program's start to its end, or to the recording's.
    pub wall_ns: u64,
    /// Threads born.
    pub threads: u64,
    /// Events in the recording.
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
    /// `gleaner.sim-recording/1`.
    pub schema: String,
    /// The recording.
    pub file: String,
    /// The recorded program and its arguments.
    pub command: Vec<String>,
    /// The kernel that it ran on.
    pub kernel: String,
    /// What was recorded.
    pub recorded: Recorded,
    /// Played back as it was recorded: as many vCPUs, each with a pCPU for itself, nobody managing.
    pub replay: Replayed,
    /// What was asked.
    pub what_if: WhatIf,
    /// Why there is less than was asked for: `interrupt`, `max-time` or `max-events`; null: there is all of it.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// The answer, for each policy.
    pub rows: Vec<WhatIfRow>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// What was recorded.
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
    /// Threads.
    pub threads: u64,
    /// Of them, those that had not ended.
    pub unfinished_threads: u64,
    /// Blocks that a recorded thread ended.
    pub waits: u64,
    /// Blocks that somebody else ended.
    pub delays: u64,
    /// How long those lasted together.
    pub delays_ns: u64,
    /// Events.
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
    /// vCPUs.
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
    /// The policy.
    pub policy: String,
    /// Until the last thread ended; null if it had not by the end of the simulation.
    pub wall_ns: Option<u64>,
    /// Times as fast as the replay; null with `wall_ns`.
    pub speedup: Option<f64>,
    /// Times as fast as under the first policy; null with either `wall_ns`.
    pub policy_speedup: Option<f64>,
    /// vCPUs waited for pCPUs.
    pub stolen_ns: u64,
    /// Halts.
    pub halts: u64,
    /// vCPUs the program was allowed, on average; null where nobody manages it.
    pub active_vcpus_mean: Option<f64>,
    /// Items a second of the neighbour; null without one.
    pub neighbour_items_per_s: Option<f64>,
}

impl RecordReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.record/1";
}

impl SimRecordingReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.sim-recording/1";
}

fn program(command: &[String]) -> &str {
    command.first().map_or("?", String::as_str)
}

impl fmt::Display for RecordReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (events, threads) = (text::count(self.events, "event"), text::count(self.threads, "thread"));
        writeln!(
            f,
            "{}: {events} of {threads} of {} in {}, {}.",
            self.file,
            program(&self.command),
            text::duration(Some(self.wall_ns)),
            text::bytes(self.file_bytes),
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}

impl fmt::Display for SimRecordingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recorded { vcpus, wall_ns, cpu_ns, threads, waits, delays, .. } = &self.recorded;
        let time = |ns: u64| text::duration(Some(ns));
        text::partial(f, self.stopped_by.as_deref())?;
        writeln!(
            f,
            "{}: {} of {} ran {} ({} of CPU time) on {}: {} for each other, {} for others or timers.",
            self.file,
            text::count(*threads, "thread"),
            program(&self.command),
            time(*wall_ns),
            time(*cpu_ns),
            text::count(u64::from(*vcpus), "vCPU"),
            text::count(*waits, "wait"),
            delays,
        )?;
        let percent = (self.replay.wall_ratio - 1.0) * 100.0;
        writeln!(
            f,
            "Played back on as many, each with a pCPU of its own: {} ({percent:+.1} %).",
            time(self.replay.wall_ns)
        )?;
        let asked = &self.what_if;
        let slice = asked.slice_ns.map_or_else(String::new, |ns| format!(", slices of {}", time(ns)));
        let beside = asked.neighbour.as_ref().map_or_else(String::new, |program| format!(", beside {program}"));
        writeln!(
            f,
            "On {} on {} under {}{slice}{beside}:",
            text::count(u64::from(asked.vcpus), "vCPU"),
            text::count(u64::from(asked.pcpus), "pCPU"),
            asked.scheduler,
        )?;
        let mut table =
            text::table(&["policy", "takes", "speedup over the replay", "over the first policy", "stolen", "halts"]);
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        for row in &self.rows {
            table.add_row([
                row.policy.clone(),
                row.wall_ns.map_or_else(|| "did not end".to_owned(), time),
                ratio(row.speedup),
                ratio(row.policy_speedup),
                time(row.stolen_ns),
                row.halts.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}
