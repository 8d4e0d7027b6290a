//! `gleaner capture`: what the daemon has recorded, as one file.

use crate::daemon::AskArgs;
use clap::Args;
use gleaner_command::args::{JsonArg, any_duration, duration_within};
use gleaner_command::failure::Failure;
use gleaner_command::files::Destination;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_daemon::{Answer, Request, ask_at, default_socket, socket_in};
use gleaner_model::Nanos;
use gleaner_report::CaptureReport;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(
    after_help = "Without --for the file has what the daemon's flight recorder keeps, if its configuration has one \
                  ([capture] size). With --for it has the time from now on, whether there is one or not.\n\n\
                  Examples:\n\
                  \x20 gleaner capture /tmp/before.capture\n\
                  \x20 gleaner capture --for 10s /tmp/now.capture && gleaner replay /tmp/now.capture"
)]
pub struct CaptureArgs {
    /// Where to write it; an earlier file is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Record from now on, for so long: 1s to 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub ask: AskArgs,
    #[command(flatten)]
    pub json: JsonArg,
}

fn length(text: &str) -> Result<Duration, String> {
    any_duration(text)?;
    duration_within(text, Duration::from_secs(1)..=Duration::from_secs(86_400))
}

pub fn main(args: &CaptureArgs) -> Result<u8, Failure> {
    let interrupted = interrupt::flag()?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let cannot_write = |error: io::Error| Failure::unwritten(args.file.display(), &error);
    let (destination, mut to) = Destination::open(&args.file).map_err(cannot_write)?;
    let socket = args.ask.state_dir.as_deref().map_or_else(default_socket, socket_in);
    let first = match args.length {
        None => None,
        Some(length) => {
            let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
            let files = files(&socket, Some(ns))?;
            // Interrupted, there is what there is.
            let _ = interrupt::sleep_until(Instant::now() + length, &interrupted);
            files.into_iter().next_back()
        }
    };
    let files = files(&socket, None)?;
    let mut copied = (0_u64, 0_u64);
    for path in files.iter().filter(|path| first.as_ref().is_none_or(|first| *path >= first)) {
        match File::open(path) {
            Ok(mut file) => {
                copied.0 += 1;
                copied.1 += io::copy(&mut file, &mut to).map_err(Failure::work)?;
            }
            // The oldest made way meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::work(format!("cannot read {}: {error}", path.display()))),
        }
    }
    if copied.0 == 0 {
        return Err(Failure::work("the daemon's files are gone: is it in another container?"));
    }
    to.flush().map_err(cannot_write)?;
    destination.whole().map_err(cannot_write)?;
    let report = CaptureReport {
        schema: CaptureReport::SCHEMA.to_owned(),
        file: args.file.display().to_string(),
        recorded_ns: args.length.map(|length| Nanos::from(length).0),
        segments: copied.0,
        file_bytes: copied.1,
    };
    output.text(&report);
    output.json(&report)?;
    Ok(0)
}

/// The recorder's files, oldest first.
fn files(socket: &Path, for_ns: Option<u64>) -> Result<Vec<PathBuf>, Failure> {
    match ask_at(socket, &Request::Capture { for_ns }).map_err(Failure::work)? {
        Answer::Capture(files) => Ok(files),
        answer => Err(Failure::work(format!("the daemon is of another version: it answered {answer:?}"))),
    }
}
