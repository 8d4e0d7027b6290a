//! Options that every command takes: how much is said, and in what colours.

use crate::output;
use clap::{ArgAction, Args, ValueEnum};
use std::ffi::OsString;

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
    /// Colours in help and messages: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorArg::Auto)]
    #[arg(hide_possible_values = true, display_order = 1002)]
    pub color: ColorArg,
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Wherever it goes
    Always,
    /// Nowhere
    Never,
}

impl EverywhereArgs {
    /// From here on the process does as they say.
    pub fn apply(&self) {
        output::set_quiet(self.quiet);
        set_color(self.color);
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

/// Help and complaints come before anything is parsed, and have colours too: looks for `--color` in the words
/// themselves.
pub fn set_color_before_parsing(words: impl IntoIterator<Item = OsString>) {
    if let Some(color) = color_in(words) {
        set_color(color);
    }
}

fn color_in(words: impl IntoIterator<Item = OsString>) -> Option<ColorArg> {
    let mut words = words.into_iter().map_while(|word| word.into_string().ok()).take_while(|word| word != "--");
    let mut color = None;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        color = value.and_then(|value| ColorArg::from_str(&value, false).ok()).or(color);
    }
    color
}

fn set_color(color: ColorArg) {
    let choice = match color {
        ColorArg::Auto => anstream::ColorChoice::Auto,
        ColorArg::Always => anstream::ColorChoice::Always,
        ColorArg::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_color_before_the_program_counts() {
        let of = |line: &str| color_in(line.split(' ').map(OsString::from));
        assert_eq!(of("gleaner --color never run"), Some(ColorArg::Never));
        assert_eq!(of("gleaner run --color=always --polcy"), Some(ColorArg::Always));
        assert_eq!(of("gleaner --color always run --color auto"), Some(ColorArg::Auto));
        for none in
            ["gleaner run -- ls --color never", "gleaner --color", "gleaner --color sometimes", "gleaner --colors"]
        {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
