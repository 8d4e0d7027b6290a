//! Where results go: JSON to a file or to stdout, the human text to the other.

use crate::failure::Failure;
use crate::files::Place;
use crate::wait_for_reader::WaitForReader;
use clap::builder::styling::{AnsiColor, Style};
use gleaner_model::printable_text;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The place for a command's result, tried out before the work begins: a bad path must not cost the work.
#[derive(Debug)]
pub enum Output {
    /// Only the human text.
    Text,
    /// JSON to stdout, the text to stderr.
    JsonToStdout,
    /// JSON to a file, the text as without.
    JsonToFile(JsonFile),
}

/// A file for the result. It is there, or is a new one, only when the result is: neither a failure nor a kill leaves an
/// empty one.
#[derive(Debug)]
pub struct JsonFile {
    path: PathBuf,
    place: Place,
}

impl Output {
    /// From `--json [FILE]`.
    pub fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Self::Text),
            Some(path) if path == Path::new("-") => Ok(Self::JsonToStdout),
            Some(path) => JsonFile::open(path).map(Self::JsonToFile).map_err(|error| {
                Failure::input(format!(
                    "cannot write --json file {}: {error}; name a file you may write",
                    path.display()
                ))
            }),
        }
    }

    /// Writes the JSON where it goes.
    pub fn json(&mut self, result: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(result).map_err(Failure::work)?;
        let (written, place) = match self {
            Self::Text => return Ok(()),
            Self::JsonToStdout => (writeln!(WaitForReader(io::stdout()), "{text}"), "stdout".to_owned()),
            Self::JsonToFile(file) => (file.write(&text), file.path.display().to_string()),
        };
        written.map_err(|error| Failure::work(format!("cannot write the result to {place}: {error}")))
    }

    /// Writes the human text: to stdout, unless the JSON is there; nowhere with `--quiet`.
    pub fn text(&self, text: &impl Display) {
        if quiet() {
            return;
        }
        if matches!(self, Self::JsonToStdout) {
            say(text);
        } else {
            lost(writeln!(WaitForReader(io::stdout()), "{}", printable_text(text.to_string().trim_end())));
        }
    }
}

impl JsonFile {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), place: Place::open(path)? })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.place.write(format!("{text}\n").as_bytes())
    }
}

/// Whether something could not be written to stdout.
static LOST: AtomicBool = AtomicBool::new(false);

/// Notes that a result did not get to stdout: the disk is full, say. A reader that went away (`| head`) is no failure.
fn lost(written: io::Result<()>) {
    let failed = written.and_then(|()| flushed()).err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let Some(error) = failed {
        let program = std::env::args_os().next().map(PathBuf::from);
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_else(|| "gleaner".as_ref());
        say(&format!("{}: cannot write the result to stdout: {error}", program.display()));
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Writes what stdout still holds.
pub fn flushed() -> io::Result<()> {
    WaitForReader(io::stdout()).flush()
}

/// The command's status, or `failure` where it was 0 and the result was lost.
pub fn status(status: u8, failure: u8) -> u8 {
    if status == 0 && LOST.load(Ordering::Relaxed) { failure } else { status }
}

/// Prints clap's help, version or complaint; the command's status.
pub fn usage(error: &clap::Error) -> u8 {
    let printed = error.print();
    if !error.use_stderr() {
        lost(printed);
    }
    status(u8::try_from(error.exit_code()).unwrap_or(2), 1)
}

/// Whether what is drawn on stdout may have colours.
pub fn has_colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Whether `--quiet` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From here on no result is printed in words, and no progress.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether no result is printed in words.
pub fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// A bar that is hidden with `--quiet`.
#[must_use]
pub fn shown(bar: ProgressBar) -> ProgressBar {
    if quiet() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// Gives a bar its form. `{left}` is what is left of the time: nothing before the first step, when nobody knows.
pub fn form(bar: &ProgressBar, template: &str) {
    let left = |state: &ProgressState, to: &mut dyn fmt::Write| {
        if state.pos() > 0 {
            // Whoever draws says whether that worked.
            let _ = write!(to, "{:#} left", HumanDuration(state.eta()));
        }
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("left", left));
    }
}

/// Draws a bar anew now and then. Where no thread can be had it is drawn only when something happens: indicatif would
/// panic.
pub fn steady_tick(bar: &ProgressBar, every: Duration) {
    let bar = bar.downgrade();
    let tick = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            std::thread::sleep(every);
        }
    };
    let _ = std::thread::Builder::new().name("gleaner-bar".into()).spawn(tick);
}

/// Writes a line of a result to stderr, unless nothing is to be told.
pub fn tell(text: &impl Display) {
    if !quiet() {
        say(text);
    }
}

/// Says why a command failed: `gleaner: ...`, each line of it, the name in colour where there are colours.
pub fn complain(program: &str, why: &str) {
    let name = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    for line in why.trim_end().lines() {
        let _ = writeln!(anstream::stderr(), "{name}{program}:{name:#} {}", printable_text(line));
    }
}

/// Writes a line to stderr; a closed one is no failure. Here and above: nothing in it steers a terminal, wherever it
/// comes from.
pub fn say(text: &impl Display) {
    let _ = writeln!(WaitForReader(io::stderr()), "{}", printable_text(text.to_string().trim_end()));
}
