//! What the binary writes has exactly the keys, and their types, of the golden files in crates/report/tests/snapshots.

mod common;

use common::{finish, gleaner, run, text_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The example in which everything is known.
fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/snapshots");
    let text = text_of(folder.join(format!("golden__{name}.json.snap")));
    // insta's header lies between two lines of dashes.
    let json = text.splitn(3, "---\n").nth(2).unwrap_or_else(|| panic!("no golden file of {name}"));
    serde_json::from_str(json).unwrap()
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

/// What is in one and not in the other; below null and in an empty array nothing is asked for.
fn differences(golden: &Value, found: &Value) -> Vec<String> {
    let (golden, found) = (shape(golden), shape(found));
    let mut wrong = Vec::new();
    for (path, kind) in &found {
        match golden.get(path) {
            None => wrong.push(format!("{path} is not in the golden file")),
            Some(right) if right != kind && *kind != "null" => wrong.push(format!("{path} is {kind}, not {right}")),
            Some(_) => {}
        }
    }
    for path in golden.keys() {
        let parent = path.rfind('.').map_or("", |end| &path[..end]);
        let asked_for = !path.ends_with("[]") && found.get(parent) == Some(&"object");
        if asked_for && !found.contains_key(path) {
            wrong.push(format!("{path} is missing"));
        }
    }
    wrong
}

#[test]
fn differences_are_found() {
    let golden = serde_json::json!({"a": 1, "b": {"c": "x"}, "d": [{"e": 1, "f": null}]});
    let wrong = |found: Value| differences(&golden, &found);
    assert_eq!(wrong(serde_json::json!({"a": 5, "b": null, "d": []})), Vec::<String>::new());
    assert_eq!(
        wrong(serde_json::json!({"a": null, "b": {"c": "y"}, "d": [{"e": 2, "f": null}]})),
        Vec::<String>::new()
    );
    assert_eq!(wrong(serde_json::json!({"a": 5, "b": {}, "d": []})), [".b.c is missing"]);
    assert_eq!(wrong(serde_json::json!({"a": "5", "b": null, "d": []})), [".a is string, not number"]);
    assert_eq!(wrong(serde_json::json!({"a": 5, "b": null, "d": [{"e": 1}]})), [".d[].f is missing"]);
    assert_eq!(wrong(serde_json::json!({"a": 5, "b": null, "d": [], "g": 1})), [".g is not in the golden file"]);
}

/// The JSON that a command writes to stdout.
#[track_caller]
fn written(command: &mut std::process::Command) -> Value {
    let said = finish(command).with_status(0);
    assert!(said.stdout.starts_with("{\n  \"schema\": \"gleaner."), "schema first: {said:#?}");
    assert!(!said.stderr.contains("NaN") && !said.stderr.contains("inf"), "{said:#?}");
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn run_has_the_keys_of_its_golden_file() {
    for policy in ["off", "observe", "retain", "consolidate", "full"] {
        for observer in ["auto", "procfs"] {
            for script in ["sleep 0.25", ":"] {
                let options = ["--policy", policy, "--observer", observer, "--json", "--", "sh", "-c", script];
                let found = written(&mut run(options));
                assert_eq!(differences(&golden("run_whole"), &found), Vec::<String>::new(), "{policy} {observer}");
                assert_eq!(found["schema"], "gleaner.run/1");
            }
        }
    }
}

#[test]
fn probe_has_the_keys_of_its_golden_file() {
    for options in [&["--load"][..], &["--setting", "A"], &["--setting", "C"]] {
        let mut command = gleaner(["probe", "--samples", "20", "--json"]);
        let found = written(command.args(options));
        assert_eq!(differences(&golden("probe_whole"), &found), Vec::<String>::new(), "{options:?}");
        assert_eq!(found["schema"], "gleaner.probe/1");
    }
}

#[test]
fn doctor_has_the_keys_of_its_golden_file() {
    let found = written(&mut gleaner(["doctor", "--json"]));
    assert_eq!(differences(&golden("doctor_whole"), &found), Vec::<String>::new());
    assert_eq!(found["schema"], "gleaner.doctor/1");
}

#[test]
fn ab_has_the_keys_of_its_golden_file() {
    let metric = ["--metric", "(5)", "--lower-is-better", "--modes", "off,observe"];
    let mut command = gleaner(["ab", "-n", "5", "--warmup", "0", "--json"]);
    let found = written(command.args(metric).args(["--", "echo", "5"]));
    assert_eq!(differences(&golden("ab_whole"), &found), Vec::<String>::new());
    assert_eq!(found["schema"], "gleaner.ab/1");
}
