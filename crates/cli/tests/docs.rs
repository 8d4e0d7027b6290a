//! The documents say what the code does: the parameter table is made from the source, links lead somewhere.
//!
//! `UPDATE_DOCS=1 cargo test -p gleaner --test docs` writes the table anew.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A table of docs/tuning.md: the markers around it, the struct, and where that is.
const TABLES: &[(&str, &str, &str, &str)] = &[
    ("<!-- parameters: begin", "<!-- parameters: end -->", "GuestParams", "crates/decide/src/guest/params.rs"),
    (
        "<!-- host parameters: begin",
        "<!-- host parameters: end -->",
        "HostParams",
        "crates/decide/src/host/host_params.rs",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text between the first `begin` and the next `end`, both excluded.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let start = text.find(begin).unwrap_or_else(|| panic!("no '{begin}'")) + begin.len();
    let length = text[start..].find(end).unwrap_or_else(|| panic!("no '{end}' after '{begin}'"));
    &text[start..start + length]
}

/// Markdown of every field of a struct of parameters: key, default, meaning (its doc comment), a heading row per group.
fn parameter_table(source: &str, name: &str) -> String {
    let defaults = between(source, &format!("impl Default for {name}"), "\n}\n");
    let mut table = String::from("| key | default | meaning |\n| --- | --- | --- |\n");
    let mut meaning = String::new();
    for line in between(source, &format!("pub struct {name} {{"), "\n}\n").lines().map(str::trim) {
        if let Some(group) = line.strip_prefix("// --- ") {
            writeln!(table, "| | | **{}** |", group.trim_end_matches([' ', '-'])).unwrap();
        } else if let Some(text) = line.strip_prefix("///") {
            meaning += text;
        } else if let Some(key) = line.strip_prefix("pub ").and_then(|field| field.split(':').next()) {
            let default = between(defaults, &format!(" {key}: "), ",\n").replace('_', "").replace("vec!", "");
            writeln!(table, "| `{key}` | {default} | {} |", meaning.trim().replace('|', "\\|")).unwrap();
            meaning.clear();
        }
    }
    table
}

#[test]
fn the_parameter_tables_are_those_of_the_source() {
    let page = root().join("docs/tuning.md");
    for (begin, end, name, source) in TABLES {
        let table = parameter_table(&read(&root().join(source)), name);
        let text = read(&page);
        let found = between(&text, begin, end);
        let marker_rest = &found[..=found.find('\n').unwrap()];
        let expected = format!("{marker_rest}{table}");
        if found != expected && std::env::var_os("UPDATE_DOCS").is_some() {
            let (old, new) = (format!("{begin}{found}{end}"), format!("{begin}{expected}{end}"));
            fs::write(&page, text.replace(&old, &new)).unwrap();
            continue;
        }
        assert_eq!(found, expected, "docs/tuning.md is stale: UPDATE_DOCS=1 cargo test -p gleaner --test docs");
    }
}

#[test]
fn the_table_takes_meaning_and_default_from_the_source() {
    let source = "pub struct GuestParams {\n    // --- A: b ---\n    /// One.\n    /// Two | three.\n    pub a_us: u64,\n}\n\
                  impl Default for GuestParams {\n        Self {\n            a_us: 4_000,\n        }\n}\n";
    let expected =
        "| key | default | meaning |\n| --- | --- | --- |\n| | | **A: b** |\n| `a_us` | 4000 | One. Two \\| three. |\n";
    assert_eq!(parameter_table(source, "GuestParams"), expected);
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
