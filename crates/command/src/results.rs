//! Results as input: read with a limit, and never overwritten by what is made of them.

use crate::failure::Failure;
use crate::files::Place;
use crate::output::tell;
use clap::Args;
use gleaner_report::html::{self, Known, ResultFile};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No result is larger; a page of more could not be opened.
const MOST_BYTES: u64 = 64 << 20;

/// The page to make, and of what.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Results in JSON
    #[arg(value_name = "RESULT.json", required = true)]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html")]
    pub output: PathBuf,
    /// The page's title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

impl PageArgs {
    /// Everything is read and made before anything is written, so a failure leaves an older page as it was.
    pub fn make(&self, program: &str, known: &[Known]) -> Result<(), Failure> {
        let results = self.results.iter().map(|path| read(path, known)).collect::<Result<Vec<_>, _>>()?;
        refuse_inputs(&self.output, &self.results)?;
        let page = html::page(self.title.as_deref(), &results).map_err(Failure::work)?;
        replace(&self.output, page.html.as_bytes())?;
        let several = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let (made, figures) = (several(results.len(), "result"), several(page.figures.len(), "figure"));
        tell(&format!("{program}: {} made of {made}: {figures}", self.output.display()));
        Ok(())
    }
}

/// Reads a result of any command that is known.
fn read(path: &Path, known: &[Known]) -> Result<ResultFile, Failure> {
    let name = path.display().to_string();
    let text = text_of_result(path).map_err(|error| Failure::input(format!("cannot read {name}: {error}")))?;
    html::read(&name, &text, known).map_err(|error| Failure::input(format!("{name} is no result: {error}")))
}

/// A page must not be written over the results that it was made of.
fn refuse_inputs(output: &Path, results: &[PathBuf]) -> Result<(), Failure> {
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
