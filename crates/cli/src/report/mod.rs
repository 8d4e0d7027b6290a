//! `gleaner report`: results as one HTML page, and its figures as pictures.
//!
//! Everything is read and made before anything is written, and what is written replaces an older file in one step: a
//! failure leaves what was there.

mod files;

use crate::failure::Failure;
use crate::output::say;
use clap::Args;
use files::{replace, text_of_result};
use gleaner_report::html::{self, Figure, Page, ResultFile};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner report RESULT.json... -o PAGE.html [OPTIONS]",
    after_help = "RESULT.json is what any command wrote with --json FILE; results of different commands go together, and \
                  runs of the same program stand side by side. The page is complete in itself: it can be mailed, and \
                  opens without a network.\n\n\
                  Examples:\n\
                  \x20 gleaner run --json full.json -- make -j4\n\
                  \x20 gleaner report full.json -o page.html\n\
                  \x20 gleaner report results/*.json -o page.html --png figures/"
)]
pub struct ReportArgs {
    /// Results in JSON
    #[arg(value_name = "RESULT.json", required = true)]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html")]
    pub output: PathBuf,
    /// Draw the figures as PNG too: into one picture if the name ends in .png, else one file each into this folder
    #[arg(long, value_name = "FILE.png|FOLDER")]
    pub png: Option<PathBuf>,
    /// The page's title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

pub fn main(args: &ReportArgs) -> Result<u8, Failure> {
    let results = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    for path in [Some(&args.output), args.png.as_ref()].into_iter().flatten() {
        refuse_inputs(path, &args.results)?;
    }
    let page = html::page(args.title.as_deref(), &results).map_err(Failure::work)?;
    let mut files = vec![(args.output.clone(), page.html.clone().into_bytes())];
    if let Some(png) = &args.png {
        files.extend(pictures(png, &page)?);
    }
    for (path, bytes) in &files {
        replace(path, bytes)?;
    }
    say(&format!("gleaner: {}", told(&args.output, &results, &page, files.len() - 1)));
    Ok(0)
}

fn read(path: &Path) -> Result<ResultFile, Failure> {
    let name = path.display().to_string();
    let text = text_of_result(path).map_err(|error| Failure::input(format!("cannot read {name}: {error}")))?;
    html::read(&name, &text).map_err(|error| Failure::input(format!("{name} is no result: {error}")))
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

/// The pictures with their places.
fn pictures(place: &Path, page: &Page) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    if place.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) && !place.is_dir() {
        let bytes = html::png_of_all(&page.figures).map_err(Failure::work)?;
        return Ok(vec![(place.to_owned(), bytes)]);
    }
    std::fs::create_dir_all(place).map_err(|error| {
        Failure::input(format!(
            "cannot make the folder {}: {error}; name a folder, or a file ending in .png",
            place.display()
        ))
    })?;
    let draw = |(number, figure): (usize, &Figure)| {
        let bytes = html::png(figure).map_err(Failure::work)?;
        Ok((place.join(format!("figure-{number:02}.png")), bytes))
    };
    (1..).zip(&page.figures).map(draw).collect()
}

fn told(output: &Path, results: &[ResultFile], page: &Page, pictures: usize) -> String {
    let several = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let pictures = if pictures > 0 { format!(", {}", several(pictures, "picture")) } else { String::new() };
    format!(
        "{} made of {}: {}{pictures}",
        output.display(),
        several(results.len(), "result"),
        several(page.figures.len(), "figure")
    )
}
