//! Who may be tried again (.config/nextest.toml): only who is named there, and nobody who guards a promise.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of tests that say that nothing is left behind, that nobody is harmed, or that nothing is lost. A second try
/// with another seed or at another moment would hide just what they look for.
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

/// Crates without I/O: what fails there fails always.
const PURE: &[&str] = &["gleaner-decide", "gleaner-model", "gleaner-stats", "gleaner-report"];

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

/// Whether a filter only adds tests up, and names them of each binary: neither `binary_id(=x)` alone nor `not` nor `-`
/// does.
fn only_adds_up(filter: &str) -> bool {
    let (mut signs, mut kinds, mut inside) = (filter.to_owned(), Vec::new(), 0);
    for (kind, name) in operands(filter) {
        signs = signs.replacen(&format!("{kind}({name})"), "", 1);
        kinds.push(kind);
    }
    let binaries = filter.match_indices("binary_id(").filter_map(|(at, _)| filter[at..].split_once(')'));
    for (_, after) in binaries {
        inside += usize::from(after.trim_start().starts_with('&'));
    }
    signs.chars().all(|sign| "&|()".contains(sign) || sign.is_whitespace())
        && inside == kinds.iter().filter(|kind| **kind == "binary_id").count()
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
    for filter in &filters {
        assert!(only_adds_up(filter), "more than what is named: {filter}");
    }
    for (kind, name) in filters.iter().flat_map(|filter| operands(filter)) {
        assert!(matches!(&*kind, "test" | "binary_id"), "{kind}({name}) is no name");
        let name = name.strip_prefix('=').unwrap_or_else(|| panic!("{kind}({name}) is a pattern"));
        let package = name.split("::").next().unwrap_or_default();
        assert!(!PURE.contains(&package), "{name} is pure");
        if kind == "test" {
            assert!(all.contains(&format!("fn {name}()")), "there is no test {name}");
            assert_eq!(SAFETY.iter().find(|word| name.contains(**word)), None, "{name}");
        }
    }
}

#[test]
fn what_does_not_only_add_up_is_found() {
    for (filter, adds_up) in [
        ("binary_id(=a::b) & (\n  test(=one)\n | test(=two)) | test(=three)", true),
        ("binary_id(=a::b) & test(=one)", true),
        ("binary_id(=a::b)", false),
        ("test(=one) | binary_id(=a::b)", false),
        ("not test(=one)", false),
        ("binary_id(=a::b) & !test(=one)", false),
        ("binary_id(=a::b) - test(=one)", false),
    ] {
        assert_eq!(only_adds_up(filter), adds_up, "{filter}");
    }
}

#[test]
fn operands_of_a_filter_are_found() {
    let filter = "binary_id(=a::b) & (\n  test(=one)\n | test(/two/)) | test(three)";
    let found = operands(filter);
    let expected = [("binary_id", "=a::b"), ("test", "=one"), ("test", "/two/"), ("test", "three")];
    assert_eq!(found, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}
