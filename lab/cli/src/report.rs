//! `gleaner-lab report`: the figures of `gleaner report`'s page as pictures.
//!
//! Everything is read and drawn before anything is written, and what is written replaces an older file in one step.

use clap::Args;
use gleaner_command::failure::Failure;
use gleaner_command::output::tell;
use gleaner_command::results::{read, refuse_inputs, replace};
use gleaner_pictures::{png, png_of_all};
use gleaner_report::html::{self, Figure, Page};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner-lab report RESULT.json... --png FILE.png|FOLDER",
    after_help = "RESULT.json is what any command wrote with --json FILE. The page itself is made by `gleaner report`.\n\n\
                  Example: gleaner-lab report results/*.json --png figures/"
)]
pub struct ReportArgs {
    /// Results in JSON
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    /// Draw all figures into one picture if the name ends in .png, else one file each into this folder
    #[arg(long, value_name = "FILE.png|FOLDER")]
    png: PathBuf,
}

pub fn main(args: &ReportArgs) -> Result<u8, Failure> {
    let results = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    refuse_inputs(&args.png, &args.results)?;
    let page = html::page(None, &results).map_err(Failure::work)?;
    let pictures = pictures(&args.png, &page)?;
    for (path, bytes) in &pictures {
        replace(path, bytes)?;
    }
    let several = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let (results, pictures) = (several(results.len(), "result"), several(pictures.len(), "picture"));
    tell(&format!("gleaner-lab: {} made of {results}: {pictures}", args.png.display()));
    Ok(0)
}

/// The pictures with their places.
fn pictures(place: &Path, page: &Page) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    if place.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) && !place.is_dir() {
        let bytes = png_of_all(&page.figures).map_err(Failure::work)?;
        return Ok(vec![(place.to_owned(), bytes)]);
    }
    std::fs::create_dir_all(place).map_err(|error| {
        Failure::input(format!(
            "cannot make the folder {}: {error}; name a folder, or a file ending in .png",
            place.display()
        ))
    })?;
    let draw = |(number, figure): (usize, &Figure)| {
        let bytes = png(figure).map_err(Failure::work)?;
        Ok((place.join(format!("figure-{number:02}.png")), bytes))
    };
    (1..).zip(&page.figures).map(draw).collect()
}
