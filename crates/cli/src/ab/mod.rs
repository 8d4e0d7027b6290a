//! `gleaner ab`: a program with and without Gleaner.

use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct AbArgs {}

pub fn main(_args: &AbArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
