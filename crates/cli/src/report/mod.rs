//! `gleaner report`: results as one HTML page.

use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct ReportArgs {}

pub fn main(_args: &ReportArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
