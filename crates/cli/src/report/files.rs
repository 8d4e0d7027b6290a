//! Reading results with a limit, and replacing files in one step.

use crate::failure::Failure;
use crate::files::Place;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No result is larger; a page of more could not be opened.
const MOST_BYTES: u64 = 64 << 20;

/// The text of a result.
pub fn text_of_result(path: &Path) -> Result<String, String> {
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
    Place::open(path).and_then(|mut place| place.write(bytes)).map_err(|error| {
        Failure::input(format!("cannot write {}: {error}; name a file in a folder you may write to", path.display()))
    })
}
