//! Ratios with their intervals, one a row, against 1: the drawing that a verdict is read from.

use super::DrawError;
use super::chart::{Axis, Look, Row, Scale, plain_number, rows, rows_height};
use super::figure::Figure;

/// A ratio and how sure it is.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    pub label: String,
    pub median: f64,
    /// 95 % interval; `None` where there are too few values for one.
    pub ci95: Option<[f64; 2]>,
    pub look: Look,
}

impl Estimate {
    /// As text: `1.05 (0.99 to 1.12)`.
    pub fn told(&self) -> String {
        told(self.median, self.ci95)
    }
}

/// A ratio with its interval.
pub(super) fn told(median: f64, ci95: Option<[f64; 2]>) -> String {
    let interval = ci95.map(|[low, high]| format!(" ({low:.3} to {high:.3})"));
    format!("{median:.3}{}", interval.unwrap_or_default())
}

/// The words around a forest.
pub(super) struct Words<'a> {
    pub title: String,
    pub caption: String,
    /// What the ratio is of.
    pub axis: &'a str,
    /// What 1 means; `None` where it is no mark to read by.
    pub one: Option<&'a str>,
    pub legend: Vec<(Look, &'a str)>,
}

pub(super) fn figure(words: Words<'_>, estimates: &[Estimate]) -> Result<Figure, DrawError> {
    let lines: Vec<Row> = estimates
        .iter()
        .map(|estimate| Row {
            label: estimate.label.clone(),
            range: estimate.ci95.map(|[low, high]| (low, high, estimate.look.colour)),
            marks: vec![(estimate.median, estimate.look)],
            note: format!("{:.2}", estimate.median),
        })
        .collect();
    let values = estimates.iter().flat_map(|estimate| {
        let ends = estimate.ci95.into_iter().flatten();
        ends.chain([estimate.median])
    });
    let scale = if words.one.is_some() { Scale::ratio(values) } else { Scale::from_zero(values) };
    let told: Vec<String> =
        estimates.iter().map(|estimate| format!("{}: {}", estimate.label, estimate.told())).collect();
    Figure::draw(words.title, told.join("; "), words.caption, rows_height(lines.len()), |canvas| {
        canvas.legend(&words.legend)?;
        let axis = Axis { scale, name: words.axis, label: &plain_number };
        rows(canvas, axis, &lines, words.one.map(|one| (1.0, one)))
    })
}
