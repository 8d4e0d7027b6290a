//! `gleaner.cache-class/1`: what the last-level cache is to programs, and whether it should be divided among them.

use crate::show::{
    Axis, Body, Chart, Document, Extent, Mark, Part, Plane, Row, Shown, bytes_of, line, notes, nth, number, table,
    verdict,
};
use crate::text::{bytes, partial};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner-lab cache classify` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheClassReport {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheClassPoint {
    pub size_bytes: u64,
    /// Misses per 1,000 instructions.
    pub misses_pki: f64,
}

impl CacheClassProgram {
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
fn plot(report: &CacheClassReport, program: &CacheClassProgram) -> impl Iterator<Item = Part> {
    const WIDTH: f64 = 50.0;
    let most = program.curve.iter().map(|point| point.misses_pki).fold(f64::MIN_POSITIVE, f64::max);
    let row = move |point: &CacheClassPoint| {
        let bar = "█".repeat((point.misses_pki / most * WIDTH).round().clamp(0.0, WIDTH) as usize);
        let mark = match point.size_bytes {
            size if size == report.llc_bytes => "  <- last level",
            size if size == report.l2_bytes => "  <- level before it",
            _ => "",
        };
        line(format!("{:>8} {:>8.2} {bar}{mark}", bytes(point.size_bytes), point.misses_pki))
    };
    line("Misses per 1,000 instructions by the size of the cache:").into_iter().chain(program.curve.iter().map(row))
}

/// Curves that can be told apart in one figure.
const CURVES: usize = 6;

impl Shown for CacheClassReport {
    fn document(&self) -> Document {
        let names: Vec<&str> = self.programs.iter().map(|program| program.name.as_str()).collect();
        let mut document = Document::new(format!("What the last-level cache is to {}", names.join(", ")));
        let (llc, before) = (bytes(self.llc_bytes), bytes(self.l2_bytes));
        let from = match self.llc_from.as_str() {
            "host" => "this machine's",
            "given" => "as given",
            _ => "the paper's",
        };
        document.both(self.stopped_by.as_deref().map(|by| line(partial(by))));
        document.both(line(format!(
            "Against a last-level cache of {llc} behind {before} ({from}), per 1,000 instructions:"
        )));
        document.both(table(
            "Use of the last-level cache, per 1,000 instructions",
            self.programs.iter().map(CacheClassProgram::cells),
        ));
        document.page(self.programs.chunks(CURVES).map(|programs| self.chart(programs).into()));
        let said = |program: &CacheClassProgram| {
            line(format!("{} is {}: {}.", program.name, program.class_words(), program.advice()))
        };
        if let [program] = &self.programs[..] {
            document.words(plot(self, program));
            document.words(said(program));
        }
        document.both(verdict(format!("Do I need cache partitioning? {}", self.verdict)));
        document.page(self.programs.iter().map(said));
        document.both(notes(&self.notes));
        document
    }
}

impl CacheClassProgram {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.curve.iter().map(|point| (point.size_bytes as f64, point.misses_pki))
    }

    fn cells(&self) -> Row {
        Row::default()
            .text("program", &self.name)
            .text("class", self.class_words())
            .fixed("accesses", self.accesses_pki, 1)
            .page()
            .fixed("reach it", self.llc_accesses_pki, 2)
            .fixed("miss it", self.llc_misses_pki, 2)
            .percent("served", self.saved_ratio)
            .number("touches", bytes(self.footprint_bytes))
            .number("accesses read", self.accesses)
            .page()
            .text("misses by size, 4 KB and up", sparkline(&self.curve))
    }
}

impl CacheClassReport {
    fn chart(&self, programs: &[CacheClassProgram]) -> Chart {
        let said = programs.iter().map(|program| format!("{} {}", program.name, program.class_words()));
        let marks = programs.iter().enumerate().flat_map(|(at, program)| {
            program.points().map(move |(x, y)| (x, Mark::new(y, &program.name, nth(at)), String::new()))
        });
        let paths = programs.iter().enumerate().map(|(at, program)| (program.points().collect(), nth(at).0, 2));
        Chart {
            title: "Misses by the size of the cache".to_owned(),
            caption:
                "Each line is one program: how many accesses per 1,000 instructions miss in a cache of that size. \
                      Where the line falls between the two upright lines, the last-level cache serves the program; \
                      where it stays high beyond them, no cache does. Sizes are on a logarithmic scale."
                    .to_owned(),
            x: Axis::new("size of the cache (logarithmic)", bytes_of, Extent::LogBytes),
            body: Body::Plane(Plane {
                y: Axis::new("misses per 1,000 instructions", number, Extent::FromZero),
                height: 420,
                description: said.collect::<Vec<String>>().join("; "),
                references: vec![(self.l2_bytes as f64, "level before"), (self.llc_bytes as f64, "last level")],
                paths: paths.collect(),
                marks: marks.collect(),
            }),
        }
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
