//! Charts as data: what is drawn, not how. The legend and the words for those who cannot see it follow from the marks.

use crate::text::{distinct, interval};
use plotters::style::RGBColor;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Lesser text, lines of reference.
pub const MUTED: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// Lines behind everything.
pub const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// Blue, vermilion, green, purple, orange, sky: Okabe and Ito's, told apart by colour-blind readers. The page restyles
/// these for dark screens by their values (`style.css`), so every colour used must be one of them.
pub const SERIES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    /// A circle that is not filled.
    Ring,
    /// A wider one, around another mark.
    Halo,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look(pub RGBColor, pub Shape);

/// The mark around an outlier.
pub const OUTLIER: Look = Look(MUTED, Shape::Halo);

/// The n-th of those that are told apart.
pub fn nth(n: usize) -> Look {
    let shapes = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];
    Look(SERIES[n % SERIES.len()], shapes[n % shapes.len()])
}

/// A quantile of a distribution of times, by its name.
pub fn quantile(name: &'static str, ns: u64) -> Mark {
    let look = match name {
        "p50" => Look(SERIES[0], Shape::Circle),
        "p90" => Look(SERIES[2], Shape::Square),
        "p99" => Look(SERIES[1], Shape::Triangle),
        "p99.9" => Look(SERIES[3], Shape::Diamond),
        _ => Look(MUTED, Shape::Ring),
    };
    Mark::new(ns as f64, name, look)
}

#[derive(Clone, Debug)]
pub struct Mark {
    pub value: f64,
    /// Its series, in the legend; empty for none.
    pub name: String,
    pub look: Look,
}

impl Mark {
    pub fn new(value: f64, name: impl Into<String>, look: Look) -> Self {
        Self { value, name: name.into(), look }
    }
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    /// A line behind the marks: from, to, colour.
    pub range: Option<(f64, f64, RGBColor)>,
    pub marks: Vec<Mark>,
    /// Words at the last mark.
    pub note: String,
    /// Its values as text.
    pub told: Option<String>,
}

impl Bar {
    /// Marks, joined from the least to the greatest.
    pub fn of(label: impl Into<String>, marks: Vec<Mark>) -> Self {
        let values = marks.iter().map(|mark| mark.value);
        let ends = values.clone().reduce(f64::min).zip(values.reduce(f64::max));
        let range = ends.map(|(low, high)| (low, high, GRID));
        Self { label: label.into(), range, marks, note: String::new(), told: None }
    }

    /// A ratio with its interval.
    pub fn ratio(label: impl Into<String>, mark: Mark, ends: Option<[f64; 2]>) -> Self {
        let range = ends.map(|[low, high]| (low, high, mark.look.0));
        let told = Some(interval(mark.value, ends));
        Self { label: label.into(), range, note: format!("{:.2}", mark.value), marks: vec![mark], told }
    }

    fn told(&self, unit: fn(f64) -> String) -> String {
        let marks = self.marks.iter().map(|mark| format!("{} {}", mark.name, unit(mark.value)).trim().to_owned());
        let names = self.marks.iter().map(|mark| mark.name.clone());
        let told = match &self.told {
            Some(told) => std::iter::once(told.clone()).chain(names).collect::<Vec<String>>(),
            None => marks.collect(),
        };
        format!("{}: {}", self.label, told.join(", "))
    }
}

/// An axis: its name with the unit, how its values are written, what it reaches over.
#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub unit: fn(f64) -> String,
    pub extent: Extent,
}

/// What an axis reaches over, and how.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// From 0 to a little more than the greatest, in equal steps: small differences look small.
    FromZero,
    /// In equal ratios.
    Log,
    /// Ratios around 1, in equal ratios, always from 0.8 to 1.25: what hardly differs looks so.
    Ratio,
    /// `FromZero`, or `Log` where values are far apart.
    FromZeroOrLog,
    /// Between these two, in equal steps.
    Exactly(f64, f64),
    /// The same with ticks at whole numbers, so many at most; fewer on a telephone.
    Whole(f64, f64, u64),
}

impl Axis {
    pub fn new(name: impl Into<String>, unit: fn(f64) -> String, extent: Extent) -> Self {
        Self { name: name.into(), unit, extent }
    }

    pub fn ratios(name: impl Into<String>) -> Self {
        Self::new(name, number, Extent::Ratio)
    }

    /// Times that may be far apart.
    pub fn times(name: &str) -> Self {
        Self::new(format!("{name} (logarithmic)"), seconds, Extent::Log)
    }
}

#[derive(Clone, Debug)]
pub struct Chart {
    /// States what is seen.
    pub title: String,
    /// How to read it, below the drawing.
    pub caption: String,
    pub x: Axis,
    pub body: Body,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Body {
    /// Rows of marks along one axis, with a line at a value and its words.
    Rows(Vec<Bar>, Option<(f64, String)>),
    Plane(Plane),
}

/// A line: points, colour, width.
pub type Path = (Vec<(f64, f64)>, RGBColor, u32);

/// Marks and lines between two axes.
#[derive(Clone, Debug)]
pub struct Plane {
    pub y: Axis,
    pub height: u32,
    /// For those who cannot see it.
    pub description: String,
    pub paths: Vec<Path>,
    /// Place and mark (its value is y), and words beside it.
    pub marks: Vec<(f64, Mark, String)>,
}

impl Chart {
    pub fn rows(title: impl Into<String>, caption: impl Into<String>, x: Axis, rows: Vec<Bar>) -> Self {
        Self { title: title.into(), caption: caption.into(), x, body: Body::Rows(rows, None) }
    }

    /// With an upright line at this value, and its words.
    pub fn at(mut self, line: impl Into<Option<(f64, String)>>) -> Self {
        if let Body::Rows(_, reference) = &mut self.body {
            *reference = line.into();
        }
        self
    }

    /// What is drawn, for those who cannot see it.
    pub fn description(&self) -> String {
        match &self.body {
            Body::Rows(rows, _) => rows.iter().map(|row| row.told(self.x.unit)).collect::<Vec<String>>().join("; "),
            Body::Plane(plane) => plane.description.clone(),
        }
    }

    fn marks(&self) -> Vec<&Mark> {
        match &self.body {
            Body::Rows(rows, _) => rows.iter().flat_map(|row| &row.marks).collect(),
            Body::Plane(plane) => plane.marks.iter().map(|(_, mark, _)| mark).collect(),
        }
    }

    /// What the marks mean.
    pub fn legend(&self) -> Vec<(Look, &str)> {
        distinct(
            self.marks().into_iter().map(|mark| (mark.look, mark.name.as_str())).filter(|(_, name)| !name.is_empty()),
        )
    }

    /// What the horizontal axis has to reach.
    pub fn values(&self) -> Vec<f64> {
        match &self.body {
            Body::Rows(rows, reference) => values(rows).chain(reference.iter().map(|(at, _)| *at)).collect(),
            Body::Plane(plane) => plane.paths.iter().flat_map(|(points, ..)| points).map(|(x, _)| *x).collect(),
        }
    }
}

fn values(rows: &[Bar]) -> impl Iterator<Item = f64> {
    rows.iter().flat_map(|row| {
        let ends = row.range.into_iter().flat_map(|(low, high, _)| [low, high]);
        row.marks.iter().map(|mark| mark.value).chain(ends)
    })
}

/// A time on an axis: as few digits as it takes.
pub fn seconds(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size < 1e3 => (ns, "ns"),
        size if size < 1e6 => (ns / 1e3, "us"),
        size if size < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{}{unit}", number(value))
}

/// A number on an axis: up to three decimals, without zeros at the end.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
