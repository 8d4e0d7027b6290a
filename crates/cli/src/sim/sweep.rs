//! `gleaner sim sweep`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &SweepArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
