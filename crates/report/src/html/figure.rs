//! A drawn chart: SVG with the words for those who cannot see it.

use super::{DrawError, draw};
use crate::show::Chart;
use crate::text::printable;
use maud::{Markup, PreEscaped, html};
use plotters::prelude::{IntoDrawingArea, SVGBackend};

#[derive(Clone, Debug)]
pub struct Figure {
    /// States what is seen.
    pub title: String,
    /// What is drawn, for those who cannot see it.
    pub description: String,
    /// How to read it, below the drawing.
    pub caption: String,
    height: u32,
    /// What plotters drew, without the outer element.
    body: String,
    /// The same for a telephone, where the legend has room there.
    narrow: Option<String>,
}

impl Figure {
    /// A figure's width, in its own units; the page scales it.
    pub const WIDTH: u32 = 880;
    /// That of one which is read on a telephone too.
    const NARROW: u32 = 380;

    pub(super) fn of(chart: &Chart) -> Result<Self, DrawError> {
        Ok(Self {
            title: chart.title.clone(),
            description: chart.description(),
            caption: chart.caption.clone(),
            height: draw::height(chart),
            body: drawn(chart, Self::WIDTH)?,
            narrow: (draw::legend_width(chart) <= Self::NARROW).then(|| drawn(chart, Self::NARROW)).transpose()?,
        })
    }

    /// With its caption, in a box of its own that scrolls where the window is narrow.
    pub(super) fn markup(&self, number: usize) -> Markup {
        let id = format!("figure-{number}");
        html! {
            figure id=(id) class=(if self.narrow.is_some() { "both" } else { "wide" }) {
                div.scroll.for-wide { (self.svg(&id, Self::WIDTH, &self.body)) }
                @if let Some(narrow) = &self.narrow {
                    div.scroll.for-narrow { (self.svg(&format!("{id}-narrow"), Self::NARROW, narrow)) }
                }
                figcaption { (super::part::prose(&self.caption)) }
            }
        }
    }

    /// `id` must be unique on the page.
    fn svg(&self, id: &str, width: u32, body: &str) -> Markup {
        let (title, description) = (format!("{id}-title"), format!("{id}-desc"));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (self.height) } role="img"
                aria-labelledby={ (title) " " (description) } {
                title id=(title) { (printable(&self.title)) }
                desc id=(description) { (printable(&self.description)) }
                (PreEscaped(body))
            }
        }
    }

    /// Height in the drawing's units.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// SVG of the drawing inside another one, `top` units down.
    pub fn nested(&self, top: u32) -> String {
        format!(
            "<svg x=\"0\" y=\"{top}\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">{2}</svg>",
            Self::WIDTH,
            self.height,
            self.body
        )
    }
}

fn drawn(chart: &Chart, width: u32) -> Result<String, DrawError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (width, draw::height(chart))).into_drawing_area();
    draw::draw(chart, area, width == Figure::NARROW)?;
    // The outer element is ours: it carries the words for screen readers, and no size in pixels.
    let body = svg.split_once('>').map_or("", |(_, rest)| rest);
    Ok(body.trim_end().strip_suffix("</svg>").unwrap_or(body).to_owned())
}
