//! One self-contained HTML page of results: plain words first, then figures, the raw numbers, and how to read them.
//!
//! `input` makes a document of each result. `page` puts the documents' parts together (`part` has the markup of one),
//! and begins with whether it helped (`answer`). Figures are plotters' SVG, inline (`draw`); there is no script and no
//! request.

mod answer;
mod draw;
mod figure;
mod glossary;
mod input;
mod page;
mod part;
mod scale;

pub use figure::Figure;
pub use input::{Content, KNOWN, Known, ReadError, ResultFile, alone, read};
pub use page::{Page, page};

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure could not be drawn: {0}")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<plotters::prelude::DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: plotters::prelude::DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}
