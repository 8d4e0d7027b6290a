//! The chart of `gleaner ab`: every run of a comparison, joined within pairs.

use super::AbReport;
use crate::show::{Axis, Body, Chart, Extent, MUTED, Mark, OUTLIER, Plane, nth, number, seconds};
use crate::text::count;

/// A run's pair, its mode's place, what is compared, whether it is an outlier.
type Point = (u64, usize, f64, bool);

pub(super) fn pairs(report: &AbReport) -> Chart {
    let metric = report.metric.as_ref();
    let what = metric.map_or("run time", |metric| &metric.name);
    let better = if metric.is_some_and(|metric| metric.better == "higher") { "higher" } else { "lower" };
    let point = |run: &super::AbRun| {
        let which = report.modes.iter().position(|mode| mode.mode == run.mode)?;
        let value = if metric.is_some() { run.metric? } else { run.wall_ns as f64 };
        Some((run.pair, which, value, run.outlier))
    };
    let points: Vec<Point> = report.runs.iter().filter_map(point).collect();
    let last = report.runs.iter().map(|run| run.pair).max().unwrap_or(1) as f64;
    let circled = match report.runs.iter().filter(|run| run.outlier).count() as u64 {
        0 => "No run is far from the others of its mode.".to_owned(),
        n => format!(
            "{} {} far from the others of the same mode and circled; outliers count all the same.",
            count(n, "run"),
            if n == 1 { "is" } else { "are" }
        ),
    };
    let place = |&(pair, _, value, _): &Point| (pair as f64, value);
    let together: Vec<&[Point]> = points.chunk_by(|a, b| a.0 == b.0).collect();
    let marks = together.iter().copied().flatten().flat_map(|&(pair, which, value, outlier)| {
        let mark = |name: &str, look| (pair as f64, Mark::new(value, name, look), String::new());
        [Some(mark(report.name(which), nth(which))), outlier.then(|| mark("outlier", OUTLIER))].into_iter().flatten()
    });
    let modes: Vec<&str> = report.modes.iter().map(|mode| mode.mode.as_str()).collect();
    Chart {
        title: format!("{}: {what} of every run, pair by pair", report.subject()),
        caption: format!(
            "Every run is a mark, the two of a pair are joined; {better} is better. \
             A drift of the machine moves both runs of a pair. {circled}"
        ),
        x: Axis::new("pair, in the order in which they ran", number, Extent::Whole(0.5, last + 0.5, 20)),
        body: Body::Plane(Plane {
            y: Axis::new(what, if metric.is_some() { number } else { seconds }, Extent::FromZero),
            height: 320,
            description: format!(
                "{} runs in {}: {what} of each, {} joined within pairs",
                points.len(),
                count(report.pairs, "pair"),
                modes.join(" and ")
            ),
            paths: together.iter().map(|pair| (pair.iter().map(place).collect(), MUTED, 1)).collect(),
            marks: marks.collect(),
        }),
    }
}
