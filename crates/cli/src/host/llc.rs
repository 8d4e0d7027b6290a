//! `gleaner host llc`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct LlcArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &LlcArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
