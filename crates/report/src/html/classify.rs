//! `gleaner.cache-class/1` on the page: miss-ratio curves, and whether the cache should be divided.

use super::DrawError;
use super::chart::{Axis, Look, Scale, plain_number};
use super::figure::Figure;
use super::section::{Section, Table};
use crate::text::{bytes, percent};
use crate::{CacheClassProgram, CacheClassReport};
use maud::html;

/// Curves that can be told apart in one figure.
const CURVES: usize = 6;

pub(super) fn section(report: &CacheClassReport) -> Result<Section, DrawError> {
    let names: Vec<&str> = report.programs.iter().map(|program| program.name.as_str()).collect();
    let mut section = Section::new(format!("What the last-level cache is to {}", names.join(", ")));
    section.summary.push(html! { span.verdict { "Do I need cache partitioning? " (report.verdict) } });
    for program in &report.programs {
        section
            .summary
            .push(html! { (program.name) " is " strong { (program.class_words()) } ": " (program.advice()) "." });
    }
    for programs in report.programs.chunks(CURVES) {
        section.figures.push(figure(report, programs)?);
    }
    section.tables.push(table(report));
    section.facts.push(("last-level cache".to_owned(), format!("{} ({})", bytes(report.llc_bytes), report.llc_from)));
    section.facts.push(("level before it".to_owned(), bytes(report.l2_bytes)));
    section.notes.extend(report.stopped_by.as_deref().map(crate::text::partial_words));
    section.notes.extend(report.notes.iter().cloned());
    Ok(section)
}

fn figure(report: &CacheClassReport, programs: &[CacheClassProgram]) -> Result<Figure, DrawError> {
    let points = || programs.iter().flat_map(|program| &program.curve);
    let x = Scale::log(points().map(|point| point.size_bytes as f64));
    let ticks = (12..=40).step_by(2).map(|bits| (1_u64 << bits) as f64);
    let most = points().map(|point| point.size_bytes as f64).fold(0.0, f64::max);
    let x = x.with_ticks(ticks.filter(|tick| *tick <= most).collect());
    let y = Scale::linear(points().map(|point| point.misses_pki).chain([0.0]));
    let said: Vec<String> =
        programs.iter().map(|program| format!("{} {}", program.name, program.class_words())).collect();
    Figure::draw(
        "Misses by the size of the cache",
        said.join("; "),
        "Each line is one program: how many accesses per 1,000 instructions miss in a cache of that size. Where the \
         line falls between the two upright lines, the last-level cache serves the program; where it stays high \
         beyond them, no cache does. Sizes are on a logarithmic scale.",
        420,
        |canvas| {
            let looks: Vec<(Look, &str)> =
                programs.iter().enumerate().map(|(at, program)| (Look::nth(at), program.name.as_str())).collect();
            canvas.legend(&looks)?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ticks are sizes")]
            let size = |value: f64| bytes(value.round() as u64);
            let x = Axis { scale: x, name: "size of the cache (logarithmic)", label: &size };
            let y = Axis { scale: y, name: "misses per 1,000 instructions", label: &plain_number };
            let plot = canvas.plot(x, Some(y), 0, 76)?;
            plot.reference(report.l2_bytes as f64, "level before")?;
            plot.reference(report.llc_bytes as f64, "last level")?;
            for (at, program) in programs.iter().enumerate() {
                let look = Look::nth(at);
                let path: Vec<_> =
                    program.curve.iter().map(|point| (point.size_bytes as f64, point.misses_pki)).collect();
                plot.path(&path, look.colour, 2)?;
                path.iter().try_for_each(|&(x, y)| plot.mark(x, y, look))?;
            }
            Ok(())
        },
    )
}

fn table(report: &CacheClassReport) -> Table {
    let mut table = Table::new(
        "Use of the last-level cache, per 1,000 instructions",
        &[
            "program",
            "class",
            "accesses",
            "reach the last level",
            "miss it",
            "served",
            "memory touched",
            "accesses read",
        ],
    );
    table.words.push(1);
    for program in &report.programs {
        table.rows.push(vec![
            program.name.clone(),
            program.class_words().to_owned(),
            format!("{:.1}", program.accesses_pki),
            format!("{:.2}", program.llc_accesses_pki),
            format!("{:.2}", program.llc_misses_pki),
            program.saved_ratio.map_or_else(|| "-".to_owned(), percent),
            bytes(program.footprint_bytes),
            program.accesses.to_string(),
        ]);
    }
    table
}
