//! `gleaner host probe`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &ProbeArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
