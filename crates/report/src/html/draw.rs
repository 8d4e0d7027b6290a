//! How a chart is drawn: rows of marks along one scale, or a plane with two, as SVG.
//!
//! Axes and marks are plotters'; layout and legends are the same in all figures and come from here.

use super::DrawError;
use super::scale::Scale;
use crate::show::{Axis, Bar, Body, Chart, GRID, INK, Look, MUTED, Plane, Shape};
use crate::text::{printable, shortened};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const HEADING_PX: i32 = 18;
const TEXT_PX: i32 = 13;
/// Space above the plot: title, legend.
const TOP_PX: i32 = 66;
/// Space below it: tick labels, the axis' name.
const BOTTOM_PX: i32 = 52;
const RIGHT_PX: i32 = 28;
/// Height of a row with its label above it.
const ROW_PX: u32 = 46;
/// Noto Sans' mean width of a character, in ems, rounded up.
const EM_A_CHARACTER: f64 = 0.56;
/// Width of a character of [`TEXT_PX`] where room is scarce: plotters draws it at four fifths of its size.
const CHARACTER_PX: f64 = 6.1;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Coordinates = Cartesian2d<RangedCoordf64, RangedCoordf64>;
type Drawn = Result<(), DrawError>;

fn pixels(value: f64) -> i32 {
    // `as` saturates; drawings are small.
    #[allow(clippy::cast_possible_truncation)]
    let rounded = value.round() as i32;
    rounded
}

fn width_of(text: &str, size: i32) -> i32 {
    pixels(text.chars().count() as f64 * EM_A_CHARACTER * f64::from(size))
}

/// A chart's height in its own units.
pub(super) fn height(chart: &Chart) -> u32 {
    let around = (TOP_PX + BOTTOM_PX).unsigned_abs();
    match &chart.body {
        Body::Rows(bars, _) => u32::try_from(bars.len()).unwrap_or(1).max(1) * ROW_PX + around,
        Body::Plane(plane) => plane.height,
    }
}

/// The width that its legend takes.
pub(super) fn legend_width(chart: &Chart) -> u32 {
    let entries = chart.legend();
    entries.iter().map(|(_, words)| 34 + width_of(words, TEXT_PX).unsigned_abs()).sum::<u32>() + 14
}

/// Draws it in this width; `narrow`: for a telephone.
pub(super) fn draw(chart: &Chart, area: Area<'_>, narrow: bool) -> Drawn {
    let canvas = Canvas { area };
    let (most, size) = if narrow { (54, HEADING_PX - 4) } else { (92, HEADING_PX) };
    canvas.text(&shortened(&chart.title, most), (12, 10), size, INK, (HPos::Left, VPos::Top))?;
    canvas.legend(&chart.legend())?;
    let x = Scale::of(&chart.x, &chart.values(), narrow);
    match &chart.body {
        Body::Rows(bars, reference) => canvas.rows(chart, x, bars, reference.as_ref())?,
        Body::Plane(plane) => canvas.plane(chart, x, plane, narrow)?,
    }
    Ok(canvas.area.present()?)
}

struct Canvas<'a> {
    area: Area<'a>,
}

struct Plot<'c, 'a> {
    canvas: &'c Canvas<'a>,
    coordinates: DrawingArea<SVGBackend<'a>, Coordinates>,
    x: Scale,
    y: Scale,
}

impl<'a> Canvas<'a> {
    fn text(&self, text: &str, at: (i32, i32), size: i32, colour: RGBColor, to: (HPos, VPos)) -> Drawn {
        let style = ("sans-serif", size).into_text_style(&self.area).color(&colour).pos(Pos::new(to.0, to.1));
        Ok(self.area.draw(&Text::new(printable(text), at, style))?)
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Drawn {
        Ok(self.area.draw(&PathElement::new(vec![from, to], style))?)
    }

    /// What the marks mean, in one line under the title.
    fn legend(&self, entries: &[(Look, &str)]) -> Drawn {
        let mut x = 14;
        for (Look(colour, shape), words) in entries {
            // A halo is wider than the line of words.
            let shape = if *shape == Shape::Halo { Shape::Ring } else { *shape };
            self.mark((x + 5, 43), Look(*colour, shape))?;
            self.text(words, (x + 16, 43), TEXT_PX, INK, (HPos::Left, VPos::Center))?;
            x += 34 + width_of(words, TEXT_PX);
        }
        Ok(())
    }

    fn mark(&self, at: (i32, i32), Look(colour, shape): Look) -> Drawn {
        let (x, y) = at;
        let full = colour.filled();
        match shape {
            Shape::Circle => self.area.draw(&Circle::new(at, 5, full))?,
            Shape::Ring => self.area.draw(&Circle::new(at, 5, colour.stroke_width(2)))?,
            Shape::Halo => self.area.draw(&Circle::new(at, 10, colour.stroke_width(2)))?,
            Shape::Square => self.area.draw(&Rectangle::new([(x - 4, y - 4), (x + 5, y + 5)], full))?,
            Shape::Triangle => self.area.draw(&Polygon::new(vec![(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)], full))?,
            Shape::Diamond => {
                self.area.draw(&Polygon::new(vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], full))?;
            }
        }
        Ok(())
    }

    /// Axes with ticks and names; `left` pixels are kept free for the vertical axis' labels.
    fn plot(&self, axis: &Axis, x: Scale, y: (Scale, Option<&Axis>), left: i32) -> Result<Plot<'_, 'a>, DrawError> {
        let (width, height) = self.size();
        let (top, bottom, right) = (TOP_PX, height - BOTTOM_PX, width - RIGHT_PX);
        let (y, y_axis) = y;
        let coordinates = Coordinates::new(x.from..x.to, y.from..y.to, (left..right, bottom..top));
        let plot = Plot { canvas: self, coordinates: self.area.clone().apply_coord_spec(coordinates), x, y };
        for &tick in &plot.x.ticks {
            let at = plot.at(tick, plot.y.from).0;
            self.line((at, top), (at, bottom), GRID.stroke_width(1))?;
            self.text(&(axis.unit)(tick), (at, bottom + 7), TEXT_PX, MUTED, (HPos::Center, VPos::Top))?;
        }
        self.text(&axis.name, (i32::midpoint(left, right), height - 8), TEXT_PX, INK, (HPos::Center, VPos::Bottom))?;
        if let Some(axis) = y_axis {
            for &tick in &plot.y.ticks {
                let at = plot.at(plot.x.from, tick).1;
                self.line((left, at), (right, at), GRID.stroke_width(1))?;
                self.text(&(axis.unit)(tick), (left - 8, at), TEXT_PX, MUTED, (HPos::Right, VPos::Center))?;
            }
            let style = ("sans-serif", TEXT_PX).into_font().transform(FontTransform::Rotate270);
            let style = style.into_text_style(&self.area).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
            self.area.draw(&Text::new(printable(&axis.name), (12, i32::midpoint(top, bottom)), style))?;
        }
        self.line((left, bottom), (right, bottom), MUTED.stroke_width(1))?;
        Ok(plot)
    }

    fn size(&self) -> (i32, i32) {
        let (width, height) = self.area.dim_in_pixel();
        (i32::try_from(width).unwrap_or(i32::MAX), i32::try_from(height).unwrap_or(i32::MAX))
    }

    /// Rows of marks along one scale, each with its label and note above it.
    fn rows(&self, chart: &Chart, x: Scale, bars: &[Bar], reference: Option<&(f64, String)>) -> Drawn {
        let plot = self.plot(&chart.x, x, (Scale::exactly(0.0, bars.len() as f64), None), RIGHT_PX)?;
        if let Some((at, words)) = reference {
            plot.reference(*at, words)?;
        }
        let right = self.size().0 - RIGHT_PX;
        for (index, bar) in bars.iter().enumerate() {
            // The first row is on top.
            let y = bars.len() as f64 - index as f64 - 0.68;
            let above = plot.at(plot.x.to, y).1 - 11;
            let most = pixels(f64::from(right - RIGHT_PX) / CHARACTER_PX) - 2;
            let most = most - i32::try_from(bar.note.chars().count()).unwrap_or(most);
            let label = shortened(&bar.label, usize::try_from(most).unwrap_or(0));
            self.text(&label, (RIGHT_PX, above), TEXT_PX, INK, (HPos::Left, VPos::Bottom))?;
            self.text(&bar.note, (right, above), TEXT_PX, MUTED, (HPos::Right, VPos::Bottom))?;
            if let Some((from, to, colour)) = bar.range {
                plot.path(&[(from, y), (to, y)], colour, 3)?;
            }
            bar.marks.iter().try_for_each(|mark| self.mark(plot.at(mark.value, y), mark.look))?;
        }
        Ok(())
    }

    fn plane(&self, chart: &Chart, x: Scale, plane: &Plane, narrow: bool) -> Drawn {
        let drawn = plane.marks.iter().map(|(_, mark, _)| mark.value);
        let values: Vec<f64> = drawn.chain(plane.paths.iter().flat_map(|(path, ..)| path).map(|(_, y)| *y)).collect();
        let y = Scale::of(&plane.y, &values, narrow);
        let plot = self.plot(&chart.x, x, (y, Some(&plane.y)), 84)?;
        for (points, colour, width) in &plane.paths {
            plot.path(points, *colour, *width)?;
        }
        for (x, mark, note) in &plane.marks {
            let (x, y) = plot.at(*x, mark.value);
            self.mark((x, y), mark.look)?;
            if !note.is_empty() {
                self.text(note, (x + 7, y - 4), TEXT_PX - 1, INK, (HPos::Left, VPos::Bottom))?;
            }
        }
        Ok(())
    }
}

impl Plot<'_, '_> {
    /// Where a point is, in pixels.
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        self.coordinates.map_coordinate(&(self.x.place(x), self.y.place(y)))
    }

    /// A line through these points.
    fn path(&self, points: &[(f64, f64)], colour: RGBColor, width: u32) -> Drawn {
        let path: Vec<_> = points.iter().map(|&(x, y)| self.at(x, y)).collect();
        Ok(self.canvas.area.draw(&PathElement::new(path, colour.stroke_width(width)))?)
    }

    /// A vertical line over the whole height, with words at its upper end.
    fn reference(&self, x: f64, words: &str) -> Drawn {
        let (at, top) = self.at(x, self.y.to);
        self.canvas.line((at, top - 2), (at, self.at(x, self.y.from).1), INK.stroke_width(1))?;
        self.canvas.text(words, (at, top - 3), TEXT_PX - 1, INK, (HPos::Center, VPos::Bottom))
    }
}
