//! One self-contained HTML page of results: plain words first, then figures, the raw numbers, and how to read them.
//!
//! Each schema has a file that turns results into a `Section` (those without figures share `plain.rs`); `page.rs` puts sections together. Figures are plotters' SVG,
//! inline; there is no script and no request. `png.rs` draws the same figures as pictures, with a font of its own.

mod ab;
mod chart;
mod classify;
mod doctor;
mod figure;
mod forest;
mod glossary;
mod input;
mod page;
mod plain;
mod png;
mod probe;
mod reproduction;
mod run;
mod scenario;
mod section;
mod sim;
mod timeline;
mod workload;

pub use figure::Figure;
pub use input::{Content, ReadError, ResultFile, read};
pub use page::{Page, page};
pub use plain::Plain;
pub use png::{png, png_of_all};

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure could not be drawn: {0}")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<plotters::prelude::DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: plotters::prelude::DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}
