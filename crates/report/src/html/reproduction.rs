//! `gleaner.reproduction/1` on the page: what was simulated, case by case, and what the paper says of it.

use super::DrawError;
use super::chart::{Axis, GRID, Look, MUTED, Row, SERIES, Scale, Shape, axis_time, plain_number, rows, rows_height};
use super::figure::Figure;
use super::section::{Section, Table};
use crate::text::count;
use crate::{ReproductionReport, ReproductionRow};
use maud::{Markup, html};

/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;
/// Characters of a legend, each entry with its mark: more do not fit into one line.
const MOST_LEGEND: usize = 100;
/// Disagreements told at the top of the page.
const MOST_TOLD: usize = 12;
/// So far from the paper's figure a simulated one may be (the project's own measure).
const NEAR: f64 = 0.25;

/// How a verdict is drawn.
const VERDICTS: [(&str, Option<bool>, Look); 3] = [
    ("agrees", Some(true), Look { colour: SERIES[2], shape: Shape::Circle }),
    ("disagrees", Some(false), Look { colour: SERIES[1], shape: Shape::Triangle }),
    ("open", None, Look { colour: MUTED, shape: Shape::Square }),
];

pub(super) fn section(report: &ReproductionReport) -> Result<Section, DrawError> {
    let mut section = Section::new(format!("{}, simulated: {}", report.id, report.title));
    section.summary = told(report);
    section.figures = against_paper(report)?;
    for unit in distinct(shown(report).map(unit)) {
        section.figures.extend(by_case(report, unit)?);
        section.tables.push(case_table(report, unit));
    }
    let statements = statement_table(report);
    if !statements.rows.is_empty() {
        section.tables.insert(0, statements);
    }
    let facts = report.parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value.clone()));
    section.facts = facts.collect();
    section.notes.clone_from(&report.notes);
    Ok(section)
}

/// Rows that are figures of their own, and not statements of the paper.
fn shown(report: &ReproductionReport) -> impl Iterator<Item = &ReproductionRow> {
    report.rows.iter().filter(|row| !row.is_compared())
}

/// The last word of the metric; what is before it tells techniques apart.
fn unit(row: &ReproductionRow) -> &str {
    row.metric.rsplit_once(' ').map_or(row.metric.as_str(), |(_, unit)| unit)
}

fn technique(row: &ReproductionRow) -> &str {
    row.metric.rsplit_once(' ').map_or("", |(technique, _)| technique)
}

fn distinct<'a>(of: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    of.for_each(|one| {
        if !all.contains(&one) {
            all.push(one);
        }
    });
    all
}

fn verdict(row: &ReproductionRow) -> (&'static str, Look) {
    let known = VERDICTS.iter().find(|(_, agrees, _)| *agrees == row.agrees).unwrap_or(&VERDICTS[2]);
    (known.0, known.2)
}

/// What was simulated over what the paper gives, where both are there.
fn ratio_to_paper(row: &ReproductionRow, value: Option<f64>) -> Option<f64> {
    row.paper.filter(|paper| *paper != 0.0).zip(value).map(|(paper, value)| value / paper).filter(|r| r.is_finite())
}

fn told(report: &ReproductionReport) -> Vec<Markup> {
    let compared: Vec<&ReproductionRow> = report.compared().collect();
    let of = |agrees| compared.iter().filter(|row| row.agrees == agrees).count();
    let mut told = Vec::new();
    if !compared.is_empty() {
        told.push(html! {
            span.verdict {
                "Of " (count(compared.len() as u64, "statement")) " of the paper, " (of(Some(true))) " agree, "
                (of(Some(false))) " disagree and " (of(None)) " cannot be told."
            }
        });
    }
    let predicted = report.predicted().count();
    if predicted > 0 {
        let agree = report.predicted().filter(|row| row.agrees == Some(true)).count();
        told.push(html! {
            "Of the " (count(predicted as u64, "row")) " for which nothing was fitted, " (agree) " agree; the others \
                                                                                                  were used for \
                                                                                                  calibration, or \
                                                                                                  rest on a "
            "parameter without a source."
        });
    }
    let ratios: Vec<f64> = compared.iter().filter_map(|row| ratio_to_paper(row, row.simulated)).collect();
    if !ratios.is_empty() {
        let near = ratios.iter().filter(|ratio| (*ratio - 1.0).abs() <= NEAR).count();
        told.push(
            html! { (near) " of " (count(ratios.len() as u64, "figure")) " that the paper gives were met within 25 \
            %." },
        );
    }
    if report.smoke {
        told.push(html! { span.hurts { "A smoke run: less was simulated than a result needs, and it says nothing for \
        certain." } });
    }
    let against: Vec<&&ReproductionRow> = compared.iter().filter(|row| row.agrees == Some(false)).collect();
    for row in against.iter().take(MOST_TOLD) {
        let found = number(row.simulated);
        told.push(html! {
            span.hurts { "Disagrees: " (row.case) " " (said(row)) ", and here " (row.metric) " is " (found) "." }
        });
    }
    if against.len() > MOST_TOLD {
        let more = count((against.len() - MOST_TOLD) as u64, "other disagreement");
        told.push(html! { "And " (more) ": the table has them all." });
    }
    told
}

/// What the paper says, as words.
fn said(row: &ReproductionRow) -> String {
    match (&row.paper_order, row.paper) {
        (Some(words), Some(figure)) => format!("{words} ({})", number(Some(figure))),
        (Some(words), None) => words.clone(),
        (None, figure) => number(figure),
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// As many parts as it takes, as long as each other.
fn parts<T>(all: &[T]) -> impl Iterator<Item = &[T]> {
    let parts = all.len().div_ceil(MOST_ROWS).max(1);
    all.chunks(all.len().div_ceil(parts).max(1))
}

/// Simulated over the paper's figure, a row each.
fn against_paper(report: &ReproductionReport) -> Result<Vec<Figure>, DrawError> {
    let compared: Vec<(&ReproductionRow, f64)> =
        report.compared().filter_map(|row| Some((row, ratio_to_paper(row, row.simulated)?))).collect();
    let mut figures = Vec::new();
    for part in parts(&compared) {
        if part.is_empty() {
            break;
        }
        let ratios = || {
            let calibrated = part.iter().filter_map(|(row, _)| ratio_to_paper(row, row.calibrated));
            part.iter().map(|(_, ratio)| *ratio).chain(calibrated)
        };
        let lines: Vec<Row> = part.iter().map(|(row, ratio)| paper_row(row, *ratio)).collect();
        let told: Vec<String> = part.iter().map(|(row, ratio)| format!("{}: {ratio:.3}", label(row))).collect();
        let mut legend: Vec<(Look, &str)> = VERDICTS.iter().map(|(words, _, look)| (*look, *words)).collect();
        if part.iter().any(|(row, _)| row.calibrated.is_some()) {
            legend.push((CALIBRATED, "with costs of a real machine"));
        }
        figures.push(Figure::draw(
            format!("{}: simulated figures over the paper's", report.id),
            told.join("; "),
            "Each row is a figure that the paper gives: at 1 the simulation gave the same, left of it less, right of \
             it more. The colour says whether it stands to the others as the paper says.",
            rows_height(lines.len()),
            |canvas| {
                canvas.legend(&legend)?;
                let axis =
                    Axis { scale: Scale::ratio(ratios()), name: "simulated / paper (ratio)", label: &plain_number };
                rows(canvas, axis, &lines, Some((1.0, "1: the paper's figure")))
            },
        )?);
    }
    Ok(figures)
}

const CALIBRATED: Look = Look { colour: SERIES[0], shape: Shape::Ring };

fn label(row: &ReproductionRow) -> String {
    format!("{}, {}", row.case, row.metric)
}

fn paper_row(row: &ReproductionRow, ratio: f64) -> Row {
    let mut marks = vec![(ratio, verdict(row).1)];
    marks.extend(ratio_to_paper(row, row.calibrated).map(|ratio| (ratio, CALIBRATED)));
    Row { label: label(row), range: Some((1.0, ratio, GRID)), marks, note: String::new() }
}

/// In equal steps from 0, or in equal ratios where values are far apart.
fn scale(values: impl Iterator<Item = f64>) -> Scale {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least > 0.0 && most / least > 20.0 { Scale::log(values) } else { Scale::from_zero(values) }
}

/// Cases down, techniques as marks; more than fit into a legend or a figure in parts.
fn by_case(report: &ReproductionReport, of_unit: &str) -> Result<Vec<Figure>, DrawError> {
    let of = || shown(report).filter(|row| unit(row) == of_unit);
    let cases = distinct(of().filter(|row| row.simulated.is_some()).map(|row| row.case.as_str()));
    let mut figures = Vec::new();
    for techniques in legends(&distinct(of().map(technique))) {
        let looks: Vec<(Look, &str)> = techniques.iter().enumerate().map(|(n, name)| (Look::nth(n), *name)).collect();
        for part in parts(&cases) {
            if !part.is_empty() {
                figures.push(case_figure(report, of_unit, part, &looks)?);
            }
        }
    }
    Ok(figures)
}

/// Techniques in groups that fit into one line.
fn legends<'a>(all: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut groups: Vec<Vec<&'a str>> = vec![Vec::new()];
    let mut used = 0;
    for name in all {
        // A mark and the space around it are about five characters wide.
        used += name.chars().count() + 5;
        if used > MOST_LEGEND && groups.last().is_some_and(|group| !group.is_empty()) {
            groups.push(Vec::new());
            used = name.chars().count() + 5;
        }
        if let Some(group) = groups.last_mut() {
            group.push(name);
        }
    }
    groups
}

fn case_figure(
    report: &ReproductionReport,
    of_unit: &str,
    cases: &[&str],
    looks: &[(Look, &str)],
) -> Result<Figure, DrawError> {
    let value = |case: &str, name: &str| {
        let mut of = shown(report).filter(|row| unit(row) == of_unit && row.case == case);
        of.find(|row| technique(row) == name).and_then(|row| row.simulated)
    };
    let lines: Vec<Row> = cases
        .iter()
        .map(|case| {
            let marks: Vec<(f64, Look)> =
                looks.iter().filter_map(|(look, name)| Some((value(case, name)?, *look))).collect();
            let ends = marks.iter().map(|(value, _)| *value);
            let range = ends.clone().reduce(f64::min).zip(ends.reduce(f64::max));
            Row {
                label: (*case).to_owned(),
                range: range.map(|(low, high)| (low, high, GRID)),
                marks,
                note: String::new(),
            }
        })
        .collect();
    let is_ratio = of_unit.ends_with("_ratio");
    let one = is_ratio.then_some((1.0, "1: no difference"));
    let values = lines.iter().flat_map(|row| row.marks.iter().map(|(value, _)| *value));
    let scale = if is_ratio { Scale::ratio(values) } else { scale(values) };
    let names: Vec<&str> = looks.iter().map(|(_, name)| *name).filter(|name| !name.is_empty()).collect();
    let told: Vec<String> = lines
        .iter()
        .map(|row| {
            let values: Vec<String> = row.marks.iter().map(|(value, _)| number(Some(*value))).collect();
            format!("{}: {}", row.label, values.join(", "))
        })
        .collect();
    let time = of_unit.ends_with("_ns");
    let label: &dyn Fn(f64) -> String = if time { &axis_time } else { &plain_number };
    Figure::draw(
        format!("{}: {of_unit} by case", report.id),
        format!("{} of {}", names.join(", "), told.join("; ")),
        "Each row is a case, each mark a technique; the line joins the least and the greatest. What the unit means, \
         the parameters and notes below say.",
        rows_height(lines.len()),
        |canvas| {
            let legend: Vec<(Look, &str)> = looks.iter().copied().filter(|(_, name)| !name.is_empty()).collect();
            canvas.legend(&legend)?;
            rows(canvas, Axis { scale, name: of_unit, label }, &lines, one)
        },
    )
}

fn statement_table(report: &ReproductionReport) -> Table {
    let mut table = Table::new(
        "What the paper says, and what was simulated",
        &[
            "case",
            "the paper",
            "metric",
            "paper",
            "simulated",
            "calibrated",
            "simulated / paper",
            "verdict",
            "basis",
            "judged",
        ],
    );
    table.words = vec![1, 2, 7, 8, 9];
    for row in report.compared() {
        table.rows.push(vec![
            row.case.clone(),
            row.paper_order.clone().unwrap_or_else(|| "a figure".to_owned()),
            row.metric.clone(),
            number(row.paper),
            number(row.simulated),
            number(row.calibrated),
            number(ratio_to_paper(row, row.simulated)),
            verdict(row).0.to_owned(),
            row.basis.clone().unwrap_or_else(|| "-".to_owned()),
            row.note.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn case_table(report: &ReproductionReport, of_unit: &str) -> Table {
    let of = || shown(report).filter(|row| unit(row) == of_unit);
    let techniques = distinct(of().map(technique));
    let header: Vec<&str> = std::iter::once("case").chain(techniques.iter().copied()).collect();
    let calibrated = of().any(|row| row.calibrated.is_some());
    let more = if calibrated { " (in brackets: with costs measured on a real machine)" } else { "" };
    let mut table = Table::new(format!("{of_unit} by case{more}"), &header);
    for case in distinct(of().map(|row| row.case.as_str())) {
        let cell = |name: &&str| {
            let found = of().find(|row| row.case == case && technique(row) == *name);
            found.map_or_else(
                || "-".to_owned(),
                |row| match row.calibrated {
                    Some(calibrated) => format!("{} ({calibrated:.3})", number(row.simulated)),
                    None => number(row.simulated),
                },
            )
        };
        table.rows.push(std::iter::once(case.to_owned()).chain(techniques.iter().map(cell)).collect());
    }
    table.folded = table.rows.len() > 12;
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legends_fit_into_a_line_and_lose_nothing() {
        let long = "x".repeat(60);
        assert_eq!(legends(&["a", "b"]), [["a", "b"]]);
        assert_eq!(legends(&[&long, &long, "b"]), [vec![long.as_str()], vec![&long, "b"]]);
        assert_eq!(legends(&[&"y".repeat(200)]).concat().len(), 1);
    }

    #[test]
    fn parts_are_alike_and_whole() {
        let all: Vec<u32> = (0..34).collect();
        let lengths: Vec<usize> = parts(&all).map(<[u32]>::len).collect();
        assert_eq!(lengths, [17, 17]);
        assert_eq!(parts(&all).flatten().count(), 34);
        assert_eq!(parts::<u32>(&[]).flatten().count(), 0);
    }
}
