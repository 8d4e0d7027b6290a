//! `gleaner report`: results as one HTML page.

use clap::Args;
use gleaner_command::failure::Failure;
use gleaner_command::results::PageArgs;
use gleaner_report::html::KNOWN;

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner report RESULT.json... -o PAGE.html [OPTIONS]",
    after_help = "RESULT.json is what any command wrote with --json FILE; results of different commands go together, \
                  and runs of the same program stand side by side. The page is complete in itself: it can be mailed, \
                  and \
                  opens without a network.\n\n\
                  Examples:\n\
                  \x20 gleaner run --json full.json -- make -j4\n\
                  \x20 gleaner report full.json -o page.html\n\
                  \x20 gleaner report results/*.json -o page.html"
)]
pub struct ReportArgs {
    #[command(flatten)]
    pub page: PageArgs,
}

pub fn main(args: &ReportArgs) -> Result<u8, Failure> {
    args.page.make("gleaner", KNOWN).map(|()| 0)
}
