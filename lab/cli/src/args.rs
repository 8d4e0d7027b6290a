//! The command line of the laboratory.

use clap::{Parser, Subcommand};
use gleaner_command::everywhere::EverywhereArgs;

/// Gleaner's laboratory: simulators, both papers' tables and figures, and the test bed.
///
/// It runs the very policies of `gleaner`. Nothing here is needed to run a program under Gleaner.
#[derive(Debug, Parser)]
#[command(
    name = "gleaner-lab",
    version,
    max_term_width = 100,
    after_help = "GLEANER_LOG=debug in the environment prints what -vv does.\n\n\
                  Exit status: 0 done, 1 the work failed, 2 bad usage or input, 130 interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub everywhere: EverywhereArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate hosts and guests, with the same policies
    Sim(crate::sim::SimArgs),
    /// Simulate caches under time-shared contexts
    Cache(crate::cache::CacheArgs),
    /// Run scenarios in real virtual machines
    Bed(gleaner_testbed::BedArgs),
    /// Make one HTML page of results
    Report(crate::report::ReportArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_takes_the_options_of_all() {
        for words in ["sim list", "cache reproduce micro:fig8", "bed list"] {
            let words = format!("gleaner-lab {words} -vv --quiet --color never");
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let everywhere = &cli.everywhere;
            let found = (everywhere.log(), everywhere.quiet, everywhere.color);
            assert_eq!(found, ("debug", true, clap::ColorChoice::Never), "{words}");
        }
    }
}
