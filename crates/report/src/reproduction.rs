//! `gleaner.reproduction/1`: a figure or table of one of the papers, simulated; of `cache reproduce` and `sim
//! reproduce`.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a reproduction gave, beside what the paper says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReproductionReport {
    /// `gleaner.reproduction/1`.
    pub schema: String,
    /// Which figure or table, such as `micro:fig10`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Whether less was simulated than a result needs.
    pub smoke: bool,
    /// What was simulated on what, in order.
    pub parameters: Vec<ReproductionParameter>,
    /// What was simulated, and the paper's figures and statements.
    pub rows: Vec<ReproductionRow>,
    /// What the reader should know about it.
    pub notes: Vec<String>,
}

/// One of the simulation's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReproductionParameter {
    /// Its name, with the unit.
    pub name: String,
    /// Its value, as text.
    pub value: String,
}

/// One figure, or one statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReproductionRow {
    /// Which mix, workload or group of them.
    pub case: String,
    /// What is counted, with its unit.
    pub metric: String,
    /// The figure that the paper gives; null where it gives none in its text.
    pub paper: Option<f64>,
    /// What the paper says of it in words: an order, a tendency; null where it says nothing.
    pub paper_order: Option<String>,
    /// What the simulation gave; null if it could not say.
    pub simulated: Option<f64>,
    /// The same with costs measured on a real machine; null where there are none.
    pub calibrated: Option<f64>,
    /// Whether it stands to the others as the paper says; null where the paper says nothing.
    pub agrees: Option<bool>,
    /// Less was simulated than a result needs.
    pub smoke: bool,
    /// By what it was judged, and what else should be known.
    pub note: Option<String>,
    /// `predicted`, or `calibrated`: the row was used for calibration, or depends on a parameter without a source; null
    /// for figures of `cache reproduce`, which is calibrated with nothing.
    #[serde(default)]
    pub basis: Option<String>,
    /// How far off the simulation is, relative to the paper's figure; null where the paper gives none.
    #[serde(default)]
    pub error_ratio: Option<f64>,
}

impl ReproductionReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.reproduction/1";

    /// Rows about which the paper says something.
    pub fn compared(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.rows.iter().filter(|row| row.is_compared())
    }

    /// Rows about which the paper says something and for which nothing was fitted.
    pub fn predicted(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.compared().filter(|row| row.basis.as_deref() == Some("predicted"))
    }

    fn measured(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.rows.iter().filter(|row| !row.is_compared())
    }
}

impl ReproductionRow {
    /// Whether the paper gives a figure for it or says something of it.
    pub fn is_compared(&self) -> bool {
        self.paper.is_some() || self.paper_order.is_some()
    }
}

/// The unit that most metrics end in, and the word before it that tells them apart.
fn split(metric: &str) -> (&str, &str) {
    metric.rsplit_once(' ').unwrap_or((metric, ""))
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

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

impl ReproductionReport {
    /// Cases down, metrics across; one table for each unit.
    fn write_measured(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unit in distinct(self.measured().map(|row| split(&row.metric).1)) {
            let of_unit = || self.measured().filter(|row| split(&row.metric).1 == unit);
            let columns = distinct(of_unit().map(|row| split(&row.metric).0));
            let header: Vec<&str> = std::iter::once(unit).chain(columns.iter().copied()).collect();
            let mut table = text::table(&header);
            for case in distinct(of_unit().map(|row| row.case.as_str())) {
                let value = |column: &&str| {
                    let found = of_unit().find(|row| row.case == case && split(&row.metric).0 == *column);
                    found.map_or_else(
                        || "-".to_owned(),
                        |row| match row.calibrated {
                            Some(calibrated) => format!("{} ({calibrated:.3})", number(row.simulated)),
                            None => number(row.simulated),
                        },
                    )
                };
                table.add_row(std::iter::once(case.to_owned()).chain(columns.iter().map(value)));
            }
            writeln!(f, "{table}\n")?;
        }
        if self.measured().any(|row| row.calibrated.is_some()) {
            writeln!(f, "In brackets: with costs measured on a real machine.\n")?;
        }
        Ok(())
    }

    fn write_compared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compared().next().is_none() {
            return Ok(());
        }
        writeln!(
            f,
            "What the paper says of it{}:",
            if self.smoke { " (smoke run: too short to tell for certain)" } else { "" }
        )?;
        for row in self.compared() {
            let verdict = match row.agrees {
                Some(true) => "agrees",
                Some(false) => "DISAGREES",
                None => "open",
            };
            write!(f, "  {verdict:<10}{}: ", row.case)?;
            match (&row.paper_order, row.paper) {
                (Some(words), Some(figure)) => write!(f, "{words} ({figure:.3})")?,
                (Some(words), _) => f.write_str(words)?,
                (None, figure) => f.write_str(&number(figure))?,
            }
            write!(f, "; here {} {}", row.metric, number(row.simulated))?;
            if let Some(calibrated) = row.calibrated {
                write!(f, ", calibrated {calibrated:.3}")?;
            }
            if let Some(error) = row.error_ratio {
                write!(f, " ({:+.0} %)", error * 100.0)?;
            }
            if let Some(basis) = &row.basis {
                write!(f, ", {basis}")?;
            }
            writeln!(f, "{}", row.note.as_ref().map_or_else(String::new, |note| format!(" [{note}]")))?;
        }
        if self.compared().any(|row| row.basis.is_some()) {
            let agree = self.predicted().filter(|row| row.agrees == Some(true)).count();
            return writeln!(f, "{agree} of {} agree.", text::count(self.predicted().count() as u64, "predicted row"));
        }
        let (agree, of) = (self.compared().filter(|row| row.agrees == Some(true)).count(), self.compared().count());
        writeln!(f, "{agree} of {} agree.", text::count(of as u64, "statement"))
    }
}

impl fmt::Display for ReproductionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.id, self.title)?;
        for parameter in &self.parameters {
            writeln!(f, "  {}: {}", parameter.name, parameter.value)?;
        }
        writeln!(f)?;
        self.write_measured(f)?;
        self.write_compared(f)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}
