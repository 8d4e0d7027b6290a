//! `gleaner.scenario/1`: the contract, held still by golden files, and what its summary computes.

use gleaner_report::{
    BackgroundRate, HostFacts, LatencyReport, RatioSpread, RunFigures, ScenarioReport, ScenarioRow, ScenarioRun,
    SoloRun, VmFacts,
};
use serde_json::{Value, json};

fn figures() -> RunFigures {
    RunFigures {
        retained_ns: 350_000_000,
        halts: Some(2_000),
        idle_entries: Some(18_000),
        active_vcpus_mean: 1.5,
        guard_trips: 1,
        cpu_time_ns: Some(900_000_000),
        voluntary_switches: Some(20_000),
        steal_ns: None,
        timeout_ns: Some(1_250_000),
        overhead_cpu_ns: 4_000_000,
        decisions: 3,
        warnings: vec!["the guardian process died and was replaced".into()],
        restored: true,
    }
}

/// A run of `app` in a round: how long it took, beside what at which rate.
fn run(round: u32, policy: &str, wall_ms: u64, beside: Option<(&str, f64)>) -> ScenarioRun {
    let (workload, rate) = beside.map_or(("nothing", None), |(workload, rate)| (workload, Some(rate)));
    ScenarioRun {
        round,
        warmup: false,
        order: 0,
        vm: "app".into(),
        workload: "pipeline".into(),
        policy: policy.into(),
        slice: None,
        delivered: None,
        background: vec![BackgroundRate { vm: "near".into(), workload: workload.into(), items_per_second: rate }],
        at_ns: u64::from(round) * 5_000_000_000,
        wall_ns: Some(wall_ms * 1_000_000),
        host_wall_ns: wall_ms * 1_000_000 + 3_000_000,
        items_per_second: Some(1e6 / wall_ms as f64),
        latency: None,
        holding: None,
        exit_status: 0,
        checksum: Some("90c8".into()),
        host_cpu_ns: Some(800_000_000),
        output: None,
        left_behind: vec![],
        run: Some(figures()),
    }
}

fn report(runs: Vec<ScenarioRun>) -> ScenarioReport {
    let vm = |vm: &str, role: &str, balanced_ns| VmFacts {
        vm: vm.into(),
        role: role.into(),
        vcpus: 2,
        kernel: "6.1.0-50-cloud-amd64".into(),
        boot_ns: 5_000_000_000,
        boots: 1,
        frugal_ns: balanced_ns,
        balanced_ns,
    };
    let solo = |round, items_per_second| SoloRun {
        round,
        warmup: false,
        vm: "near".into(),
        workload: "matmul".into(),
        at_ns: u64::from(round) * 5_000_000_000 + 1_000_000_000,
        items_per_second,
    };
    let mut report = ScenarioReport {
        schema: ScenarioReport::SCHEMA.into(),
        name: "contended".into(),
        description: "What does a neighbour cost?".into(),
        host: HostFacts {
            cpus: 2,
            kernel: "6.18.0".into(),
            accelerator: "tcg".into(),
            qemu: "7.2.22".into(),
            date: "2026-11-21T23:53:44Z".into(),
        },
        scenario: json!({ "name": "contended" }),
        incomplete: None,
        vms: vec![vm("app", "measured", Some(1_250_000)), vm("near", "background", None)],
        runs,
        solos: vec![solo(0, Some(400.0)), solo(1, Some(400.0))],
        summary: vec![],
    };
    report.summary = report.summarize();
    report
}

/// Off 1 s, full 0.5 s alone; beside matmul, which then gets half of its own, 4 s and 2 s.
fn whole() -> ScenarioReport {
    let beside = Some(("matmul", 200.0));
    let runs = (0..6).flat_map(|round| {
        [
            run(round, "off", 1_000, None),
            run(round, "full", 500, None),
            run(round, "off", 4_000, beside),
            run(round, "full", 2_000, beside),
        ]
    });
    report(runs.collect())
}

fn row<'a>(report: &'a ScenarioReport, background: &str, policy: &str) -> &'a ScenarioRow {
    let found = |row: &&ScenarioRow| row.background == background && row.policy == policy;
    report.summary.iter().find(found).unwrap_or_else(|| panic!("{background} {policy} in {:?}", report.summary))
}

fn check(name: &str, report: &ScenarioReport) -> Value {
    let json = serde_json::to_string_pretty(report).unwrap();
    let text = report.to_string();
    insta::assert_snapshot!(format!("{name}.json"), json);
    insta::assert_snapshot!(format!("{name}.txt"), text);
    assert_eq!(&serde_json::from_str::<ScenarioReport>(&json).unwrap(), report, "what was written is read back");
    assert!(json.starts_with("{\n  \"schema\""), "schema first");
    for word in ["NaN", "inf", "null", "None", "Some("] {
        assert!(!text.contains(word), "{word:?} is no plain word: {text}");
    }
    serde_json::from_str(&json).unwrap()
}

#[test]
fn scenario_whole() {
    let mut report = whole();
    // Enough for the golden file: one round.
    report.runs.retain(|run| run.round == 0);
    report.runs[0].latency = Some(LatencyReport {
        n: 100,
        mean_ns: 2e6,
        p50_ns: 1_000_000,
        p90_ns: 2_000_000,
        p99_ns: 3_000_000,
        p999_ns: 4_000_000,
        max_ns: 5_000_000,
    });
    check("scenario_whole", &report);
}

#[test]
fn scenario_unknown() {
    let failed = ScenarioRun {
        wall_ns: None,
        items_per_second: None,
        exit_status: 127,
        checksum: None,
        host_cpu_ns: None,
        output: Some("sh: pipelin: not found".into()),
        left_behind: vec!["/run/gleaner/812-99.journal".into()],
        run: None,
        ..run(0, "off", 1, None)
    };
    let mut report = report(vec![failed]);
    report.incomplete = Some("interrupted".into());
    let json = check("scenario_unknown", &report);
    for key in ["wall_ns", "items_per_second", "latency", "checksum", "host_cpu_ns", "run"] {
        assert_eq!(json["runs"][0].get(key), Some(&Value::Null), "{key}");
    }
    let row = &json["summary"][0];
    assert_eq!((&row["n"], &row["failed"], &row["speedup"]), (&json!(0), &json!(1), &Value::Null));
}

#[test]
fn pairs_are_of_the_same_round() {
    // Rounds drift by a factor of ten; within each, full takes half of the time.
    let runs = (0..6).flat_map(|round| {
        let off = 100 * (1 + 2 * u64::from(round));
        [run(round, "off", off, None), run(round, "full", off / 2, None)]
    });
    let mut report = report(runs.collect());
    let speedup = row(&report, "alone", "full").speedup.unwrap();
    assert!((speedup.median - 2.0).abs() < 1e-9 && speedup.n == 6, "{speedup:?}");
    let [low, high] = speedup.ci95.unwrap();
    assert!(low > 1.9 && high < 2.1, "{speedup:?}");
    assert_eq!(row(&report, "alone", "off").speedup, None);
    // A round without its pair gives no ratio.
    report.runs.retain(|run| run.round > 0 || run.policy == "full");
    report.summary = report.summarize();
    assert_eq!(row(&report, "alone", "full").speedup.unwrap().n, 5);
    assert_eq!(row(&report, "alone", "full").n, 6);
}

#[test]
fn warm_up_and_failures_are_left_out() {
    let mut report = whole();
    for run in report.runs.iter_mut().filter(|run| run.round == 0) {
        (run.warmup, run.wall_ns) = (true, Some(1));
    }
    for run in report.runs.iter_mut().filter(|run| run.round == 1 && run.policy == "full") {
        run.exit_status = 1;
    }
    report.summary = report.summarize();
    let full = row(&report, "alone", "full");
    assert_eq!((full.n, full.failed, full.wall_ns_median), (4, 1, Some(5e8)));
    assert_eq!(full.speedup.unwrap().n, 4);
}

#[test]
fn weighted_speedup_is_the_sum_of_what_each_gets_done_relative_to_alone() {
    let report = whole();
    let weighted = |background, policy| row(&report, background, policy).weighted_speedup.unwrap().median;
    // 1/4 of its own + 1/2 of the neighbour's; twice the first with full.
    assert!((weighted("near: matmul", "off") - 0.75).abs() < 1e-9);
    assert!((weighted("near: matmul", "full") - 1.0).abs() < 1e-9);
    assert!((weighted("alone", "full") - 2.0).abs() < 1e-9);
    let neighbour = row(&report, "near: matmul", "full").neighbour_speedup.unwrap();
    assert!((neighbour.median - 1.0).abs() < 1e-9, "{neighbour:?}");
    assert_eq!(row(&report, "alone", "full").neighbour_speedup.map(|of| of.n), None);
    // Without the neighbour's solo runs it is unknown, not smaller.
    let mut without = whole();
    without.solos.clear();
    without.summary = without.summarize();
    assert_eq!(row(&without, "near: matmul", "off").weighted_speedup, None);
}

#[test]
fn beside_another_measured_vm_nobody_is_alone() {
    let mut report = whole();
    let others: Vec<ScenarioRun> =
        report.runs.iter().map(|run| ScenarioRun { vm: "two".into(), ..run.clone() }).collect();
    report.runs.extend(others);
    report.summary = report.summarize();
    assert!(report.summary.iter().all(|row| row.weighted_speedup.is_none()), "{:?}", report.summary);
}

/// Per slice and policy a row; against `off` of the same slice, and against the first slice of the same policy.
#[test]
fn slices_are_compared_with_the_scenarios_first() {
    let of = |slice: &str, policy, wall_ms| ScenarioRun { slice: Some(slice.into()), ..run(0, policy, wall_ms, None) };
    let mut report = report(vec![
        of("1ms", "off", 500),
        of("kernel", "full", 2_000),
        of("kernel", "off", 4_000),
        of("1ms", "full", 400),
    ]);
    report.scenario = serde_json::json!({"machine": {"slices": ["kernel", "1ms"]}});
    let rows = report.summarize();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let ratio = |spread: Option<RatioSpread>| spread.map(|spread| (spread.median * 100.0).round() / 100.0);
            (row.slice.as_deref().unwrap(), &*row.policy, ratio(row.speedup), ratio(row.slice_speedup))
        })
        .collect();
    let expected = [
        ("kernel", "off", None, None),
        ("kernel", "full", Some(2.0), None),
        ("1ms", "off", None, Some(8.0)),
        ("1ms", "full", Some(1.25), Some(5.0)),
    ];
    assert_eq!(told, expected);
    report.summary = rows;
    let text = report.to_string();
    assert!(text.contains("by slice") && text.contains("8.00"), "{text}");
}
