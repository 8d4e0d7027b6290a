//! The command line of the laboratory.

use clap::{Parser, Subcommand};
pub use gleaner_command::args::{JsonArg, PolicyArg, duration};

/// Gleaner's laboratory: simulators, both papers' tables and figures, and the test bed.
///
/// It runs the very policies of `gleaner`. Nothing here is needed to run a program under Gleaner.
#[derive(Debug, Parser)]
#[command(
    name = "gleaner-lab",
    version,
    max_term_width = 100,
    after_help = "GLEANER_LOG=debug in the environment prints what happens inside.\n\n\
                  Exit status: 0 done, 1 the work failed, 2 bad usage or input, 130 interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate hosts and guests, with the same policies
    Sim(crate::sim::SimArgs),
    /// Simulate caches under time-shared contexts; record and classify programs
    Cache(crate::cache::CacheArgs),
    /// Run scenarios in real virtual machines
    Bed(gleaner_testbed::BedArgs),
    /// Draw the figures of results as PNG
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
}
