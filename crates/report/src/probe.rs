//! `gleaner.probe/1`: the paper's Table 2 on this machine.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner probe` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeReport {
    /// `gleaner.probe/1`.
    pub schema: String,
    /// Sleep between two wake-ups.
    pub gap_ns: u64,
    /// The waiter's vCPU.
    pub waiter_vcpu: u32,
    /// The waker's vCPU in settings B, C and D; null on a machine with one vCPU.
    pub waker_vcpu: Option<u32>,
    /// What made setting D: `guest` (a hog on the waiter's vCPU), `host` (a second VM), or null when D was not
    /// measured.
    pub d_kind: Option<String>,
    /// One entry per setting measured, in order.
    pub settings: Vec<SettingResult>,
    /// Retention time-outs by profile that follow from B and C; null unless both were measured.
    pub timeouts: Option<TimeOuts>,
    /// What a wake-up costs by each means of keeping a vCPU awake; null unless `--means` asked.
    #[serde(default)]
    pub means: Option<Vec<MeansResult>>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

/// One means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeansResult {
    /// `halted`, `idle-poll`, `haltpoll`, `pm-qos` or `yielding`.
    pub means: String,
    /// Why this machine does not have it; null where it has.
    pub why_not: Option<String>,
    /// One entry per gap.
    pub cells: Vec<MeansCell>,
}

/// One means at one gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeansCell {
    /// Sleep between two wake-ups.
    pub gap_ns: u64,
    /// Samples.
    pub n: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// A halted vCPU's median as a multiple of this one's: the median of the rounds.
    pub halted_by_it_ratio: Option<f64>,
    /// Its 95 % interval.
    pub halted_by_it_ci95: Option<[f64; 2]>,
}

impl MeansCell {
    /// In a word: by how much it beats a halted vCPU; `unclear` where the samples do not tell.
    fn verdict(&self) -> String {
        match (self.halted_by_it_ratio, self.halted_by_it_ci95) {
            (Some(ratio), Some([low, high])) if low > 1.0 || high < 1.0 => format!("{ratio:.1}x"),
            _ => "unclear".to_owned(),
        }
    }
}

/// One setting of Table 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// One row a means; a cell is p50/p99, and how many times sooner than a halted vCPU.
fn write_means(f: &mut fmt::Formatter<'_>, means: &[MeansResult]) -> fmt::Result {
    writeln!(
        f,
        "Time to wake a blocked thread on a vCPU that was idle for so long (p50/p99, and how much sooner than halted):"
    )?;
    let time = |ns| text::duration(Some(ns));
    let gaps: Vec<String> = means
        .iter()
        .find(|row| !row.cells.is_empty())
        .map_or_else(Vec::new, |row| row.cells.iter().map(|cell| time(cell.gap_ns)).collect());
    let mut header = vec!["kept awake by"];
    header.extend(gaps.iter().map(String::as_str));
    let mut table = text::table(&header);
    for row in means.iter().filter(|row| row.why_not.is_none()) {
        let mut cells = vec![row.means.clone()];
        cells.extend(row.cells.iter().map(|cell| {
            let verdict = if row.means == "halted" { String::new() } else { format!("  {}", cell.verdict()) };
            format!("{}/{}{verdict}", time(cell.p50_ns), time(cell.p99_ns))
        }));
        table.add_row(cells);
    }
    writeln!(f, "{table}")?;
    means
        .iter()
        .filter_map(|row| Some((&row.means, row.why_not.as_ref()?)))
        .try_for_each(|(means, why)| writeln!(f, "No {means} here: {why}"))
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(means) = &self.means {
            write_means(f, means)?;
            return self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"));
        }
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
                "Waking a thread on a halted vCPU takes {p50:.1} times as long as on one kept awake (p99: {p99:.1} \
                 times)."
            )?;
        }
        if let Some(timeouts) = self.timeouts {
            writeln!(
                f,
                "Retention time-outs from these: frugal {} (mean C - mean B), balanced {} (p99 C - p99 B, within \
                 bounds), latency {}.",
                text::duration(Some(timeouts.frugal_ns)),
                text::duration(Some(timeouts.balanced_ns)),
                text::duration(Some(timeouts.latency_ns))
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}
