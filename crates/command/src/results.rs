//! Results as input: read with a limit, and never overwritten by what is made of them.

use crate::failure::Failure;
use crate::files::Place;
use gleaner_report::html::{self, ResultFile};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No result is larger; a page of more could not be opened.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a result of any command.
pub fn read(path: &Path) -> Result<ResultFile, Failure> {
    let name = path.display().to_string();
    let text = text_of_result(path).map_err(|error| Failure::input(format!("cannot read {name}: {error}")))?;
    html::read(&name, &text).map_err(|error| Failure::input(format!("{name} is no result: {error}")))
}

/// A page or a picture must not be written over the results that it was made of.
pub fn refuse_inputs(output: &Path, results: &[PathBuf]) -> Result<(), Failure> {
    let Ok(real) = output.canonicalize() else { return Ok(()) };
    match results.iter().find(|input| input.canonicalize().is_ok_and(|input| input == real)) {
        None => Ok(()),
        Some(input) => {
            Err(Failure::input(format!("{} is one of the results: name another file for the page", input.display())))
        }
    }
}

fn text_of_result(path: &Path) -> Result<String, String> {
    if path.is_dir() {
        return Err("it is a folder; name the JSON files in it".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| format!("{error}; name a file that --json wrote"))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {} MiB, and no result is", MOST_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "byte {} is not UTF-8 text; a result is JSON, as gleaner writes it",
            error.utf8_error().valid_up_to() + 1
        )
    })
}

/// Writes a file so that there is never half of it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if path.is_dir() {
        return Err(Failure::input(format!("cannot write {}: it is a folder; name a file in it", path.display())));
    }
    let written = Place::open(path).and_then(|mut place| place.write(bytes));
    written.map_err(|error| Failure::unwritten(path.display(), &error))
}
