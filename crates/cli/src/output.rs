//! Where results go: JSON to a file or to stdout, the human text to the other.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The place for a command's result, opened before the work begins: a bad path must not cost the work.
#[derive(Debug)]
pub enum Output {
    /// Only the human text.
    Text,
    /// JSON to stdout, the text to stderr.
    JsonToStdout,
    /// JSON to a file, the text as without.
    JsonToFile { path: PathBuf, file: File },
}

impl Output {
    /// From `--json [FILE]`.
    pub fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Self::Text),
            Some(path) if path == Path::new("-") => Ok(Self::JsonToStdout),
            Some(path) => {
                // Not truncated yet: if the work fails, an earlier result is still there.
                let file = OpenOptions::new().create(true).write(true).truncate(false).open(path);
                let file = file.map_err(|error| {
                    Failure::input(format!(
                        "cannot write --json file {}: {error}; name a file you may write",
                        path.display()
                    ))
                })?;
                Ok(Self::JsonToFile { path: path.to_owned(), file })
            }
        }
    }

    /// Writes the JSON where it goes.
    pub fn json(&mut self, result: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(result).map_err(Failure::work)?;
        let written = match self {
            Self::Text => Ok(()),
            Self::JsonToStdout => writeln!(io::stdout(), "{text}"),
            Self::JsonToFile { file, .. } => empty(file).and_then(|()| writeln!(file, "{text}")),
        };
        let place = match self {
            Self::JsonToFile { path, .. } => path.display().to_string(),
            _ => "stdout".to_owned(),
        };
        written.map_err(|error| Failure::work(format!("cannot write the result to {place}: {error}")))
    }

    /// Writes the human text: to stdout, unless the JSON is there.
    pub fn text(&self, text: &impl Display) {
        if matches!(self, Self::JsonToStdout) {
            say(text);
        } else {
            // A reader that went away (`| head`) is no failure.
            let _ = writeln!(io::stdout(), "{}", text.to_string().trim_end());
        }
    }
}

/// Only a regular file can be emptied; a pipe or a device (`--json >(jq .)`) is written as it is.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Writes a line to stderr; a closed one is no failure.
pub fn say(text: &impl Display) {
    let _ = writeln!(io::stderr(), "{}", text.to_string().trim_end());
}
