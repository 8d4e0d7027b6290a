//! Figures as pictures, by resvg: no font and no library of the machine's is needed.

use gleaner_report::html::Figure;
use resvg::{tiny_skia, usvg};
use std::sync::Arc;

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure could not be drawn: {0}")]
pub struct DrawError(String);

const WIDTH: u32 = Figure::WIDTH;
/// Pixels for each of the drawing's units.
const SCALE: u32 = 2;
/// Higher pictures are refused: they would take gigabytes.
const HIGHEST: u32 = 30_000;

/// One figure, light, as a PNG file's bytes.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn png(figure: &Figure) -> Result<Vec<u8>, DrawError> {
    png_of_all(std::slice::from_ref(figure))
}

/// All figures, one below the other, as a PNG file's bytes.
///
/// # Errors
///
/// When they cannot be drawn, or are too many for one picture.
pub fn png_of_all(figures: &[Figure]) -> Result<Vec<u8>, DrawError> {
    let height = figures.iter().fold(0_u32, |height, figure| height.saturating_add(figure.height()));
    if figures.is_empty() {
        return Err(DrawError("there is none in these results".to_owned()));
    }
    if height > HIGHEST / SCALE {
        return Err(DrawError(match figures.len() {
            1 => format!(
                "it would be a picture of {} pixels in height, and {HIGHEST} is the most; report fewer results at a time, or make a page of \
                 them with `gleaner report`",
                u64::from(height) * u64::from(SCALE)
            ),
            several => format!("{several} figures are too many for one picture; name a folder"),
        }));
    }
    let mut top = 0;
    let mut svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\">");
    for figure in figures {
        svg += &figure.nested(top);
        top += figure.height();
    }
    svg += "</svg>";
    render(&svg, height)
}

fn render(svg: &str, height: u32) -> Result<Vec<u8>, DrawError> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    let options =
        usvg::Options { fontdb: Arc::new(fonts), font_family: "Noto Sans".to_owned(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| DrawError(error.to_string()))?;
    let mut picture = tiny_skia::Pixmap::new(WIDTH * SCALE, height * SCALE)
        .ok_or_else(|| DrawError("there is no memory for the picture".to_owned()))?;
    picture.fill(tiny_skia::Color::WHITE);
    let scale = tiny_skia::Transform::from_scale(SCALE as f32, SCALE as f32);
    resvg::render(&tree, scale, &mut picture.as_mut());
    picture.encode_png().map_err(|error| DrawError(error.to_string()))
}
