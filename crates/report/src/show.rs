//! What a result shows, said once: a [`Document`] of lines, facts, tables, charts and notes.
//!
//! The terminal prints its parts in their order (`words`). The page (`html`) puts each where readers look for it: lines
//! into the summary, charts among the figures, tables among the numbers, facts and notes at the end.

#![allow(clippy::return_self_not_must_use, reason = "rows and charts are built by chains of calls")]

mod chart;
mod table;
mod verdict;
mod words;

pub use chart::{Axis, Bar, Chart, Extent, GRID, INK, Look, MUTED, Mark, OUTLIER, Plane, SERIES, Shape, nth, quantile};
pub use chart::{Body, number, seconds};
pub use table::{Row, Table, Value};
pub use verdict::Verdict;

use std::iter::Once;

/// What a result shows.
pub trait Shown {
    fn document(&self) -> Document;
}

/// One result's, or one group's.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// What it is about: the page's headings.
    pub heading: String,
    /// Whether Gleaner helped, for each program that was compared: the first thing on the page.
    pub answers: Vec<Answer>,
    /// Words that `docs/how-it-works.md` explains and the page uses.
    pub terms: &'static [&'static str],
    /// What stands before facts in the terminal.
    pub indent: &'static str,
    pub parts: Vec<(Place, Part)>,
}

/// Where a part is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Everywhere,
    Words,
    Page,
}

#[derive(Clone, Debug)]
pub enum Part {
    /// A sentence, or several; `like this` is a command.
    Line(Tone, String),
    /// Something with its name; a line each.
    Fact(String, Vec<String>),
    Table(Table),
    Chart(Box<Chart>),
    /// What the reader should know about these numbers.
    Note(String),
}

/// How a line is to be taken; the terminal does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// What it all comes to.
    Verdict,
    /// Something is wrong.
    Bad,
}

/// Whether Gleaner helped one program.
#[derive(Clone, Debug)]
pub struct Answer {
    pub of: String,
    pub verdict: Verdict,
    /// A sentence, with the interval in words.
    pub told: String,
    pub bad: Option<String>,
    /// The ratio that the verdict rests on, with its 95 % interval; `None` where nothing could be compared.
    pub speedup: Option<(f64, Option<[f64; 2]>)>,
}

pub fn line(text: impl Into<String>) -> Part {
    Part::Line(Tone::Plain, text.into())
}

pub fn verdict(text: impl Into<String>) -> Part {
    Part::Line(Tone::Verdict, text.into())
}

pub fn bad(text: impl Into<String>) -> Part {
    Part::Line(Tone::Bad, text.into())
}

pub fn fact(name: impl Into<String>, text: impl Into<String>) -> Part {
    Part::Fact(name.into(), vec![text.into()])
}

/// A fact in several lines; no part without any.
pub fn facts(name: &str, lines: impl IntoIterator<Item = String>) -> Option<Part> {
    let lines: Vec<String> = lines.into_iter().collect();
    (!lines.is_empty()).then(|| Part::Fact(name.to_owned(), lines))
}

/// A table; the terminal leaves its title out. No part without a row.
pub fn table(title: impl Into<String>, rows: impl IntoIterator<Item = Row>) -> Option<Part> {
    let table = Table::new(title, rows);
    (!table.rows.is_empty()).then_some(Part::Table(table))
}

pub fn notes(of: &[String]) -> impl Iterator<Item = Part> {
    of.iter().cloned().map(Part::Note)
}

impl Part {
    /// Of a table: the page shows it only when asked for where it is longer than this.
    pub fn folded(mut self, most: usize) -> Self {
        if let Self::Table(table) = &mut self {
            table.folded = table.rows.len() > most;
        }
        self
    }
}

impl IntoIterator for Part {
    type Item = Self;
    type IntoIter = Once<Self>;

    fn into_iter(self) -> Once<Self> {
        std::iter::once(self)
    }
}

impl From<Chart> for Part {
    fn from(chart: Chart) -> Self {
        Self::Chart(Box::new(chart))
    }
}

impl IntoIterator for Chart {
    type Item = Part;
    type IntoIter = Once<Part>;

    fn into_iter(self) -> Once<Part> {
        std::iter::once(self.into())
    }
}

impl Document {
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), ..Self::default() }
    }

    pub fn both(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.add(Place::Everywhere, parts);
    }

    /// Adds what the terminal alone shows.
    pub fn words(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.add(Place::Words, parts);
    }

    /// Adds what the page alone shows.
    pub fn page(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.add(Place::Page, parts);
    }

    fn add(&mut self, place: Place, parts: impl IntoIterator<Item = Part>) {
        self.parts.extend(parts.into_iter().map(|part| (place, part)));
    }

    fn in_words(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|(place, _)| *place != Place::Page).map(|(_, part)| part)
    }

    /// The page's parts, in their order.
    pub fn on_page(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|(place, _)| *place != Place::Words).map(|(_, part)| part)
    }

    pub fn lines(&self) -> impl Iterator<Item = (Tone, &str)> {
        self.on_page().filter_map(|part| if let Part::Line(tone, text) = part { Some((*tone, &**text)) } else { None })
    }

    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.on_page().filter_map(|part| if let Part::Chart(chart) = part { Some(&**chart) } else { None })
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.on_page().filter_map(|part| if let Part::Table(table) = part { Some(table) } else { None })
    }
}
