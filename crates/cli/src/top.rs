//! `gleaner top`: what the terminal can show, and what is to be shown there.

use clap::Args;
use gleaner_command::args::duration_within;
use gleaner_command::failure::Failure;
use gleaner_command::output::{Output, has_colours};
use gleaner_daemon::default_socket;
use gleaner_tui::{Look, Options, TopError};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Keys: q quits, p pauses, Tab and arrows switch groups, / filters them, H holds one, ? shows the rest.\n\
                        Bars are told apart without colours too; NO_COLOR and --color never turn those off.\n\n\
                        Examples:\n\
                        \x20 gleaner top\n\
                        \x20 gleaner top --once --group redis    # one screen as text, for a report"
)]
pub struct TopArgs {
    /// The daemon's socket, instead of /run/gleaner/gleaner.sock
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How often it is asked: 100ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// The group to begin with
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Print one screen as text, as wide and high as COLUMNS and LINES say (80 by 24)
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(100)..=Duration::from_secs(3600))
}

pub fn main(args: TopArgs) -> Result<u8, Failure> {
    let socket = args.socket.unwrap_or_else(default_socket);
    let look = Look { colour: has_colours(), unicode: speaks_unicode() };
    let options = Options { socket, interval: args.interval, group: args.group, look };
    if args.once {
        let text = gleaner_tui::once(&options, size("COLUMNS", 80), size("LINES", 24)).map_err(failure)?;
        Output::Text.text(&text);
        return Ok(0);
    }
    gleaner_tui::run(&options).map_err(failure)
}

fn failure(error: TopError) -> Failure {
    match error {
        TopError::NoTerminal(_) => Failure::input(error),
        error => Failure::work(error),
    }
}

/// As a shell says it.
fn size(name: &str, default: u16) -> u16 {
    let said = std::env::var(name).ok().and_then(|text| text.parse::<u16>().ok());
    said.filter(|n| (10..=1000).contains(n)).unwrap_or(default)
}

/// Whether the terminal's encoding is UTF-8, as far as the locale tells.
fn speaks_unicode() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    locale.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"))
}
