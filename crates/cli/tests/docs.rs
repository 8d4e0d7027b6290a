//! Links between documents lead somewhere. What is made of the source is kept current by `gleaner-reference`'s own
//! test.

use gleaner_model::RetainMeans;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Targets of `[text](target)` that are files.
fn links(markdown: &str) -> Vec<&str> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].iter().map(|name| root().join(name)).collect();
    files_below(&root().join("docs"), &mut pages);
    files_below(&root().join("experiments"), &mut pages);
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = read(page);
        for link in links(&text) {
            assert!(
                page.parent().unwrap().join(link).exists(),
                "{} links to {link}, which is not there",
                page.display()
            );
        }
    }
}

#[test]
fn links_are_found() {
    assert_eq!(links("[a](b.md) [c](https://d) [e](f.md#g) [h](#i)"), ["b.md", "f.md"]);
}

/// Options, `doctor`'s texts and pages know each means: a new one cannot be forgotten.
#[test]
fn every_means_of_retention_is_an_option_and_on_the_pages() {
    let help = |command: &str| {
        let said = Command::new(env!("CARGO_BIN_EXE_gleaner")).args([command, "--help"]).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let doctor = Command::new(env!("CARGO_BIN_EXE_gleaner")).args(["doctor", "--json"]).output().unwrap();
    let mut texts = vec![
        ("run --help".to_owned(), help("run")),
        ("attach --help".to_owned(), help("attach")),
        ("doctor".to_owned(), String::from_utf8(doctor.stdout).unwrap()),
    ];
    for page in ["docs/safety.md", "docs/how-it-works.md", "docs/reference/configuration.md"] {
        texts.push((page.to_owned(), read(&root().join(page))));
    }
    for means in RetainMeans::ALL {
        for (what, text) in &texts {
            assert!(text.contains(means.name()), "{what} does not know {means}");
        }
    }
}
