//! A key of version 1 never goes, never becomes another type, and never gets another meaning.

#[path = "support/frozen.rs"]
mod frozen;

use frozen::{broken, check, example, folder};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Every example there is: schema and text.
fn examples() -> Vec<(String, String)> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let examples = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let all: Vec<_> = examples.map(|path| fs::read_to_string(path).unwrap()).collect();
    all.into_iter()
        .map(|text| (serde_json::from_str::<Value>(&text).unwrap()["schema"].as_str().unwrap().into(), text))
        .collect()
}

#[test]
fn what_goes_or_becomes_something_else_is_found() {
    let frozen = json!({"a": 1, "b": {"c": "x"}, "d": [{"e": 1, "f": null}], "g": null});
    let wrong = |found: Value| broken(&frozen, &found);
    assert_eq!(wrong(json!({"a": 5, "b": null, "d": [], "g": 7, "new": 1})), Vec::<String>::new());
    assert_eq!(wrong(json!({"a": 5, "b": {}, "d": [{"e": 1, "f": 2}], "g": null})), [".b.c is gone"]);
    assert_eq!(wrong(json!({"a": "5", "b": null, "d": []})), [".a is string, and was number", ".g is gone"]);
    assert_eq!(wrong(json!({"a": 1, "b": null, "d": [{"f": 1}], "g": null})), [".d[].e is gone"]);
}

/// The golden files are what is written today.
#[test]
fn what_is_written_today_has_every_key_of_version_1() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with(".json.snap") {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap();
        // insta's header lies between two lines of dashes.
        let found: Value = serde_json::from_str(text.splitn(3, "---\n").nth(2).unwrap()).unwrap();
        check(&found);
        seen.push(found["schema"].as_str().unwrap().to_owned());
    }
    for (schema, _) in examples() {
        assert!(seen.contains(&schema), "no golden file of {schema}");
    }
}

/// An old result is still one.
#[test]
fn what_was_written_then_is_read_today() {
    macro_rules! read {
        ($($report:ident),*) => {
            |schema: &str, text: &str| match schema {
                $(gleaner_report::$report::SCHEMA => {
                    let read: Result<gleaner_report::$report, _> = serde_json::from_str(text);
                    serde_json::to_value(read.unwrap_or_else(|error| panic!("{schema}: {error}"))).unwrap()
                })*
                _ => panic!("no type reads {schema}: name it here"),
            }
        };
    }
    let read = read!(
        AbReport,
        CacheClassReport,
        CacheRecordReport,
        CacheReport,
        CaptureReport,
        DoctorReport,
        HostListReport,
        HostProbeReport,
        HostRunReport,
        ProbeReport,
        RecordReport,
        ReplayReport,
        ReproductionReport,
        RunReport,
        ScenarioReport,
        SimRecordingReport,
        SimReport,
        SliceReport,
        StatusReport,
        SweepReport,
        VerifyReport,
        WorkloadReport,
        XenListReport,
        XenSliceReport
    );
    for (schema, text) in examples() {
        assert_eq!(broken(&example(&schema), &read(&schema, &text)), Vec::<String>::new(), "{schema}");
    }
}

/// The rows of tables, each with the heading that it is under.
fn rows(text: &str) -> Vec<(String, String)> {
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            line.clone_into(&mut heading);
        } else if line.starts_with("| `") {
            rows.push((heading.clone(), line.to_owned()));
        }
    }
    rows
}

#[test]
fn what_keys_mean_is_what_they_meant() {
    let then = rows(&fs::read_to_string(folder().join("meanings.md")).unwrap());
    let now = rows(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")).unwrap());
    let gone: Vec<_> = then.iter().filter(|row| !now.contains(row)).collect();
    let advice = "another meaning is another version; where only the words are better, change frozen/meanings.md too";
    assert!(then.len() > 100 && gone.is_empty(), "not in docs/json.md as they were: {gone:#?}\n{advice}");
}
