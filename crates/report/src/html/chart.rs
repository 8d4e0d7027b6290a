//! The two ways of drawing that every figure here uses: rows of marks along one scale, and a plane with two scales.
//!
//! Axes and marks are plotters'; layout, colours and legends are the same in all figures and come from here. Colours
//! are Okabe and Ito's, told apart by colour-blind readers; shapes differ as well. The page restyles them for dark
//! screens by their values (`style.css`), so every colour used must be one of these.

use super::DrawError;
use super::figure::{Figure, printable, shortened};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{BoldPoints, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Lesser text, lines of reference.
pub(super) const MUTED: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// Lines behind everything.
pub(super) const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// Blue, vermilion, green, purple, orange, sky.
pub(super) const SERIES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];

const HEADING_PX: i32 = 18;
const TEXT_PX: i32 = 13;
/// Space above the plot: title, legend.
const TOP_PX: i32 = 66;
/// Space below it: tick labels, the axis' name.
const BOTTOM_PX: i32 = 52;
const RIGHT_PX: i32 = 28;
/// Noto Sans' mean width of a character, in ems, rounded up.
const EM_A_CHARACTER: f64 = 0.56;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn pixels(value: f64) -> i32 {
    // `as` saturates; drawings are small.
    #[allow(clippy::cast_possible_truncation)]
    let rounded = value.round() as i32;
    rounded
}

fn width_of(text: &str, size: i32) -> i32 {
    pixels(text.chars().count() as f64 * EM_A_CHARACTER * f64::from(size))
}

/// A mark's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    /// A circle that is not filled.
    Ring,
    /// A wider one, around another mark.
    Halo,
}

/// How a series looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub colour: RGBColor,
    pub shape: Shape,
}

impl Look {
    /// The n-th of those that are told apart.
    pub fn nth(n: usize) -> Self {
        let shapes = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];
        Self { colour: SERIES[n % SERIES.len()], shape: shapes[n % shapes.len()] }
    }
}

/// A range of values and how they are laid out.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// From the least to the greatest of these and a little more, in equal steps.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let spare = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.1 };
        Self::exactly(low - spare, high + spare)
    }

    /// From 0 to a little more than the greatest, in equal steps: small differences look small.
    pub fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        if low < 0.0 {
            return Self::linear([low, high.max(0.0)]);
        }
        Self::exactly(0.0, if high > 0.0 { high * 1.06 } else { 1.0 })
    }

    /// Ratios around 1, in equal ratios. It always reaches from 0.8 to 1.25, so that what hardly differs looks so.
    pub fn ratio(values: impl IntoIterator<Item = f64>) -> Self {
        /// Ticks where the greatest is less than so many times the least.
        const FINE: [(f64, &[f64]); 3] = [
            (2.2, &[0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6]),
            (6.0, &[0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0]),
            (60.0, &[0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]),
        ];
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = bounds(positive.chain([0.8, 1.25])).unwrap_or((0.8, 1.25));
        let scale = Self::in_decades(low.log10() - 0.03, high.log10() + 0.03);
        let span = 10f64.powf(scale.to - scale.from);
        let Some((_, ticks)) = FINE.into_iter().find(|(most, _)| span < *most) else { return scale };
        let within = |tick: &f64| (scale.from..=scale.to).contains(&tick.log10());
        let ticks = ticks.iter().copied().filter(within).collect();
        scale.with_ticks(ticks)
    }

    /// Between these two, in equal steps.
    pub fn exactly(from: f64, to: f64) -> Self {
        let range = RangedCoordf64::from(from..to);
        let ticks = range.key_points(BoldPoints(9));
        Self { from, to, log: false, ticks }
    }

    /// In equal ratios. What is not above zero is taken for 1.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().map(|value| if value > 0.0 { value } else { 1.0 });
        let (low, high) = bounds(positive).unwrap_or((1.0, 10.0));
        let (low, high) = (low.log10(), high.log10());
        // Times that agree must not fill the whole width with their last digit.
        let spare = if high - low < 0.34 { 0.28 } else { 0.08 };
        Self::in_decades(low - spare, high + spare)
    }

    /// Between these two powers of ten.
    fn in_decades(from: f64, to: f64) -> Self {
        let (multiples, every): (&[f64], i32) = match to - from {
            decades if decades > 9.0 => (&[1.0], 3),
            decades if decades > 4.5 => (&[1.0], 1),
            decades if decades > 2.5 => (&[1.0, 3.0], 1),
            decades if decades < 0.8 => (&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], 1),
            _ => (&[1.0, 2.0, 5.0], 1),
        };
        let ticks = (pixels(from.floor())..=pixels(to.ceil()))
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10f64.powi(decade)))
            .filter(|tick| (from..=to).contains(&tick.log10()))
            .collect();
        Self { from, to, log: true, ticks }
    }

    /// The same scale with these marked.
    pub fn with_ticks(mut self, ticks: Vec<f64>) -> Self {
        self.ticks = ticks;
        self
    }

    fn place(&self, value: f64) -> f64 {
        let value = match (self.log, value > 0.0) {
            (true, true) => value.log10(),
            (true, false) => 0.0,
            (false, _) => value,
        };
        if value.is_finite() { value.clamp(self.from, self.to) } else { self.from }
    }
}

fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// An axis: its scale, its name with the unit, and how its values are written.
pub(super) struct Axis<'a> {
    pub scale: Scale,
    pub name: &'a str,
    pub label: &'a dyn Fn(f64) -> String,
}

/// What a figure is drawn on.
pub(super) struct Canvas<'a> {
    area: Area<'a>,
}

impl<'a> Canvas<'a> {
    pub fn new(area: Area<'a>) -> Self {
        Self { area }
    }

    pub fn present(&self) -> Result<(), DrawError> {
        Ok(self.area.present()?)
    }

    pub fn heading(&self, title: &str) -> Result<(), DrawError> {
        let (most, size) = if self.is_narrow() { (54, HEADING_PX - 4) } else { (92, HEADING_PX) };
        self.text(&shortened(title, most), (12, 10), size, INK, (HPos::Left, VPos::Top))
    }

    /// Whether it is for a telephone.
    pub fn is_narrow(&self) -> bool {
        self.width() <= pixels(f64::from(Figure::NARROW))
    }

    fn text(&self, text: &str, at: (i32, i32), size: i32, colour: RGBColor, to: (HPos, VPos)) -> Result<(), DrawError> {
        let style = ("sans-serif", size).into_text_style(&self.area).color(&colour).pos(Pos::new(to.0, to.1));
        Ok(self.area.draw(&Text::new(printable(text), at, style))?)
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Result<(), DrawError> {
        Ok(self.area.draw(&PathElement::new(vec![from, to], style))?)
    }

    /// What the marks mean, in one line under the title.
    pub fn legend(&self, entries: &[(Look, &str)]) -> Result<(), DrawError> {
        let mut x = 14;
        for (look, words) in entries {
            // A halo is wider than the line of words.
            let shape = if look.shape == Shape::Halo { Shape::Ring } else { look.shape };
            self.mark((x + 5, 43), Look { shape, ..*look })?;
            self.text(words, (x + 16, 43), TEXT_PX, INK, (HPos::Left, VPos::Center))?;
            x += 34 + width_of(words, TEXT_PX);
        }
        Ok(())
    }

    /// One mark.
    pub fn mark(&self, at: (i32, i32), look: Look) -> Result<(), DrawError> {
        let (x, y) = at;
        let full = look.colour.filled();
        match look.shape {
            Shape::Circle => self.area.draw(&Circle::new(at, 5, full))?,
            Shape::Ring => self.area.draw(&Circle::new(at, 5, look.colour.stroke_width(2)))?,
            Shape::Halo => self.area.draw(&Circle::new(at, 10, look.colour.stroke_width(2)))?,
            Shape::Square => self.area.draw(&Rectangle::new([(x - 4, y - 4), (x + 5, y + 5)], full))?,
            Shape::Triangle => self.area.draw(&Polygon::new(vec![(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)], full))?,
            Shape::Diamond => {
                self.area.draw(&Polygon::new(vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], full))?;
            }
        }
        Ok(())
    }

    /// Axes with ticks and names; `left` pixels are kept free for the vertical axis' labels.
    pub fn plot(&self, x: Axis<'_>, y: Option<Axis<'_>>, rows: usize, left: i32) -> Result<Plot<'_, 'a>, DrawError> {
        let height = self.height();
        let (top, bottom) = (TOP_PX, height - BOTTOM_PX);
        let right = self.width() - RIGHT_PX;
        let y_scale = y.as_ref().map_or_else(|| Scale::exactly(0.0, rows as f64), |axis| axis.scale.clone());
        let plane = Cartesian2d::<RangedCoordf64, RangedCoordf64>::new(
            x.scale.from..x.scale.to,
            y_scale.from..y_scale.to,
            (left..right, bottom..top),
        );
        let plot = Plot { canvas: self, plane: self.area.clone().apply_coord_spec(plane), x: x.scale, y: y_scale };
        for &tick in &plot.x.ticks {
            let at = plot.at(tick, plot.y.from).0;
            self.line((at, top), (at, bottom), GRID.stroke_width(1))?;
            self.text(&(x.label)(tick), (at, bottom + 7), TEXT_PX, MUTED, (HPos::Center, VPos::Top))?;
        }
        self.text(x.name, (i32::midpoint(left, right), height - 8), TEXT_PX, INK, (HPos::Center, VPos::Bottom))?;
        if let Some(axis) = y {
            for &tick in &plot.y.ticks {
                let at = plot.at(plot.x.from, tick).1;
                self.line((left, at), (right, at), GRID.stroke_width(1))?;
                self.text(&(axis.label)(tick), (left - 8, at), TEXT_PX, MUTED, (HPos::Right, VPos::Center))?;
            }
            let style = ("sans-serif", TEXT_PX).into_font().transform(FontTransform::Rotate270);
            let style = style.into_text_style(&self.area).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
            self.area.draw(&Text::new(printable(axis.name), (12, i32::midpoint(top, bottom)), style))?;
        }
        self.line((left, bottom), (right, bottom), MUTED.stroke_width(1))?;
        Ok(plot)
    }

    fn width(&self) -> i32 {
        i32::try_from(self.area.dim_in_pixel().0).unwrap_or(i32::MAX)
    }

    fn height(&self) -> i32 {
        i32::try_from(self.area.dim_in_pixel().1).unwrap_or(i32::MAX)
    }
}

/// A plane with its scales.
pub(super) struct Plot<'c, 'a> {
    canvas: &'c Canvas<'a>,
    plane: Plane<'a>,
    x: Scale,
    y: Scale,
}

impl Plot<'_, '_> {
    /// Where a point is, in pixels.
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        self.plane.map_coordinate(&(self.x.place(x), self.y.place(y)))
    }

    pub fn mark(&self, x: f64, y: f64, look: Look) -> Result<(), DrawError> {
        self.canvas.mark(self.at(x, y), look)
    }

    /// A line through these points.
    pub fn path(&self, points: &[(f64, f64)], colour: RGBColor, width: u32) -> Result<(), DrawError> {
        let path: Vec<_> = points.iter().map(|&(x, y)| self.at(x, y)).collect();
        Ok(self.canvas.area.draw(&PathElement::new(path, colour.stroke_width(width)))?)
    }

    /// A vertical line over the whole height, with words at its upper end.
    pub fn reference(&self, x: f64, words: &str) -> Result<(), DrawError> {
        let (at, top) = self.at(x, self.y.to);
        self.canvas.line((at, top - 2), (at, self.at(x, self.y.from).1), INK.stroke_width(1))?;
        self.canvas.text(words, (at, top - 3), TEXT_PX - 1, INK, (HPos::Center, VPos::Bottom))
    }

    /// Words above a point and its mark.
    pub fn note(&self, x: f64, y: f64, words: &str) -> Result<(), DrawError> {
        let (x, y) = self.at(x, y);
        self.canvas.text(words, (x, y - 6), TEXT_PX - 1, INK, (HPos::Center, VPos::Bottom))
    }

    /// Words at the upper right of a point and its mark.
    pub fn note_aside(&self, x: f64, y: f64, words: &str) -> Result<(), DrawError> {
        let (x, y) = self.at(x, y);
        self.canvas.text(words, (x + 7, y - 4), TEXT_PX - 1, INK, (HPos::Left, VPos::Bottom))
    }
}

/// One row of a figure of rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub label: String,
    /// From, to, colour.
    pub range: Option<(f64, f64, RGBColor)>,
    pub marks: Vec<(f64, Look)>,
    /// Words at the right of the last mark.
    pub note: String,
}

const ROW_PX: u32 = 34;

/// The height of a figure with so many rows.
pub(super) fn rows_height(rows: usize) -> u32 {
    let fixed = u32::try_from(TOP_PX + BOTTOM_PX).unwrap_or(0);
    u32::try_from(rows).unwrap_or(1).max(1) * ROW_PX + fixed
}

/// Rows of marks along one scale; `reference` is a vertical line with its words.
pub(super) fn rows(
    canvas: &Canvas<'_>,
    x: Axis<'_>,
    rows: &[Row],
    reference: Option<(f64, &str)>,
) -> Result<(), DrawError> {
    const MOST_LABEL: usize = 50;
    let labels: Vec<String> = rows.iter().map(|row| shortened(&row.label, MOST_LABEL)).collect();
    let left = labels.iter().map(|label| width_of(label, TEXT_PX)).max().unwrap_or(0) + 26;
    let plot = canvas.plot(x, None, rows.len(), left.max(60))?;
    if let Some((at, words)) = reference {
        plot.reference(at, words)?;
    }
    for ((index, row), label) in rows.iter().enumerate().zip(&labels) {
        // The first row is on top.
        let y = rows.len() as f64 - index as f64 - 0.5;
        let at = plot.at(plot.x.to, y).1;
        canvas.text(label, (left.max(60) - 12, at), TEXT_PX, INK, (HPos::Right, VPos::Center))?;
        if let Some((from, to, colour)) = row.range {
            plot.path(&[(from, y), (to, y)], colour, 3)?;
        }
        for (value, look) in &row.marks {
            plot.mark(*value, y, *look)?;
        }
        if !row.note.is_empty() {
            let last = row.marks.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
            plot.note(last, y, &row.note)?;
        }
    }
    Ok(())
}

const STACKED_PX: u32 = 46;
/// Width of a character of [`TEXT_PX`] where room is scarce: plotters draws it at four fifths of its size.
const STACKED_CHARACTER_PX: f64 = 6.1;

/// The height of a figure with so many stacked rows.
pub(super) fn stacked_height(rows: usize) -> u32 {
    let fixed = u32::try_from(TOP_PX + BOTTOM_PX).unwrap_or(0);
    u32::try_from(rows).unwrap_or(1).max(1) * STACKED_PX + fixed
}

/// The same in less width: each row's label and note stand above it.
pub(super) fn stacked_rows(
    canvas: &Canvas<'_>,
    x: Axis<'_>,
    rows: &[Row],
    reference: (f64, &str),
) -> Result<(), DrawError> {
    let plot = canvas.plot(x, None, rows.len(), RIGHT_PX)?;
    plot.reference(reference.0, reference.1)?;
    let right = canvas.width() - RIGHT_PX;
    for (index, row) in rows.iter().enumerate() {
        let y = rows.len() as f64 - index as f64 - 0.68;
        let above = plot.at(plot.x.to, y).1 - 11;
        let most = pixels(f64::from(right - RIGHT_PX) / STACKED_CHARACTER_PX) - 2;
        let most = most - i32::try_from(row.note.chars().count()).unwrap_or(most);
        let label = shortened(&row.label, usize::try_from(most).unwrap_or(0));
        canvas.text(&label, (RIGHT_PX, above), TEXT_PX, INK, (HPos::Left, VPos::Bottom))?;
        canvas.text(&row.note, (right, above), TEXT_PX, MUTED, (HPos::Right, VPos::Bottom))?;
        if let Some((from, to, colour)) = row.range {
            plot.path(&[(from, y), (to, y)], colour, 3)?;
        }
        for (value, look) in &row.marks {
            plot.mark(*value, y, *look)?;
        }
    }
    Ok(())
}

/// A time on an axis: as few digits as it takes.
pub(super) fn axis_time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size < 1e3 => (ns, "ns"),
        size if size < 1e6 => (ns / 1e3, "us"),
        size if size < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{}{unit}", plain_number(value))
}

/// A number on an axis: up to three decimals, without zeros at the end.
pub(super) fn plain_number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
