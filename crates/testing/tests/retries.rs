//! Who may be tried again (.config/nextest.toml): only who is named there, and nobody who guards a promise.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of tests that say that nothing is left behind, that nobody is harmed, or that nothing is lost. A second try with another seed or at
/// another moment would hide just what they look for.
const SAFETY: &[&str] = &[
    "kill",
    "left",
    "leave",
    "unchanged",
    "restor",
    "undo",
    "undone",
    "back_however",
    "gives_back",
    "given_back",
    "survive",
    "harm",
    "slower",
    "guardian",
    "journal",
    "interrupted",
    "unprivileged",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The filters of those who may be tried again.
fn filters(config: &str) -> Vec<String> {
    let config: toml::Table = config.parse().unwrap();
    let profile = config["profile"]["default"].as_table().unwrap();
    assert!(!profile.contains_key("retries"), "everybody would be tried again");
    let overrides = profile["overrides"].as_array().unwrap().iter();
    let retried = overrides.filter(|one| one.get("retries").is_some());
    retried.map(|one| one["filter"].as_str().unwrap().to_owned()).collect()
}

/// The operands of a filter: what stands before each bracket, and in it.
fn operands(filter: &str) -> Vec<(String, String)> {
    let parts = filter.split(')').filter_map(|part| part.rsplit_once('('));
    parts
        .map(|(before, inside)| {
            let name = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            (name.to_owned(), inside.trim().to_owned())
        })
        .collect()
}

fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *into += &fs::read_to_string(path).unwrap();
        }
    }
}

#[test]
fn who_is_tried_again_is_named_one_by_one_and_guards_no_promise() {
    let config = fs::read_to_string(root().join(".config/nextest.toml")).unwrap();
    let mut all = String::new();
    for folder in ["crates", "lab"] {
        sources(&root().join(folder), &mut all);
    }
    let filters = filters(&config);
    assert!(!filters.is_empty());
    for (kind, name) in filters.iter().flat_map(|filter| operands(filter)) {
        assert!(matches!(&*kind, "test" | "binary_id"), "{kind}({name}) is no name");
        let name = name.strip_prefix('=').unwrap_or_else(|| panic!("{kind}({name}) is a pattern"));
        if kind == "test" {
            assert!(all.contains(&format!("fn {name}()")), "there is no test {name}");
            assert_eq!(SAFETY.iter().find(|word| name.contains(**word)), None, "{name}");
        }
    }
}

#[test]
fn operands_of_a_filter_are_found() {
    let filter = "binary_id(=a::b) & (\n  test(=one)\n | test(/two/)) | test(three)";
    let found = operands(filter);
    let expected = [("binary_id", "=a::b"), ("test", "=one"), ("test", "/two/"), ("test", "three")];
    assert_eq!(found, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}
