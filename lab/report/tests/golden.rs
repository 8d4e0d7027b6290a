//! The laboratory's JSON and its plain words, held still by golden files (`snapshots/`).
//!
//! `cargo insta review` shows a change, or set `INSTA_UPDATE=always`.

#[path = "../../../crates/report/tests/support/keys.rs"]
mod keys;
#[path = "golden/reproduction.rs"]
mod reproduction;
#[path = "golden/sim.rs"]
mod sim;

use keys::{has, units_are_named};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::fmt::{Debug, Display};

/// Compares JSON and text with their golden files; checks what holds for every schema.
fn check<T: Serialize + DeserializeOwned + Display + PartialEq + Debug>(name: &str, report: &T) -> Value {
    let json = serde_json::to_string_pretty(report).unwrap();
    let text = report.to_string();
    insta::assert_snapshot!(format!("{name}.json"), json);
    insta::assert_snapshot!(format!("{name}.txt"), text);
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), report, "what was written is read back");
    assert!(json.trim_start_matches(|c: char| c == '{' || c.is_whitespace()).starts_with("\"schema\""), "schema first");
    for word in ["NaN", "inf", "null", "None", "Some("] {
        assert!(!text.contains(word), "{word:?} is no plain word: {text}");
    }
    serde_json::from_str(&json).unwrap()
}
