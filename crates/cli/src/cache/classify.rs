//! `gleaner cache classify`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct ClassifyArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &ClassifyArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
