//! `gleaner cache record`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &RecordArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
