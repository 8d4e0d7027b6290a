//! `gleaner sim reproduce`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct ReproduceArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &ReproduceArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
