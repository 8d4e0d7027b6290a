//! `gleaner.sweep/1`.

use super::{check, has};
use gleaner_lab_report::{SweepParameter, SweepReport};
use serde_json::{Map, Value, json};

fn row(point: u64, slice_ns: u64, policy: &str, seed: u64, items_per_s: f64) -> Map<String, Value> {
    let row = json!({
        "point": point, "simulator.slice_ns": slice_ns, "scenario": "small", "seed": seed, "vm": "app",
        "role": "measured", "workload": "relay", "beside": "nothing",
        "policy": policy, "complete": seed != 8, "items_per_s": items_per_s,
        "timeout_ns": if policy == "off" { Value::Null } else { 49_000.into() },
    });
    row.as_object().cloned().unwrap_or_default()
}

fn sweep() -> SweepReport {
    SweepReport {
        stopped_by: None,
        schema: SweepReport::SCHEMA.into(),
        scenario: "small".into(),
        seed: 7,
        seeds: 2,
        parameters: vec![SweepParameter {
            key: "simulator.slice".into(),
            column: "simulator.slice_ns".into(),
            values: vec![30_000_000.into(), 1_000_000.into()],
        }],
        folder: "slices".into(),
        shard: Some("1/2".into()),
        points: 8,
        points_here: 4,
        points_simulated: 1,
        points_missing: 4,
        rows: vec![
            row(0, 30_000_000, "off", 7, 1_000.0),
            row(2, 30_000_000, "full", 7, 1_500.0),
            row(4, 1_000_000, "off", 7, 1_100.0),
            row(5, 1_000_000, "off", 8, 1_300.0),
        ],
    }
}

#[test]
fn sweep_whole() {
    let json = check("sweep_whole", &sweep());
    has(&json, &["parameters[].column", "points_missing", "rows[].point", "rows[].simulator.slice_ns"]);
}

#[test]
fn sweep_unknown() {
    let report = SweepReport { parameters: Vec::new(), shard: None, points_missing: 0, rows: Vec::new(), ..sweep() };
    let json = check("sweep_unknown", &report);
    assert_eq!(json.get("shard"), Some(&Value::Null));
}
