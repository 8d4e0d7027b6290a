//! `gleaner.cache-class/1`: what the last-level cache is to programs, and whether it should be divided among them.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner-lab cache classify` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheClassReport {
    /// `gleaner.cache-class/1`.
    pub schema: String,
    /// The last-level cache that is judged against.
    pub llc_bytes: u64,
    /// The level before it.
    pub l2_bytes: u64,
    /// Where these sizes are from: `table-v` (the paper's), `given` or `host`.
    pub llc_from: String,
    /// Fewer misses without a last level than this, per 1,000 instructions: CPU-bound.
    pub without_pki_min: f64,
    /// From this share of misses saved on: cache-friendly.
    pub saved_ratio_min: f64,
    /// Why there is less than was asked for: `interrupt` or `max-time`; null: there is all of it.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// One for each trace or command.
    pub programs: Vec<CacheClassProgram>,
    /// `yes`, `no` or `isolate` (several want the cache; dividing it keeps them apart and gives none of them more).
    pub partition: String,
    /// The same in words.
    pub verdict: String,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheClassProgram {
    /// What it is called.
    pub name: String,
    /// `cpu_bound`, `cache_friendly` or `thrashing`.
    pub class: String,
    /// Accesses read.
    pub accesses: u64,
    /// Instructions executed meanwhile.
    pub instructions: u64,
    /// Accesses of the warm-up, which do not count.
    pub warmup_accesses: u64,
    /// Different memory touched, estimated.
    pub footprint_bytes: u64,
    /// Accesses per 1,000 instructions.
    pub accesses_pki: f64,
    /// Accesses that get through the level before the last one, per 1,000 instructions.
    pub llc_accesses_pki: f64,
    /// Misses of the last level, per 1,000 instructions.
    pub llc_misses_pki: f64,
    /// Share of the last level's accesses that it serves; null where there are none.
    pub saved_ratio: Option<f64>,
    /// Misses by size, ascending.
    pub curve: Vec<CacheClassPoint>,
}

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheClassPoint {
    /// Size of the cache.
    pub size_bytes: u64,
    /// Misses per 1,000 instructions.
    pub misses_pki: f64,
}

impl CacheClassProgram {
    /// Its class in words.
    pub fn class_words(&self) -> &'static str {
        match self.class.as_str() {
            "cpu_bound" => "CPU-bound",
            "cache_friendly" => "cache-friendly",
            _ => "thrashing",
        }
    }

    /// What its class means for it.
    pub fn advice(&self) -> &'static str {
        match self.class.as_str() {
            "cpu_bound" => {
                "it hardly uses the last-level cache: the smallest share of it is enough, and short slices cost it \
                 little"
            }
            "cache_friendly" => {
                "the last-level cache serves it: it loses when others take the cache away, and pays for that after \
                 every short slice"
            }
            _ => {
                "the last-level cache does not help it, and it pushes out everybody else's lines: give it the \
                 smallest share"
            }
        }
    }
}

impl CacheClassReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.cache-class/1";

    /// Whether the cache should be divided among programs of these classes, and why.
    pub fn partition(classes: &[&str]) -> (&'static str, &'static str) {
        let count = |class: &str| classes.iter().filter(|other| **other == class).count();
        let (friendly, thrashing) = (count("cache_friendly"), count("thrashing"));
        match (classes.len(), friendly, thrashing) {
            (1, 1, _) => (
                "isolate",
                "Beside a thrashing neighbour, yes: it would push this program's lines out. Beside CPU-bound ones, no.",
            ),
            (1, _, 1) => (
                "yes",
                "If a neighbour is cache-friendly, yes: confine this one to the smallest share. It loses nothing by \
                 that.",
            ),
            (1, ..) => ("no", "Not for this program: it hardly uses the last-level cache."),
            (_, 0, _) => ("no", "No: none of these programs gains from the last-level cache."),
            (_, _, 1..) => (
                "yes",
                "Yes: confine the thrashing ones to the smallest share and leave the rest to the cache-friendly ones.",
            ),
            (_, 1, _) => ("no", "No: one program uses the cache, and the others leave it alone."),
            _ => {
                ("isolate", "Only to keep them apart: all who use the cache need it, so what one gains another loses.")
            }
        }
    }
}

/// Eight heights of a line of text.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn sparkline(curve: &[CacheClassPoint]) -> String {
    let most = curve.iter().map(|point| point.misses_pki).fold(f64::MIN_POSITIVE, f64::max);
    curve.iter().map(|point| HEIGHTS[((point.misses_pki / most * 8.0) as usize).min(7)]).collect()
}

/// The curve of one program, a row for each size.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn plot(f: &mut fmt::Formatter<'_>, report: &CacheClassReport, program: &CacheClassProgram) -> fmt::Result {
    const WIDTH: f64 = 50.0;
    writeln!(f, "Misses per 1,000 instructions by the size of the cache:")?;
    let most = program.curve.iter().map(|point| point.misses_pki).fold(f64::MIN_POSITIVE, f64::max);
    for point in &program.curve {
        let bar = "█".repeat((point.misses_pki / most * WIDTH).round().clamp(0.0, WIDTH) as usize);
        let mark = match point.size_bytes {
            size if size == report.llc_bytes => "  <- last level",
            size if size == report.l2_bytes => "  <- level before it",
            _ => "",
        };
        writeln!(f, "{:>8} {:>8.2} {bar}{mark}", text::bytes(point.size_bytes), point.misses_pki)?;
    }
    Ok(())
}

impl fmt::Display for CacheClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.llc_from.as_str() {
            "host" => "this machine's",
            "given" => "as given",
            _ => "the paper's",
        };
        text::partial(f, self.stopped_by.as_deref())?;
        writeln!(
            f,
            "Against a last-level cache of {} behind {} ({from}), per 1,000 instructions:",
            text::bytes(self.llc_bytes),
            text::bytes(self.l2_bytes)
        )?;
        let mut table = text::table(&[
            "program",
            "class",
            "reach it",
            "miss it",
            "served",
            "touches",
            "misses by size, 4 KB and up",
        ]);
        for program in &self.programs {
            table.add_row([
                program.name.clone(),
                program.class_words().to_owned(),
                format!("{:.2}", program.llc_accesses_pki),
                format!("{:.2}", program.llc_misses_pki),
                program.saved_ratio.map_or_else(|| "-".to_owned(), text::percent),
                text::bytes(program.footprint_bytes),
                sparkline(&program.curve),
            ]);
        }
        writeln!(f, "{table}")?;
        if let [program] = &self.programs[..] {
            plot(f, self, program)?;
            writeln!(f, "{} is {}: {}.", program.name, program.class_words(), program.advice())?;
        }
        writeln!(f, "Do I need cache partitioning? {}", self.verdict)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_by_table() {
        const CPU: &str = "cpu_bound";
        const CFR: &str = "cache_friendly";
        const THR: &str = "thrashing";
        for (classes, expected) in [
            (&[CPU][..], "no"),
            (&[CFR], "isolate"),
            (&[THR], "yes"),
            (&[CPU, CPU], "no"),
            (&[CPU, CFR], "no"),
            (&[CPU, THR], "no"),
            (&[CFR, CFR], "isolate"),
            (&[CFR, THR], "yes"),
            (&[CPU, CFR, CFR, THR], "yes"),
            (&[THR, THR], "no"),
        ] {
            assert_eq!(CacheClassReport::partition(classes).0, expected, "{classes:?}");
        }
    }

    #[test]
    fn a_sparkline_falls_with_its_curve() {
        let point = |misses_pki| CacheClassPoint { size_bytes: 1, misses_pki };
        assert_eq!(sparkline(&[8.0, 7.9, 4.0, 1.0, 0.0].map(point)), "██▅▂▁");
        assert_eq!(sparkline(&[0.0].map(point)), "▁");
    }
}
