//! `gleaner sim list`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &ListArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
