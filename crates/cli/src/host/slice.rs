//! `gleaner host slice`.

use super::xen::{self, XenSlice, XenSliceArgs};
use crate::args::{JsonArg, duration};
use crate::failure::Failure;
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct SliceArgs {
    /// The slice (e.g. 1ms, 100us)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub slice: Option<Duration>,
    /// Which VM, by its name or pid; on a Xen host by its name or number (may be repeated)
    #[arg(long, value_name = "NAME|PID")]
    pub vm: Vec<String>,
    /// How long; without it until interrupted
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub xen: XenSliceArgs,
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(args: &SliceArgs) -> Result<u8, Failure> {
    if args.xen.apply() {
        let asked =
            XenSlice { options: &args.xen, slice: args.slice, domains: &args.vm, length: args.length, json: &args.json };
        return xen::slice(&asked);
    }
    Err(Failure::work("not built yet"))
}
