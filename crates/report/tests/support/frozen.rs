//! Version 1 of each schema as it was when it was frozen (`frozen/`): what is written today has each of its keys, of
//! the same type.
//!
//! Examples there never change. A key that is new is no concern of theirs; a key that goes, or becomes something else,
//! is another version.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where they are.
pub fn folder() -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = above.find_map(|folder| Some(folder.join("crates/report/tests/frozen")).filter(|path| path.is_dir()));
    found.expect("crates/report/tests/frozen")
}

/// The frozen example of the schema that a result names, such as `gleaner.run/1`.
pub fn example(schema: &str) -> Value {
    let path = folder().join(format!("{}.json", schema.replace('/', ".")));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Keys that are there only where they say something, in their own schema's words.
const OPTIONAL: &[(&str, &str)] = &[("gleaner.host-run/1", ".in_turn")];

/// Fails unless `found` has the keys and types of the frozen example of its schema.
#[track_caller]
pub fn check(found: &Value) {
    let schema = found["schema"].as_str().unwrap_or_else(|| panic!("no schema in {found:#}"));
    let optional = |path: &str| OPTIONAL.iter().any(|(of, key)| *of == schema && path == format!("{key} is gone"));
    let wrong: Vec<String> = broken(&example(schema), found).into_iter().filter(|wrong| !optional(wrong)).collect();
    assert_eq!(wrong, Vec::<String>::new(), "{schema}: {found:#}");
}

/// Each path with the type found there; `[]` for the elements of an array, which are all alike.
fn shape(value: &Value) -> BTreeMap<String, &'static str> {
    fn walk(value: &Value, path: &str, into: &mut BTreeMap<String, &'static str>) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let known = into.entry(path.to_owned()).or_insert(kind);
        if *known == "null" {
            *known = kind;
        }
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(value, &format!("{path}.{key}"), into)),
            Value::Array(all) => all.iter().for_each(|value| walk(value, &format!("{path}[]"), into)),
            _ => {}
        }
    }
    let mut all = BTreeMap::new();
    walk(value, "", &mut all);
    all
}

/// What `frozen` has and `found` has not, or of another type. Below null and in an empty array nothing is asked for.
pub fn broken(frozen: &Value, found: &Value) -> Vec<String> {
    let (frozen, found) = (shape(frozen), shape(found));
    let mut wrong = Vec::new();
    for (path, kind) in &frozen {
        let parent = path.rfind('.').map_or("", |end| &path[..end]);
        match found.get(path) {
            Some(now) if now != kind && *now != "null" && *kind != "null" => {
                wrong.push(format!("{path} is {now}, and was {kind}"));
            }
            Some(_) => {}
            None if path.ends_with("[]") || found.get(parent) != Some(&"object") => {}
            None => wrong.push(format!("{path} is gone")),
        }
    }
    wrong
}
