//! What `gleaner.reproduction/1` shows: what was simulated, case by case, and what the paper says of it.

use super::{ReproductionReport, ReproductionRow, chart};
use gleaner_report::show::{Document, Part, Row, Shown, bad, fact, line, notes, table, verdict};
use gleaner_report::text::{count, distinct, fixed};

/// Disagreements told at the top of the page.
const MOST_TOLD: usize = 12;
/// So far from the paper's figure a simulated one may be (the project's own measure).
const NEAR: f64 = 0.25;

impl Shown for ReproductionReport {
    fn document(&self) -> Document {
        let mut document = Document::new(format!("{}, simulated: {}", self.id, self.title));
        document.words(line(format!("{}: {}", self.id, self.title)));
        let parameters = || self.parameters.iter().map(|parameter| (&parameter.name, &parameter.value));
        document.words(parameters().map(|(name, value)| line(format!("  {name}: {value}"))));
        document.words(line(""));
        document.page(self.told());
        document.page(chart::against_paper(self).into_iter().map(Part::from));
        document
            .page(table("What the paper says, and what was simulated", self.compared().map(ReproductionRow::cells)));
        for unit in distinct(self.measured().map(ReproductionRow::unit)) {
            document.page(chart::by_case(self, unit).into_iter().map(Part::from));
            document.both(self.case_table(unit));
            document.words(line(""));
        }
        let calibrated = self.measured().any(|row| row.calibrated.is_some());
        document.words(calibrated.then(|| line("In brackets: with costs measured on a real machine.\n")));
        document.words(self.statements());
        document.page(parameters().map(|(name, value)| fact(name, value)));
        document.both(notes(&self.notes));
        document
    }
}

pub(super) fn number(value: Option<f64>) -> String {
    fixed(value, 3)
}

impl ReproductionReport {
    /// Rows that are figures of their own, and not statements of the paper.
    pub(super) fn measured(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.rows.iter().filter(|row| !row.is_compared())
    }

    /// How many of these rows agree, and how many there are.
    fn agree<'a>(of: impl Iterator<Item = &'a ReproductionRow> + Clone) -> (usize, u64) {
        (of.clone().filter(|row| row.agrees == Some(true)).count(), of.count() as u64)
    }

    /// What the page says first.
    fn told(&self) -> Vec<Part> {
        let compared: Vec<&ReproductionRow> = self.compared().collect();
        let of = |agrees| compared.iter().filter(|row| row.agrees == agrees).count();
        let mut told = Vec::new();
        if !compared.is_empty() {
            told.push(verdict(format!(
                "Of {} of the paper, {} agree, {} disagree and {} cannot be told.",
                count(compared.len() as u64, "statement"),
                of(Some(true)),
                of(Some(false)),
                of(None)
            )));
        }
        let (agree, predicted) = Self::agree(self.predicted().collect::<Vec<_>>().into_iter());
        if predicted > 0 {
            told.push(line(format!(
                "Of the {} for which nothing was fitted, {agree} agree; the others were used for calibration, or rest \
                 on a parameter without a source.",
                count(predicted, "row")
            )));
        }
        let ratios: Vec<f64> = compared.iter().filter_map(|row| row.ratio_to_paper(row.simulated)).collect();
        let near = ratios.iter().filter(|ratio| (*ratio - 1.0).abs() <= NEAR).count();
        let figures = count(ratios.len() as u64, "figure");
        told.extend(
            (!ratios.is_empty())
                .then(|| line(format!("{near} of {figures} that the paper gives were met within 25 %."))),
        );
        told.extend(
            self.smoke
                .then(|| bad("A smoke run: less was simulated than a result needs, and it says nothing for certain.")),
        );
        let against: Vec<&&ReproductionRow> = compared.iter().filter(|row| row.agrees == Some(false)).collect();
        told.extend(against.iter().take(MOST_TOLD).map(|row| {
            let (found, metric) = (number(row.simulated), &row.metric);
            bad(format!("Disagrees: {} {}, and here {metric} is {found}.", row.case, row.said()))
        }));
        let more = against.len().saturating_sub(MOST_TOLD) as u64;
        let more = (more > 0).then(|| count(more, "other disagreement"));
        told.extend(more.map(|more| line(format!("And {more}: the table has them all."))));
        told
    }

    /// What the paper says of it, in words.
    fn statements(&self) -> Vec<Part> {
        if self.compared().next().is_none() {
            return Vec::new();
        }
        let smoke = if self.smoke { " (smoke run: too short to tell for certain)" } else { "" };
        let mut lines = vec![line(format!("What the paper says of it{smoke}:"))];
        lines.extend(self.compared().map(ReproductionRow::statement).map(line));
        let (agree, of) = if self.compared().any(|row| row.basis.is_some()) {
            let (agree, of) = Self::agree(self.predicted().collect::<Vec<_>>().into_iter());
            (agree, count(of, "predicted row"))
        } else {
            let (agree, of) = Self::agree(self.compared().collect::<Vec<_>>().into_iter());
            (agree, count(of, "statement"))
        };
        lines.push(line(format!("{agree} of {of} agree.")));
        lines
    }

    /// Cases down, techniques across.
    fn case_table(&self, of_unit: &str) -> Option<Part> {
        let of = || self.measured().filter(|row| row.unit() == of_unit);
        let techniques = distinct(of().map(ReproductionRow::technique));
        let cell = |case: &str, name: &str| {
            let row = of().find(|row| row.case == case && row.technique() == name)?;
            let calibrated = row.calibrated.map(|calibrated| format!(" ({calibrated:.3})")).unwrap_or_default();
            Some(number(row.simulated) + &calibrated)
        };
        let rows = distinct(of().map(|row| row.case.as_str())).into_iter().map(|case| {
            let named = |row: Row, name: &&str| row.number(*name, cell(case, name));
            techniques.iter().fold(Row::default().text(of_unit, case), named)
        });
        let brackets = " (in brackets: with costs measured on a real machine)";
        let more = if of().any(|row| row.calibrated.is_some()) { brackets } else { "" };
        table(format!("{of_unit} by case{more}"), rows).map(|part| part.folded(12))
    }
}

impl ReproductionRow {
    /// A simulated value over what the paper gives, where both are there.
    pub(super) fn ratio_to_paper(&self, value: Option<f64>) -> Option<f64> {
        let paper = self.paper.filter(|paper| *paper != 0.0)?;
        Some(value? / paper).filter(|ratio| ratio.is_finite())
    }

    /// What the paper says, as words.
    fn said(&self) -> String {
        match (&self.paper_order, self.paper) {
            (Some(words), Some(figure)) => format!("{words} ({figure:.3})"),
            (Some(words), None) => words.clone(),
            (None, figure) => number(figure),
        }
    }

    fn statement(&self) -> String {
        let verdict = chart::verdict(self).0.replace("disagrees", "DISAGREES");
        let more = [
            self.calibrated.map(|calibrated| format!(", calibrated {calibrated:.3}")),
            self.error_ratio.map(|error| format!(" ({:+.0} %)", error * 100.0)),
            self.basis.as_ref().map(|basis| format!(", {basis}")),
            self.note.as_ref().map(|note| format!(" [{note}]")),
        ];
        let more: String = more.into_iter().flatten().collect();
        format!("  {verdict:<10}{}: {}; here {} {}{more}", self.case, self.said(), self.metric, number(self.simulated))
    }

    fn cells(&self) -> Row {
        Row::default()
            .text("case", &self.case)
            .text("the paper", self.paper_order.as_deref().unwrap_or("a figure"))
            .text("metric", &self.metric)
            .fixed("paper", self.paper, 3)
            .fixed("simulated", self.simulated, 3)
            .fixed("calibrated", self.calibrated, 3)
            .fixed("simulated / paper", self.ratio_to_paper(self.simulated), 3)
            .text("verdict", chart::verdict(self).0)
            .text("basis", self.basis.as_ref())
            .text("judged", self.note.as_deref().unwrap_or_default())
    }
}
