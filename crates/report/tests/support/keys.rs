//! The keys of a JSON object, and what holds for all of them.

use serde_json::Value;

/// Every key there is, with the path to it; `[]` for the elements of an array.
fn keys(value: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                into.push(path.clone());
                walk(value, &path, into);
            }),
            Value::Array(all) => all.iter().for_each(|value| walk(value, &format!("{path}[]"), into)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    walk(value, "", &mut all);
    all.sort();
    all.dedup();
    all
}

/// Durations and ratios say their unit, in every number's key.
pub fn units_are_named(json: &Value, plain: &[&str]) {
    fn numbers(value: &Value, key: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| numbers(value, key, into)),
            Value::Array(all) => all.iter().for_each(|value| numbers(value, key, into)),
            Value::Number(_) => into.push(key.to_owned()),
            _ => {}
        }
    }
    let mut all = Vec::new();
    numbers(json, "", &mut all);
    for key in all {
        let unit =
            key.ends_with("_ns") || key.ends_with("_ns_mean") || key.ends_with("_ratio") || key.ends_with("_bytes");
        assert!(unit || plain.contains(&key.as_str()), "{key} has no unit");
    }
}

pub fn has(json: &Value, wanted: &[&str]) {
    let all = keys(json);
    for key in wanted {
        assert!(all.iter().any(|found| found == key), "the design's {key} is not in {all:?}");
    }
}
