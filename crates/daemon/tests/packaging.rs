//! The files that go along with the service: each name in them is one that the daemon has.

use gleaner_daemon::METRICS;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(packaging(file)).unwrap()
}

/// Words of PromQL that begin like this.
fn words<'a>(text: &'a str, prefix: &'a str) -> BTreeSet<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    text.split(|c| !is_part(c)).filter(|word| word.starts_with(prefix)).collect()
}

fn is_served(name: &str) -> bool {
    METRICS.iter().any(|metric| metric.sample_name() == name)
}

/// Every query of the dashboard: of its panels, its variables, its annotations.
fn queries(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "expr" || key == "query" => into.push(text.clone()),
                    value => queries(value, into),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, into)),
        _ => {}
    }
}

#[test]
fn the_alert_rules_ask_for_what_is_served() {
    let rules = text("prometheus/gleaner.rules.yml");
    let names = words(&rules, "gleaner_");
    assert!(names.contains("gleaner_halts_total") && names.contains("gleaner_stolen_seconds_total"), "{names:?}");
    for name in names {
        assert!(is_served(name), "{name} is no sample");
    }
    for name in words(&rules, "gleaner:") {
        assert!(rules.contains(&format!("- record: {name}\n")), "{name} is recorded by no rule");
    }
}

#[test]
fn the_dashboard_asks_for_what_is_served_or_recorded() {
    let dashboard: Value = serde_json::from_str(&text("grafana/gleaner.json")).unwrap();
    let rules = text("prometheus/gleaner.rules.yml");
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    let panels = dashboard["panels"].as_array().unwrap().len();
    assert!(panels > 10 && all.len() > panels, "{all:?}");
    for query in all {
        for name in words(&query, "gleaner_") {
            assert!(is_served(name), "{name} in {query}");
        }
        for name in words(&query, "gleaner:") {
            assert!(rules.contains(&format!("- record: {name}\n")), "{name} in {query}");
        }
    }
}

#[test]
fn each_sample_is_on_the_dashboard() {
    let dashboard = text("grafana/gleaner.json");
    let rules = text("prometheus/gleaner.rules.yml");
    let texts = [(&dashboard, "gleaner_"), (&rules, "gleaner_"), (&dashboard, "process_")];
    let shown: BTreeSet<&str> = texts.into_iter().flat_map(|(text, prefix)| words(text, prefix)).collect();
    for metric in METRICS {
        assert!(shown.contains(metric.sample_name().as_str()), "{} is shown nowhere", metric.sample_name());
    }
}

#[test]
fn promtool_reads_the_alert_rules() {
    let rules = packaging("prometheus/gleaner.rules.yml");
    let Ok(checked) = Command::new("promtool").args(["check", "rules"]).arg(rules).output() else {
        gleaner_testing::skip!("needs promtool");
    };
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}
