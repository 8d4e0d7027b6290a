//! `gleaner-lab report`: results of the laboratory, and of `gleaner`, as one HTML page.

use clap::Args;
use gleaner_command::failure::Failure;
use gleaner_command::results::PageArgs;

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner-lab report RESULT.json... -o PAGE.html [OPTIONS]",
    after_help = "RESULT.json is what `sim`, `cache` or `bed` wrote with --json FILE; results of `gleaner` may stand \
                  beside them.\n\n\
                  Example: gleaner-lab report results/*.json -o page.html"
)]
pub struct ReportArgs {
    #[command(flatten)]
    page: PageArgs,
}

pub fn main(args: &ReportArgs) -> Result<u8, Failure> {
    let known = [gleaner_report::html::KNOWN, gleaner_lab_report::KNOWN].concat();
    args.page.make("gleaner-lab", &known).map(|()| 0)
}
