//! Reading results with a limit, and replacing files in one step.

use crate::failure::Failure;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// No result is larger; a page of more could not be opened.
const MOST_BYTES: u64 = 64 << 20;

/// The text of a result.
pub fn text_of_result(path: &Path) -> Result<String, String> {
    if path.is_dir() {
        return Err("it is a folder; name the JSON files in it".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
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

/// Writes a file so that there is never half of it: beside it first, then in its place.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let said = |error: io::Error| {
        Failure::input(format!("cannot write {}: {error}; name a file in a folder you may write to", path.display()))
    };
    // What is no regular file (/dev/stdout, a pipe) cannot be replaced, only written; a link's target is what is meant.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&real).is_ok_and(|is| !is.is_file() && !is.is_dir()) {
        return fs::OpenOptions::new().write(true).open(&real).and_then(|mut file| file.write_all(bytes)).map_err(said);
    }
    if real.is_dir() {
        return Err(Failure::input(format!("cannot write {}: it is a folder; name a file in it", path.display())));
    }
    let beside = beside(&real);
    let written = File::create_new(&beside).and_then(|mut file| file.write_all(bytes)).and_then(|()| {
        if let Ok(old) = fs::metadata(&real) {
            fs::set_permissions(&beside, old.permissions())?;
        }
        fs::rename(&beside, &real)
    });
    written.map_err(|error| {
        // It cost nobody anything if it stays.
        let _ = fs::remove_file(&beside);
        said(error)
    })
}

/// A name in the same folder that nobody else uses: rename works within one file system only.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
