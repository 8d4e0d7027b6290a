//! `gleaner workload`: the built-in programs.

use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct WorkloadArgs {}

pub fn main(_args: &WorkloadArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
