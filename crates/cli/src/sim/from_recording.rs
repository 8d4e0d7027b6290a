//! `gleaner sim from_recording`.

use crate::args::JsonArg;
use crate::failure::Failure;
use clap::Args;

#[derive(Debug, Args)]
pub struct FromRecordingArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(_args: &FromRecordingArgs) -> Result<u8, Failure> {
    Err(Failure::work("not built yet"))
}
