//! `gleaner report`: results as one HTML page.
//!
//! Everything is read and made before anything is written, and what is written replaces an older file in one step: a
//! failure leaves what was there.

use clap::Args;
use gleaner_command::failure::Failure;
use gleaner_command::output::tell;
use gleaner_command::results::{read, refuse_inputs, replace};
use gleaner_report::html::{self, Page, ResultFile};
use std::path::{Path, PathBuf};

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
    /// Results in JSON
    #[arg(value_name = "RESULT.json", required = true)]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html")]
    pub output: PathBuf,
    /// The page's title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

pub fn main(args: &ReportArgs) -> Result<u8, Failure> {
    let results = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    refuse_inputs(&args.output, &args.results)?;
    let page = html::page(args.title.as_deref(), &results).map_err(Failure::work)?;
    replace(&args.output, page.html.as_bytes())?;
    tell(&format!("gleaner: {}", told(&args.output, &results, &page)));
    Ok(0)
}

fn told(output: &Path, results: &[ResultFile], page: &Page) -> String {
    let several = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    format!(
        "{} made of {}: {}",
        output.display(),
        several(results.len(), "result"),
        several(page.figures.len(), "figure")
    )
}
