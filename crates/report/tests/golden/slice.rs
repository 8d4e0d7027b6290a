//! `gleaner.slice/1`.

use super::{check, units_are_named};
use gleaner_report::{SliceCpu, SliceReport, SliceThread};
use serde_json::Value;

/// Numbers without a unit: ids and counts.
const PLAIN: &[&str] =
    &["delivered_n", "tid", "vcpu", "nice", "preempted_n", "slept_n", "cpu", "ticks", "stretched", "exit_status"];

fn thread(tid: i32, vcpu: u32) -> SliceThread {
    SliceThread {
        tid,
        name: format!("CPU {vcpu}/KVM"),
        vm: Some("web".into()),
        vcpu: Some(vcpu),
        policy: "other".into(),
        nice: 0,
        was_ns: Some(2_800_000),
        set_ns: Some(1_000_000),
        ended: false,
        run_ns: 2_480_000_000,
        wait_ns: 2_510_000_000,
        preempted_n: Some(2_481),
        delivered_p50_ns: Some(999_424),
        delivered_p90_ns: Some(1_015_808),
        slept_n: Some(12),
        slept_p50_ns: Some(120_320),
        wake_to_run_p50_ns: Some(9_344),
        wake_to_run_p99_ns: Some(987_136),
        latency_p50_ns: Some(1_015_808),
        latency_p99_ns: Some(1_040_384),
    }
}

fn whole() -> SliceReport {
    SliceReport {
        schema: SliceReport::SCHEMA.into(),
        requested_ns: 1_000_000,
        delivered_p50_ns: Some(999_424),
        delivered_p90_ns: Some(1_015_808),
        delivered_mean_ns: Some(998_012),
        delivered_n: Some(4_962),
        method: "ticker".into(),
        enforcement_cpu_ratio: Some(0.0061),
        asking_cpu_ratio: Some(0.002),
        observer: "bpf".into(),
        wall_ns: 5_000_000_000,
        base_slice_ns: Some(2_800_000),
        switch_cost_ns: Some(1_100),
        threads: vec![thread(4_012, 0), SliceThread { ended: true, ..thread(4_013, 1) }],
        cpus: vec![SliceCpu { cpu: 1, ticks: 4_998, cpu_ratio: 0.0061, awake_ratio: 0.9998, stretched: 1 }],
        command: vec!["./measure".into()],
        exit_status: Some(0),
        notes: vec!["1 of 2 threads ended meanwhile".into()],
        restored: true,
    }
}

#[test]
fn slice_whole() {
    let json = check("slice_whole", &whole());
    units_are_named(&json, PLAIN);
}

#[test]
fn slice_unknown() {
    let unknown = SliceThread {
        vm: None,
        vcpu: None,
        was_ns: None,
        set_ns: None,
        preempted_n: None,
        delivered_p50_ns: None,
        delivered_p90_ns: None,
        slept_n: None,
        slept_p50_ns: None,
        wake_to_run_p50_ns: None,
        wake_to_run_p99_ns: None,
        latency_p50_ns: None,
        latency_p99_ns: None,
        ..thread(4_012, 0)
    };
    let report = SliceReport {
        delivered_p50_ns: None,
        delivered_p90_ns: None,
        delivered_mean_ns: None,
        delivered_n: None,
        method: "hrtick".into(),
        enforcement_cpu_ratio: None,
        asking_cpu_ratio: None,
        observer: "procfs".into(),
        base_slice_ns: None,
        switch_cost_ns: None,
        threads: vec![unknown],
        cpus: vec![],
        command: vec![],
        exit_status: None,
        notes: vec![],
        ..whole()
    };
    let json = check("slice_unknown", &report);
    for key in ["delivered_p50_ns", "enforcement_cpu_ratio", "base_slice_ns", "exit_status"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
    units_are_named(&json, PLAIN);
}

#[test]
fn what_enforced_it_is_said() {
    for (method, cpus, words) in [
        ("hrtick", vec![], "The kernel enforces it"),
        ("none", vec![], "It was not enforced"),
        ("ticker", vec![], "No ticker was needed"),
        ("ticker", whole().cpus, "Ticker on CPU 1: 0.61 % of the CPU"),
    ] {
        let said = SliceReport { method: method.into(), cpus, ..whole() }.to_string();
        assert!(said.contains(words), "{method}: {said}");
    }
}
