//! The file of a table or figure, and the rows that it and the simulated figures make.
//!
//! A file's `[[row]]` names a figure (`value`) and says what the paper says of it: a number (`paper`), or words
//! (`says`) that are ours to judge (`holds`, with its `criterion` in words). With neither the paper has it as a
//! picture. `{}` stands for each of the names in `each`, `{NAME:N}` for a figure with N decimals.

use crate::row::{Basis, Row, within};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a paper says in a table or figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// What the reader should know, whatever came out.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why rows do not agree, by the names that rows have for it.
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    /// Said of a ratio that would agree if nothing had any effect.
    weak: Option<String>,
    #[serde(default, rename = "row")]
    rows: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    each: Option<Each>,
    case: String,
    metric: String,
    value: String,
    paper: Option<Paper>,
    says: Option<String>,
    /// `> 1.5`, `>= 0.9 and <= 1.1`, `other < 2 * another`: of the value where no figure is named.
    holds: Option<String>,
    criterion: Option<String>,
    note: Option<String>,
    /// Why it does not agree, where it does not.
    because: Option<String>,
    /// Why there is nothing to compare.
    open: Option<String>,
    calibrated: Option<Calibrated>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Each {
    List(String),
    These(Vec<String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Paper {
    Number(f64),
    Figure(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Calibrated {
    All(bool),
    /// Those in this list.
    In(String),
}

/// What was simulated: figures by name, and lists of names.
#[derive(Clone, Debug, Default)]
pub struct Found {
    figures: BTreeMap<String, f64>,
    lists: BTreeMap<String, Vec<String>>,
}

impl Found {
    /// A figure; without one (nothing was done) it is no number.
    pub fn put(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }

    /// Names that rows are made for.
    pub fn list<T: Into<String>>(&mut self, name: &str, items: impl IntoIterator<Item = T>) {
        self.lists.insert(name.to_owned(), items.into_iter().map(Into::into).collect());
    }

    fn figure(&self, name: &str) -> f64 {
        *self.figures.get(name).unwrap_or_else(|| panic!("a row asks for {name:?}, which was not simulated"))
    }

    fn of_list(&self, name: &str) -> &[String] {
        self.lists.get(name).unwrap_or_else(|| panic!("a row asks for the list {name:?}, and there is none"))
    }

    /// `{}` and `{NAME:N}` filled in.
    fn fill(&self, text: &str, item: &str) -> String {
        let text = text.replace("{}", item);
        let mut parts = text.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (inside, behind) = part.split_once('}').unwrap_or((part, ""));
            let (name, digits) = inside.rsplit_once(':').unwrap_or((inside, "0"));
            let digits = digits.parse().unwrap_or(0);
            let _ = write!(filled, "{:.digits$}", self.figure(name));
            filled += behind;
        }
        filled
    }

    fn bound(&self, text: &str) -> f64 {
        let (factor, rest) = text.split_once(" * ").map_or((1.0, text), |(factor, rest)| (number(factor), rest));
        factor * rest.parse().unwrap_or_else(|_| self.figure(rest))
    }

    fn holds(&self, condition: &str, value: f64) -> bool {
        condition.split(" and ").all(|term| {
            let mut words = term.splitn(2, ['<', '>', '=']);
            let left = words.next().unwrap_or_default().trim();
            let left_value = if left.is_empty() { value } else { self.figure(left) };
            let relation = term[term.find(['<', '>', '=']).unwrap_or(0)..].trim();
            let (sign, right) = relation.split_once(' ').unwrap_or((relation, ""));
            let bound = self.bound(right.trim());
            match sign {
                "<" => left_value < bound,
                "<=" => left_value <= bound,
                ">" => left_value > bound,
                ">=" => left_value >= bound,
                _ => panic!("{condition:?} is no condition"),
            }
        })
    }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

impl Table {
    /// The rows that these figures make.
    pub fn rows(&self, found: &Found) -> Vec<Row> {
        let rows = self.rows.iter().flat_map(|entry| {
            let items = match &entry.each {
                None => vec![String::new()],
                Some(Each::List(list)) => found.of_list(list).to_vec(),
                Some(Each::These(items)) => items.clone(),
            };
            items.into_iter().map(move |item| self.row(entry, &item, found))
        });
        rows.collect()
    }

    fn row(&self, entry: &Entry, item: &str, found: &Found) -> Row {
        let fill = |text: &str| found.fill(text, item);
        let calibrated = match &entry.calibrated {
            None => false,
            Some(Calibrated::All(yes)) => *yes,
            Some(Calibrated::In(list)) => found.of_list(list).iter().any(|one| one == item),
        };
        let paper = entry.paper.as_ref().map(|paper| match paper {
            Paper::Number(number) => *number,
            Paper::Figure(name) => found.figure(&fill(name)),
        });
        let value = if entry.open.is_some() { f64::NAN } else { found.figure(&fill(&entry.value)) };
        let mut row = Row::measured(fill(&entry.case), fill(&entry.metric), value);
        row.basis = if calibrated { Basis::Calibrated } else { Basis::Predicted };
        (row.paper, row.paper_order) = (paper, entry.says.clone());
        if entry.open.is_some() {
            row.note.clone_from(&entry.open);
            return row;
        }
        row.agrees = match (&entry.holds, paper) {
            (Some(condition), _) => Some(value.is_finite() && found.holds(&fill(condition), value)),
            (None, paper) => paper.map(|paper| within(value, paper)),
        };
        let weak = self.weak.as_ref().filter(|_| paper.is_some_and(|paper| within(1.0, paper)));
        let because =
            entry.because.as_ref().filter(|_| row.agrees == Some(false)).map(|reason| {
                self.reasons.get(reason).unwrap_or_else(|| panic!("there is no reason {reason:?}")).clone()
            });
        let notes = [row.note.take(), entry.criterion.as_deref().map(fill), weak.cloned(), entry.note.clone(), because];
        row.note = Some(notes.into_iter().flatten().collect::<Vec<_>>().join("; ")).filter(|note| !note.is_empty());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, figures: &[(&str, f64)]) -> Vec<Row> {
        let mut found = Found::default();
        for (name, value) in figures {
            found.put(*name, *value);
        }
        found.list("both", ["a", "b"]);
        toml::from_str::<Table>(&format!("title = \"t\"\nreasons.X = \"two\"\n{text}")).unwrap().rows(&found)
    }

    #[test]
    fn a_quarter_off_agrees_and_more_does_not() {
        let row = "[[row]]\ncase = \"x\"\nmetric = \"time us\"\nvalue = \"x\"\npaper = 8.0";
        let agrees = |simulated| rows(row, &[("x", simulated)])[0].agrees;
        assert_eq!([6.0, 10.0].map(agrees), [Some(true); 2]);
        assert_eq!([5.99, 10.01].map(agrees), [Some(false); 2]);
        // Where nothing was done, what the paper says did not come out: the row counts.
        assert_eq!([f64::NAN, f64::INFINITY].map(agrees), [Some(false); 2]);
        let more = "[[row]]\ncase = \"x\"\nmetric = \"ratio\"\nvalue = \"x\"\nsays = \"more\"\nholds = \"> 1\"";
        assert_eq!(rows(more, &[("x", f64::INFINITY)])[0].agrees, Some(false));
        assert_eq!(rows(row, &[("x", 6.0)])[0].error_ratio(), Some(-0.25));
        assert_eq!(rows(row, &[("x", f64::NAN)])[0].simulated, None);
    }

    #[test]
    fn a_reason_is_given_only_where_it_is_needed() {
        let row = "[[row]]\ncase = \"x\"\nmetric = \"us\"\nvalue = \"x\"\npaper = 8.0\nnote = \"one\"\nbecause = \"X\"";
        assert_eq!(rows(row, &[("x", 1.0)])[0].note.as_deref(), Some("one; two"));
        assert_eq!(rows(row, &[("x", 8.0)])[0].note.as_deref(), Some("one"));
    }

    #[test]
    fn rows_are_made_for_each_name_and_judged_by_other_figures() {
        let row = "[[row]]\neach = \"both\"\ncase = \"of {}\"\nmetric = \"m\"\nvalue = \"{} x\"\nsays = \"s\"\n\
                   holds = \"> 2 * {} y and z <= 3\"\ncriterion = \"above twice {{} y:1}\"\ncalibrated = true";
        let figures = [("a x", 3.0), ("a y", 1.0), ("b x", 3.0), ("b y", 1.5), ("z", 3.0)];
        let rows = rows(row, &figures);
        assert_eq!(rows.iter().map(|row| row.agrees).collect::<Vec<_>>(), [Some(true), Some(false)]);
        assert_eq!((rows[1].case.as_str(), rows[1].basis), ("of b", Basis::Calibrated));
        assert_eq!(rows[1].note.as_deref(), Some("above twice 1.5"));
    }
}
