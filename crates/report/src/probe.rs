//! `gleaner.probe/1`: the paper's Table 2 on this machine.

use crate::show::{Axis, Bar, Chart, Document, Part, Row, Shown, fact, line, notes, quantile, table, verdict};
use crate::text::time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner probe` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
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
    pub means: Option<Vec<MeansResult>>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeansResult {
    /// `halted`, `idle-poll`, `haltpoll`, `pm-qos` or `yielding`.
    pub means: String,
    /// Why this machine does not have it; null where it has.
    pub why_not: Option<String>,
    /// One entry per gap.
    pub cells: Vec<MeansCell>,
}

/// One means at one gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeansCell {
    /// Sleep between two wake-ups.
    pub gap_ns: u64,
    pub n: u64,
    pub p50_ns: u64,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingResult {
    /// `A`: same vCPU. `B`: other vCPU, retained. `C`: other vCPU, halted. `D`: other vCPU, contended.
    pub setting: String,
    pub n: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Stolen share of the waiter's vCPU meanwhile; null where the hypervisor reports none.
    pub steal_ratio: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeOuts {
    /// mean C - mean B.
    pub frugal_ns: u64,
    /// p99 C - p99 B, within its bounds.
    pub balanced_ns: u64,
    /// The fixed one.
    pub latency_ns: u64,
}

impl ProbeReport {
    pub fn setting(&self, name: &str) -> Option<&SettingResult> {
        self.settings.iter().find(|result| result.setting == name)
    }
}

/// What the page explains.
const TERMS: &[&str] =
    &["halt", "retained", "time-out", "vCPU", "steal", "profile", "blocked-waiter wake-up (BWW) problem"];

impl Shown for ProbeReport {
    fn document(&self) -> Document {
        let gap = time(self.gap_ns);
        let heading = format!("What a wake-up costs here, {gap} after the last");
        let mut document = Document { terms: TERMS, ..Document::new(heading) };
        let told = self.settings.iter().map(|setting| {
            format!("{} {} (p99 {})", self.words_of(setting), time(setting.p50_ns), time(setting.p99_ns))
        });
        let told = told.collect::<Vec<String>>().join(", ");
        document.page(line(format!("A thread that had slept for {gap} was woken, again and again: {told}.")));
        if let Some(means) = &self.means {
            document.both(means_parts(means));
            document.words(notes(&self.notes));
            return document;
        }
        document.words(line(format!("Time to wake a blocked thread, {gap} apart:")));
        let rows = self.settings.iter().map(|setting| {
            Row::default()
                .text("setting", format!("{}  {}", setting.setting, self.words_of(setting)))
                .number("samples", setting.n)
                .time("mean", setting.mean_ns)
                .page()
                .time("p50", setting.p50_ns)
                .time("p90", setting.p90_ns)
                .time("p99", setting.p99_ns)
                .time("max", setting.max_ns)
                .percent("steal", setting.steal_ratio)
                .page()
        });
        document.both(table(format!("Time to wake a blocked thread, {gap} apart"), rows));
        let pair = self.setting("B").zip(self.setting("C"));
        document.both(pair.map(|(b, c)| {
            let ratio = |c: u64, b: u64| c as f64 / b.max(1) as f64;
            let (p50, p99) = (ratio(c.p50_ns, b.p50_ns), ratio(c.p99_ns, b.p99_ns));
            verdict(format!(
                "Waking a thread on a halted vCPU takes {p50:.1} times as long as on one kept awake (p99: {p99:.1} \
                 times)."
            ))
        }));
        document.page(self.chart(pair));
        document.both(self.timeouts.map(|TimeOuts { frugal_ns, balanced_ns, latency_ns }| {
            let [frugal, balanced, latency] = [frugal_ns, balanced_ns, latency_ns].map(time);
            line(format!(
                "Retention time-outs from these: frugal {frugal} (mean C - mean B), balanced {balanced} (p99 C - p99 \
                 B, within bounds), latency {latency}."
            ))
        }));
        document.page(fact("waiter's vCPU", self.waiter_vcpu.to_string()));
        document.page(self.waker_vcpu.map(|waker| fact("waker's vCPU", waker.to_string())));
        document.both(notes(&self.notes));
        document
    }
}

impl ProbeReport {
    fn words_of(&self, setting: &SettingResult) -> &'static str {
        match (setting.setting.as_str(), self.d_kind.as_deref()) {
            ("A", _) => "same vCPU",
            ("B", _) => "other vCPU, kept awake",
            ("C", _) => "other vCPU, halted",
            (_, Some("host")) => "other vCPU, a second VM runs",
            _ => "other vCPU, contended",
        }
    }

    fn chart(&self, pair: Option<(&SettingResult, &SettingResult)>) -> Chart {
        let title = match pair {
            Some((b, c)) if c.p50_ns as f64 >= 1.3 * b.p50_ns as f64 || c.p99_ns >= b.p99_ns.saturating_mul(2) => {
                "Waking a thread takes longer when its vCPU has halted (C) than when it was kept awake (B)"
            }
            Some(_) => "Waking a thread takes about as long whether its vCPU has halted (C) or not (B)",
            None => "How long waking a thread takes",
        };
        let bar = |setting: &SettingResult| {
            let SettingResult { p50_ns, p90_ns, p99_ns, max_ns, .. } = *setting;
            let times = [("p50", p50_ns), ("p90", p90_ns), ("p99", p99_ns), ("largest", max_ns)];
            let marks = times.map(|(name, ns)| quantile(name, ns)).into();
            Bar::of(format!("{} {}", setting.setting, self.words_of(setting)), marks)
        };
        Chart::rows(
            title,
            "Each row is one setting of the paper's Table 2: where the waiting thread's vCPU was and in what state. \
             The further right, the later the woken thread ran. The scale is logarithmic: one step from 1 to 10 is ten \
             times as long.",
            Axis::times("time from wake-up to running"),
            self.settings.iter().map(bar).collect(),
        )
    }
}

/// One row a means; a cell is p50/p99, and how many times sooner than a halted vCPU.
fn means_parts(means: &[MeansResult]) -> Vec<Part> {
    let rows = means.iter().filter(|row| row.why_not.is_none()).map(|row| {
        let cell = |cells: Row, cell: &MeansCell| {
            let verdict = if row.means == "halted" { String::new() } else { format!("  {}", cell.verdict()) };
            cells.number(time(cell.gap_ns), format!("{}/{}{verdict}", time(cell.p50_ns), time(cell.p99_ns)))
        };
        row.cells.iter().fold(Row::default().text("kept awake by", &row.means), cell)
    });
    let title = "Time to wake a blocked thread on a vCPU that was idle for so long (p50/p99, and how much sooner than \
                 halted):";
    let missing =
        means.iter().filter_map(|row| Some(line(format!("No {} here: {}", row.means, row.why_not.as_ref()?))));
    std::iter::once(line(title)).chain(table("", rows)).chain(missing).collect()
}
