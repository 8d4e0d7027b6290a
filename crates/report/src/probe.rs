//! `gleaner.probe/1`: the paper's Table 2 on this machine.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner probe` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// `gleaner.probe/1`.
    pub schema: String,
    /// Sleep between two wake-ups.
    pub gap_ns: u64,
    /// The waiter's vCPU.
    pub waiter_vcpu: u32,
    /// The waker's vCPU in settings B, C and D; null on a machine with one vCPU.
    pub waker_vcpu: Option<u32>,
    /// What made setting D: `guest` (a hog on the waiter's vCPU), `host` (a second VM), or null when D was not measured.
    pub d_kind: Option<String>,
    /// One entry per setting measured, in order.
    pub settings: Vec<SettingResult>,
    /// Retention time-outs by profile that follow from B and C; null unless both were measured.
    pub timeouts: Option<TimeOuts>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

/// One setting of Table 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingResult {
    /// `A`: same vCPU. `B`: other vCPU, retained. `C`: other vCPU, halted. `D`: other vCPU, contended.
    pub setting: String,
    /// Samples.
    pub n: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Stolen share of the waiter's vCPU meanwhile; null where the hypervisor reports none.
    pub steal_ratio: Option<f64>,
}

/// Retention time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOuts {
    /// mean C - mean B.
    pub frugal_ns: u64,
    /// p99 C - p99 B, within its bounds.
    pub balanced_ns: u64,
    /// The fixed one.
    pub latency_ns: u64,
}

impl ProbeReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.probe/1";

    /// The result of one setting.
    pub fn setting(&self, name: &str) -> Option<&SettingResult> {
        self.settings.iter().find(|result| result.setting == name)
    }
}

fn describe(setting: &str) -> &'static str {
    match setting {
        "A" => "A  same vCPU",
        "B" => "B  other vCPU, kept awake",
        "C" => "C  other vCPU, halted",
        _ => "D  other vCPU, contended",
    }
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Time to wake a blocked thread, {} apart:", text::duration(Some(self.gap_ns)))?;
        let mut table = text::table(&["setting", "samples", "p50", "p90", "p99", "max"]);
        for result in &self.settings {
            let time = |ns| text::duration(Some(ns));
            table.add_row([
                describe(&result.setting).to_owned(),
                result.n.to_string(),
                time(result.p50_ns),
                time(result.p90_ns),
                time(result.p99_ns),
                time(result.max_ns),
            ]);
        }
        writeln!(f, "{table}")?;
        if let (Some(b), Some(c)) = (self.setting("B"), self.setting("C")) {
            let ratio = |c: u64, b: u64| c as f64 / b.max(1) as f64;
            let (p50, p99) = (ratio(c.p50_ns, b.p50_ns), ratio(c.p99_ns, b.p99_ns));
            writeln!(
                f,
                "Waking a thread on a halted vCPU takes {p50:.1} times as long as on one kept awake (p99: {p99:.1} times)."
            )?;
        }
        if let Some(timeouts) = self.timeouts {
            writeln!(
                f,
                "Retention time-outs from these: frugal {} (mean C - mean B), balanced {} (p99 C - p99 B, within bounds), \
                 latency {}.",
                text::duration(Some(timeouts.frugal_ns)),
                text::duration(Some(timeouts.balanced_ns)),
                text::duration(Some(timeouts.latency_ns))
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}
