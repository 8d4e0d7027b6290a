//! `gleaner host run`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &RunArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
