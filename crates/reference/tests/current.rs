//! docs/reference is what the source says, and what is installed has every command.

use gleaner_reference::{File, for_installing, pages};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

#[test]
fn the_pages_are_those_of_the_source() {
    let folder = root().join("docs/reference");
    let expected = pages().unwrap();
    for file in &expected {
        let found = fs::read(folder.join(&file.path)).unwrap_or_default();
        assert!(found == file.bytes, "docs/reference/{} is stale: make reference", file.path);
    }
    let mut found = Vec::new();
    files_below(&folder, &mut found);
    let names: BTreeSet<PathBuf> = expected.iter().map(|file| folder.join(&file.path)).collect();
    let too_many: Vec<_> = found.iter().filter(|path| !names.contains(*path)).collect();
    assert!(too_many.is_empty(), "nothing makes these: {too_many:?}");
}

/// What a schema says is wrong with a value, as far as types, keys and references go.
fn wrong(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
        return wrong(root, &root["$defs"][name], value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let each: Vec<_> = any.iter().map(|one| wrong(root, one, value, at)).collect();
        return if each.iter().any(Vec::is_empty) { Vec::new() } else { each.concat() };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Vec::new(),
    };
    let fits = |wanted: &&str| *wanted == kind || (*wanted == "number" && kind == "integer");
    if !types.iter().any(fits) {
        return vec![format!("{at} is {kind}, not {types:?}")];
    }
    let mut all = Vec::new();
    if let Value::Object(object) = value {
        for (key, own) in object {
            match schema["properties"].get(key) {
                Some(schema) => all.extend(wrong(root, schema, own, &format!("{at}.{key}"))),
                // A map has a schema for all that it has.
                None if schema["additionalProperties"].is_object() => {
                    all.extend(wrong(root, &schema["additionalProperties"], own, &format!("{at}.{key}")));
                }
                None if schema["additionalProperties"] == true => {}
                None => all.push(format!("{at}.{key} is not in the schema")),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.extend(required.filter(|key| !object.contains_key(*key)).map(|key| format!("{at}.{key} is missing")));
    }
    for own in value.as_array().into_iter().flatten() {
        all.extend(wrong(root, &schema["items"], own, &format!("{at}[]")));
    }
    all
}

/// The golden files are what is written today.
#[test]
fn what_is_written_is_what_the_schemas_say() {
    let schemas: Vec<Value> = share()
        .iter()
        .filter(|file| file.path.starts_with("doc/gleaner/schemas/"))
        .map(|file| serde_json::from_slice(&file.bytes).unwrap())
        .collect();
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates/report/tests/snapshots")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with(".json.snap") {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap();
        let value: Value = serde_json::from_str(text.splitn(3, "---\n").nth(2).unwrap()).unwrap();
        let schema = schemas.iter().find(|schema| schema["properties"]["schema"]["const"] == value["schema"]);
        let schema = schema.unwrap_or_else(|| panic!("no schema of {}", value["schema"]));
        assert_eq!(wrong(schema, schema, &value, ""), Vec::<String>::new(), "{name}");
        let mut broken = value.clone();
        broken["schema"] = Value::from(7);
        assert_eq!(wrong(schema, schema, &broken, "").len(), 1, "a number where a string belongs is seen");
        seen.insert(value["schema"].to_string());
    }
    assert_eq!(seen.len(), schemas.len(), "each schema has a golden file: {seen:?}");
}

fn share() -> Vec<File> {
    for_installing().unwrap()
}

fn text_of<'a>(files: &'a [File], path: &str) -> &'a str {
    let file = files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}"));
    std::str::from_utf8(&file.bytes).unwrap()
}

#[test]
fn man_pages_have_every_command_and_option() {
    fn check(files: &[File], command: &clap::Command, name: &str) {
        let page = text_of(files, &format!("man/man1/{name}.1"));
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        for option in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if let Some(long) = option.get_long() {
                // roff writes a hyphen as `\\-`.
                assert!(page.contains(&format!("\\-\\-{}", long.replace('-', "\\-"))), "{name} lacks --{long}: {page}");
            }
        }
        for own in command.get_subcommands().filter(|own| !own.is_hide_set() && own.get_name() != "help") {
            check(files, own, &format!("{name}-{}", own.get_name()));
        }
    }
    let mut command = gleaner::command();
    command.build();
    let files = share();
    check(&files, &command, "gleaner");
    assert!(text_of(&files, "man/man1/gleaner-host-run.1").contains("gleaner host run"));
    assert!(!text_of(&files, "man/man1/gleaner-run.1").contains("timeout"), "earlier names are not told");
}

#[test]
fn completions_have_every_command() {
    let files = share();
    let paths = [
        "bash-completion/completions/gleaner",
        "zsh/site-functions/_gleaner",
        "fish/vendor_completions.d/gleaner.fish",
    ];
    for path in paths {
        let script = text_of(&files, path);
        for word in ["doctor", "params", "retain-for", "in-turn"] {
            assert!(script.contains(word), "{path} lacks {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, text_of(&files, paths[0])).unwrap();
    let complete = format!(
        r#". {}; COMP_WORDS=(gleaner par); COMP_CWORD=1; _gleaner gleaner par gleaner; echo "${{COMPREPLY[@]}}""#,
        file.display()
    );
    let output = Command::new("bash").args(["--norc", "-c", &complete]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "params\n", "{output:?}");
}
