//! `make reference`: writes what `gleaner_reference` makes.

use gleaner_reference::{File, for_installing, pages};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let written = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pages", folder] => pages().and_then(|files| write(Path::new(folder), &files)),
        ["share", folder] => for_installing().and_then(|files| write(Path::new(folder), &files)),
        _ => {
            eprintln!(
                "usage: gleaner-reference pages FOLDER (docs/reference) | share FOLDER (man pages, completions, schemas)"
            );
            return ExitCode::from(2);
        }
    };
    if let Err(error) = written {
        eprintln!("gleaner-reference: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The folder has these files afterwards, and no others: what is gone leaves no file.
fn write(folder: &Path, files: &[File]) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for file in files {
        let path = folder.join(&file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, &file.bytes)?;
    }
    Ok(())
}
