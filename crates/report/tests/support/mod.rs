//! Results for tests of the page.

use gleaner_report::html::{Known, Page, page, read};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What must not break out of its place.
pub const NASTY: &str = "</title></svg><script>alert('x')</script>\"><img src=x onerror=y>\u{0}\u{1b}[31m\u{202e}&amp;";

/// Every example there is: the golden files of the schemas that a page shows, and results made up for the page.
pub fn examples(known: &[Known]) -> Vec<(String, String)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = |folder: &str, ending: &str| {
        let mut all: Vec<(String, String)> = fs::read_dir(tests.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
            .filter(|(name, _)| name.ends_with(ending))
            .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
            .collect();
        all.sort();
        all
    };
    let mut all = files("results", ".json");
    for (name, text) in files("snapshots", ".json.snap") {
        let json = text.splitn(3, "---\n").nth(2).unwrap();
        if read(&name, json, known).is_ok() {
            all.push((name, json.to_owned()));
        }
    }
    all
}

pub fn made_of(examples: &[(String, String)], known: &[Known]) -> Page {
    let results: Vec<_> = examples.iter().map(|(name, text)| read(name, text, known).unwrap()).collect();
    page(None, &results).unwrap()
}

/// Puts this in place of every string but the schema's name.
pub fn replace_strings(value: &mut Value, with: &str) {
    match value {
        Value::String(text) => with.clone_into(text),
        Value::Array(all) => all.iter_mut().for_each(|value| replace_strings(value, with)),
        Value::Object(fields) => {
            fields.iter_mut().filter(|(key, _)| *key != "schema").for_each(|(_, value)| replace_strings(value, with));
        }
        _ => {}
    }
}
