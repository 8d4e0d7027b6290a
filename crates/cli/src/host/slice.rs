//! `gleaner host slice`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct SliceArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &SliceArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
