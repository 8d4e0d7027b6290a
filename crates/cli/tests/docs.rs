//! The documents say what the code does: the page of parameters is made from the source, links lead somewhere.
//!
//! `UPDATE_DOCS=1 cargo test -p gleaner --test docs` writes the page anew.

use gleaner_decide::Parameter;
use gleaner_decide::guest::GuestParams;
use gleaner_decide::host::HostParams;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Markdown of parameters, a table for each group.
fn tables(parameters: &[Parameter]) -> String {
    let mut text = String::new();
    for of_group in parameters.chunk_by(|a, b| a.group == b.group) {
        write!(text, "\n### {}\n\n", of_group[0].group).unwrap();
        text += "| key | default | range | unit | meaning |\n| --- | --- | --- | --- | --- |\n";
        for Parameter { key, default, allowed, unit, meaning, .. } in of_group {
            writeln!(text, "| `{key}` | {default} | {allowed} | {unit} | {} |", meaning.replace('|', "\\|")).unwrap();
        }
    }
    text
}

#[test]
fn the_page_of_parameters_is_made_of_their_definitions() {
    let page = root().join("docs/reference/parameters.md");
    let expected = format!(
        "# Parameters\n\nMade from the source: `UPDATE_DOCS=1 cargo test -p gleaner --test docs`. `gleaner params` prints the same.\n\
         [Tuning](../tuning.md) says how a file gives them.\n\n## Of a guest\n\nFor `gleaner run` and `ab`.\n{}\n\
         ## Of a host\n\nFor `gleaner host run`.\n{}",
        tables(&GuestParams::parameters()),
        tables(&HostParams::parameters())
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let advice = "stale: UPDATE_DOCS=1 cargo test -p gleaner --test docs";
    assert_eq!(read(&page), expected, "docs/reference/parameters.md is {advice}");
}

#[test]
fn a_table_has_what_the_definition_has() {
    let parameter = Parameter {
        key: "a_us",
        group: "A: b",
        meaning: "One. Two | three.",
        default: "4000".into(),
        allowed: "1 to 2".into(),
        unit: "us",
    };
    let expected = "\n### A: b\n\n| key | default | range | unit | meaning |\n| --- | --- | --- | --- | --- |\n\
                    | `a_us` | 4000 | 1 to 2 | us | One. Two \\| three. |\n";
    assert_eq!(tables(&[parameter]), expected);
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
