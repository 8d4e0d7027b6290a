//! Charts of a reproduction: simulated figures over the paper's, and each case with all techniques.

use super::{ReproductionReport, ReproductionRow};
use gleaner_report::show::{
    Axis, Bar, Chart, Extent, GRID, Look, MUTED, Mark, SERIES, Shape, nth, number as plain, seconds,
};
use gleaner_report::text::distinct;

/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;
/// Characters of a legend, each entry with its mark: more do not fit into one line.
const MOST_LEGEND: usize = 100;

/// As many parts as it takes, as long as each other.
fn parts<T>(all: &[T]) -> impl Iterator<Item = &[T]> {
    let parts = all.len().div_ceil(MOST_ROWS).max(1);
    all.chunks(all.len().div_ceil(parts).max(1))
}

/// In a word, and how it is drawn.
pub(super) fn verdict(row: &ReproductionRow) -> (&'static str, Look) {
    match row.agrees {
        Some(true) => ("agrees", Look(SERIES[2], Shape::Circle)),
        Some(false) => ("disagrees", Look(SERIES[1], Shape::Triangle)),
        None => ("open", Look(MUTED, Shape::Square)),
    }
}

/// Simulated over the paper's figure, a row each.
pub(super) fn against_paper(report: &ReproductionReport) -> Vec<Chart> {
    let calibrated = Look(SERIES[0], Shape::Ring);
    let bar = |row: &ReproductionRow| {
        let ratio = row.ratio_to_paper(row.simulated)?;
        let (name, look) = verdict(row);
        let mut marks = vec![Mark::new(ratio, name, look)];
        let measured = row.ratio_to_paper(row.calibrated);
        marks.extend(measured.map(|ratio| Mark::new(ratio, "with costs of a real machine", calibrated)));
        Some(Bar { range: Some((1.0, ratio, GRID)), ..Bar::of(format!("{}, {}", row.case, row.metric), marks) })
    };
    let bars: Vec<Bar> = report.compared().filter_map(bar).collect();
    let chart = |part: &[Bar]| {
        Chart::rows(
            format!("{}: simulated figures over the paper's", report.id),
            "Each row is a figure that the paper gives: at 1 the simulation gave the same, left of it less, right of \
             it more. The colour says whether it stands to the others as the paper says.",
            Axis::ratios("simulated / paper (ratio)"),
            part.to_vec(),
        )
        .at((1.0, "1: the paper's figure".to_owned()))
    };
    parts(&bars).map(chart).collect()
}

/// Cases down, techniques as marks; more than fit into a legend or a figure in parts.
pub(super) fn by_case(report: &ReproductionReport, of_unit: &str) -> Vec<Chart> {
    let of = || report.measured().filter(|row| row.unit() == of_unit);
    let cases = distinct(of().filter(|row| row.simulated.is_some()).map(|row| row.case.as_str()));
    let groups = legends(&distinct(of().map(ReproductionRow::technique)));
    groups.iter().flat_map(|group| parts(&cases).map(|part| of_cases(report, of_unit, part, group))).collect()
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

fn of_cases(report: &ReproductionReport, of_unit: &str, cases: &[&str], techniques: &[&str]) -> Chart {
    let value = |case: &str, name: &str| {
        let mut of = report.measured().filter(|row| row.unit() == of_unit && row.case == case);
        of.find(|row| row.technique() == name).and_then(|row| row.simulated)
    };
    let bar = |case: &&str| {
        let marks = techniques.iter().enumerate();
        let marks = marks.filter_map(|(n, name)| Some(Mark::new(value(case, name)?, *name, nth(n)))).collect();
        Bar::of(*case, marks)
    };
    let is_ratio = of_unit.ends_with("_ratio");
    let axis = Axis {
        name: of_unit.to_owned(),
        unit: if of_unit.ends_with("_ns") { seconds } else { plain },
        extent: if is_ratio { Extent::Ratio } else { Extent::FromZeroOrLog },
    };
    let chart = Chart::rows(
        format!("{}: {of_unit} by case", report.id),
        "Each row is a case, each mark a technique; the line joins the least and the greatest. What the unit means, \
         the parameters and notes below say.",
        axis,
        cases.iter().map(bar).collect(),
    );
    chart.at(is_ratio.then(|| (1.0, "1: no difference".to_owned())))
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
