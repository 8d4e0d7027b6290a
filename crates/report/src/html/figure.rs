//! A figure: a drawing with its words, ready for the page and for a picture of its own.

use super::{DrawError, chart::Canvas};
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use std::fmt::Write;

/// A drawing and what it says.
#[derive(Clone, Debug)]
pub struct Figure {
    /// States what is seen.
    pub title: String,
    /// What is drawn, for those who cannot see it.
    pub description: String,
    /// How to read it, below the drawing.
    pub caption: String,
    /// Width and height in the drawing's units.
    width: u32,
    height: u32,
    /// What plotters drew, without the outer element.
    body: String,
    /// The same for a telephone, where it is drawn for both.
    narrow: Option<Box<Self>>,
}

impl Figure {
    /// A figure's width, in its own units; the page scales it.
    pub const WIDTH: u32 = 880;
    /// That of one which is read on a telephone too.
    pub const NARROW: u32 = 380;

    /// Draws one.
    pub(super) fn draw(
        title: impl Into<String>,
        description: impl Into<String>,
        caption: impl Into<String>,
        height: u32,
        draw: impl FnOnce(&Canvas<'_>) -> Result<(), DrawError>,
    ) -> Result<Self, DrawError> {
        Self::draw_in((Self::WIDTH, height), title.into(), description.into(), caption.into(), draw)
    }

    /// Draws one twice: for a wide page and for a telephone.
    pub(super) fn draw_both(
        title: impl Into<String>,
        description: impl Into<String>,
        caption: impl Into<String>,
        height: u32,
        draw: impl Fn(&Canvas<'_>) -> Result<(), DrawError>,
    ) -> Result<Self, DrawError> {
        let [title, description, caption] = [title.into(), description.into(), caption.into()];
        let words = (title.clone(), description.clone(), caption.clone());
        let narrow = Self::draw_in((Self::NARROW, height), words.0, words.1, words.2, &draw)?;
        let wide = Self::draw_in((Self::WIDTH, height), title, description, caption, &draw)?;
        Ok(Self { narrow: Some(Box::new(narrow)), ..wide })
    }

    /// The one for a telephone.
    pub(super) fn narrow(&self) -> Option<&Self> {
        self.narrow.as_deref()
    }

    fn draw_in(
        (width, height): (u32, u32),
        title: String,
        description: String,
        caption: String,
        draw: impl FnOnce(&Canvas<'_>) -> Result<(), DrawError>,
    ) -> Result<Self, DrawError> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
            let canvas = Canvas::new(area);
            canvas.heading(&title)?;
            draw(&canvas)?;
            canvas.present()?;
        }
        // The outer element is ours: it carries the words for screen readers, and no size in pixels.
        let body = svg.split_once('>').map_or("", |(_, rest)| rest);
        let body = body.trim_end().strip_suffix("</svg>").unwrap_or(body).to_owned();
        Ok(Self { title, description, caption, width, height, body, narrow: None })
    }

    /// The drawing, to stand in a page; `id` must be unique there.
    pub(super) fn svg(&self, id: &str) -> String {
        let mut svg = String::with_capacity(self.body.len() + 512);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\"><title id=\"{id}-title\">{}</title>\
             <desc id=\"{id}-desc\">{}</desc>{}</svg>",
            self.width,
            self.height,
            escaped(&self.title),
            escaped(&self.description),
            self.body
        );
        svg
    }

    /// Width in the drawing's units.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in the drawing's units.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// SVG of the drawing inside another one, `top` units down.
    pub fn nested(&self, top: u32) -> String {
        format!(
            "<svg x=\"0\" y=\"{top}\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">{2}</svg>",
            self.width, self.height, self.body
        )
    }
}

/// Text that may stand in an element or in an attribute.
fn escaped(text: &str) -> String {
    maud::html! { (printable(text)) }.into_string()
}

/// Characters that XML cannot carry, and those that turn the writing around, are shown as a mark.
pub(super) fn printable(text: &str) -> String {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if bad(c) { '\u{fffd}' } else { c }).collect()
}

/// At most `most` characters, with an ellipsis in the middle: the end of a command tells as much as its beginning.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let all: Vec<char> = printable(text).replace('\n', " ").chars().collect();
    if all.len() <= most {
        return all.into_iter().collect();
    }
    let tail = most / 3;
    let head = most.saturating_sub(tail + 1);
    all[..head].iter().chain(&['…']).chain(&all[all.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_in_the_middle_and_carries_no_control_characters() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("0123456789abcdef", 10), "012345…def");
        assert_eq!(shortened("a\0b\u{202e}c\n", 10), "a\u{fffd}b\u{fffd}c ");
        assert_eq!(shortened("äöüß", 3), "ä…ß");
    }
}
