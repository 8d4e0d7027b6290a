//! One self-contained HTML page of results: plain words first, then figures, the raw numbers, and how to read them.
//!
//! Each schema has a file that turns results into a `Section` (those without figures share `plain.rs`). `page.rs` puts
//! sections together, and begins with whether it helped (`answer.rs`). Figures are plotters' SVG, inline; there is no
//! script and no request. lab/pictures draws the same figures as PNG.

mod ab;
mod answer;
mod chart;
mod classify;
mod doctor;
mod figure;
mod forest;
mod glossary;
mod input;
mod page;
mod plain;
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

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure could not be drawn: {0}")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<plotters::prelude::DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: plotters::prelude::DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}
