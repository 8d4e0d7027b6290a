//! `gleaner.workload/1`.

use super::{check, has, units_are_named};
use gleaner_report::{LatencyReport, WorkloadReport};
use serde_json::Value;

fn workload() -> WorkloadReport {
    let latency = |p50_ns: u64| LatencyReport {
        n: 19_998,
        mean_ns: p50_ns as f64 * 1.25,
        p50_ns,
        p90_ns: 2 * p50_ns,
        p99_ns: 9 * p50_ns,
        p999_ns: 30 * p50_ns,
        max_ns: 100 * p50_ns,
    };
    WorkloadReport {
        schema: WorkloadReport::SCHEMA.into(),
        name: "open-loop".into(),
        threads: 4,
        threads_total: 4,
        granularity_ns: 20_000,
        granularity_iterations: 10_000,
        seed: 1,
        items: 20_000,
        wall_ns: 20_000_500_000,
        items_per_second: 999.975,
        checksum: "00c0ffee12345678".into(),
        ended_by: "items".into(),
        latency: Some(latency(80_000)),
        holding: Some(latency(700)),
        send_delay: Some(latency(6_000)),
        errors: Some(2),
        voluntary_switches: 40_010,
        involuntary_switches: 12,
        cpu_time_ns: 1_500_000_000,
    }
}

#[test]
fn workload_whole() {
    let json = check("workload_whole", &workload());
    has(
        &json,
        &[
            "name",
            "threads",
            "granularity_ns",
            "items",
            "wall_ns",
            "items_per_second",
            "checksum",
            "latency.p50_ns",
            "latency.p90_ns",
            "latency.p99_ns",
            "latency.p999_ns",
            "latency.max_ns",
            "errors",
            "voluntary_switches",
            "involuntary_switches",
            "cpu_time_ns",
        ],
    );
    let counts = [
        "threads",
        "threads_total",
        "granularity_iterations",
        "seed",
        "items",
        "items_per_second",
        "n",
        "errors",
        "voluntary_switches",
        "involuntary_switches",
    ];
    units_are_named(&json, &counts);
}

#[test]
fn workload_unknown() {
    let report = WorkloadReport {
        name: "matmul".into(),
        ended_by: "time".into(),
        latency: None,
        holding: None,
        send_delay: None,
        errors: None,
        ..workload()
    };
    let json = check("workload_unknown", &report);
    for key in ["latency", "send_delay", "errors"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
}
