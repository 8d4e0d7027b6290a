//! Options that every command takes: how much is said, and in what colours.

use crate::output;
use clap::{ArgAction, Args, ColorChoice};

/// `-v`, `--quiet`, `--color`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct EverywhereArgs {
    /// Say on stderr what happens inside: what is done and why; -vv and -vvv say more
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 1000)]
    pub verbose: u8,
    /// Print no result in words and no progress; JSON, warnings and errors are printed all the same
    #[arg(short, long, global = true, display_order = 1001)]
    pub quiet: bool,
    /// Colours in messages: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    #[arg(hide_possible_values = true, display_order = 1002)]
    pub color: ColorChoice,
}

impl EverywhereArgs {
    /// From here on the process does as they say.
    pub fn apply(&self) {
        output::set_quiet(self.quiet);
        let choice = match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }

    /// What is logged where the environment does not say.
    pub fn log(&self) -> &'static str {
        match self.verbose {
            0 => "off",
            1 => "info,gleaner_runtime=debug",
            2 => "debug",
            _ => "trace",
        }
    }
}
