//! The files that go along with the service: each name in them is one that the daemon has.

use gleaner_daemon::METRICS;
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
fn the_queries_of_the_page_ask_for_what_is_served_or_recorded() {
    let page = fs::read_to_string(packaging("../docs/service.md")).unwrap();
    let rules = text("prometheus/gleaner.rules.yml");
    let queries = page.split("```promql\n").nth(1).unwrap().split("```").next().unwrap();
    let names = words(queries, "gleaner_");
    assert!(names.len() >= 5, "{queries}");
    for name in names {
        assert!(is_served(name), "{name} is no sample");
    }
    for name in words(queries, "gleaner:") {
        assert!(rules.contains(&format!("- record: {name}\n")), "{name} is recorded by no rule");
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

/// The value of a key of the unit, without a unit of time.
fn of_unit(key: &str) -> u32 {
    let unit = text("gleaner.service");
    let value = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {key}")).parse().unwrap()
}

/// A configuration that is wrong ends the daemon with status 2 (crates/cli/tests/daemon.rs).
#[test]
fn a_start_that_always_fails_is_not_tried_for_ever() {
    assert_eq!(of_unit("RestartPreventExitStatus"), 2);
    let (burst, within) = (of_unit("StartLimitBurst"), of_unit("StartLimitIntervalSec"));
    assert!(burst * of_unit("RestartSec") < within, "{burst} starts never come within {within} s");
}
