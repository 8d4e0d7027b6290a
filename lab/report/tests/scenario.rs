//! `gleaner.scenario/1`: the contract, held still by golden files, and what its summary computes.

use gleaner_lab_report::{
    BackgroundRate, HostFacts, InTurnRun, InTurnSlice, InTurnVm, MetricFound, MetricMedian, RatioSpread, RunFigures,
    ScenarioReport, ScenarioRow, ScenarioRun, SliceTurn, SoloRun, VmFacts,
};
use gleaner_report::LatencyReport;
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
        metric: None,
        latency: None,
        holding: None,
        exit_status: 0,
        failure: None,
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
        in_turn: vec![],
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

/// Two runs of six passes: the second VM gets twice as much done at 1 ms, the first as much.
#[test]
fn slices_in_turn_are_compared_within_their_pass() {
    let turn = |pass: u32, slice: &str, rates: [f64; 2]| SliceTurn {
        pass,
        slice: slice.into(),
        at_ns: u64::from(pass) * 3_000_000_000,
        length_ns: 1_000_000_000,
        items_per_second: rates.map(Some).to_vec(),
    };
    let run = |round: u32| InTurnRun {
        round,
        warmup: false,
        order: 0,
        vms: ["one", "two"].map(|vm| InTurnVm { vm: vm.into(), workload: "barrier".into() }).to_vec(),
        slices: [("30ms", 30_000_000), ("1ms", 1_000_000)]
            .map(|(slice, ns)| InTurnSlice {
                slice: slice.into(),
                p50_ns: Some(ns),
                p90_ns: Some(ns),
                wake_to_run_p99_ns: Some(ns),
            })
            .to_vec(),
        chosen_ns: None,
        changes: None,
        agent_cpu_ratio: 0.004,
        // Faster from pass to pass, which is nobody's doing.
        turns: (0..6)
            .flat_map(|pass| {
                let speed = f64::from(1 + pass);
                [turn(pass, "30ms", [100.0 * speed, 50.0 * speed]), turn(pass, "1ms", [100.0 * speed, 100.0 * speed])]
            })
            .collect(),
    };
    let report = ScenarioReport { in_turn: vec![run(0), run(1)], ..report(vec![]) };
    let text = report.to_string();
    let found = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found(&["one", "1ms", "1.00ms", "12", "350.0", "1.00 [1.00, 1.00]"]), "{text}");
    assert!(found(&["two", "1ms", "2.00 [2.00, 2.00]"]) && found(&["two", "30ms", "175.0"]), "{text}");
    assert!(text.contains("2 rounds") && text.contains("took 4.00ms of CPU time a second"), "{text}");
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ScenarioReport>(&json).unwrap(), report);
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
        failure: Some("it ended with status 127".into()),
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

fn near(spread: Option<RatioSpread>, expected: f64) -> bool {
    spread.is_some_and(|spread| (spread.median - expected).abs() < 1e-9)
}

/// Transactions per second against runs per second have no ratio, nor a place in the medians.
#[test]
fn a_run_whose_metric_was_not_found_is_no_run_by_time() {
    let metric = |value| Some(MetricFound { value, higher_is_better: true });
    let with = |round, policy, value: Option<f64>| ScenarioRun {
        metric: value.and_then(metric),
        items_per_second: value,
        failure: value.is_none().then(|| "its output has no match".to_owned()),
        ..run(round, policy, 1_000, None)
    };
    let mut report = report(vec![
        with(0, "off", Some(100.0)),
        with(0, "full", Some(150.0)),
        with(1, "off", Some(100.0)),
        with(1, "full", None),
        with(2, "off", None),
        with(2, "full", Some(150.0)),
    ]);
    let full = row(&report, "alone", "full");
    assert_eq!((full.n, full.failed, full.speedup.map(|of| of.n)), (2, 1, Some(1)), "{full:?}");
    assert!(near(full.speedup, 1.5), "{full:?}");
    assert_eq!(full.metric, Some(MetricMedian { median: 150.0, higher_is_better: true }));
    // Results of before there was `failure`: by different accounts there is no pair either.
    report.runs.iter_mut().for_each(|run| run.failure = None);
    report.summary = report.summarize();
    let full = row(&report, "alone", "full");
    assert_eq!((full.n, full.speedup.map(|of| of.n)), (3, Some(1)), "{full:?}");
    assert!(near(full.weighted_speedup, 1.5), "alone is by the same account: {full:?}");
}

#[test]
fn less_of_a_latency_is_a_speedup() {
    let of = |round, policy, value| ScenarioRun {
        metric: Some(MetricFound { value, higher_is_better: false }),
        items_per_second: None,
        ..run(round, policy, 1_000, None)
    };
    let runs = (0..6).flat_map(|round| [of(round, "off", 3e6), of(round, "full", 2e6)]);
    let report = report(runs.collect());
    assert!(near(row(&report, "alone", "full").speedup, 1.5), "{:?}", report.summary);
    let text = report.to_string();
    assert!(text.contains("metric (lower is better)") && text.contains("2000000.0"), "{text}");
}

/// Section 7.2.1: the average of both speedups, in a round, and 1 with off.
#[test]
fn system_throughput_is_the_average_of_both_speedups_in_a_round() {
    let runs = (0..6).flat_map(|round| {
        // The machine gets slower from round to round; full is twice as fast and takes two fifths from its neighbour.
        let (off, rate) = (1_000 * (round + 1), 200.0 / f64::from(round + 1));
        let of = |policy, wall, rate| run(round, policy, u64::from(wall), Some(("matmul", rate)));
        [of("off", off, rate), of("full", off / 2, rate * 0.6), run(round, "full", 500, None)]
    });
    let mut report = report(runs.collect());
    let full = row(&report, "near: matmul", "full");
    assert!(near(full.system_throughput, 1.3), "(2 + 0.6) / 2: {full:?}");
    assert!(
        full.system_throughput.is_some_and(|of| of.n == 6 && of.ci95.is_some_and(|[low, _]| low > 1.29)),
        "{full:?}"
    );
    assert_eq!(row(&report, "near: matmul", "off").system_throughput, None);
    assert_eq!(row(&report, "alone", "full").system_throughput, None, "nobody beside");
    // A round whose neighbour is unknown has no part in it.
    report.runs[1].background[0].items_per_second = None;
    report.summary = report.summarize();
    assert_eq!(row(&report, "near: matmul", "full").system_throughput.map(|of| of.n), Some(5));
}

#[test]
fn a_vm_may_be_compared_with_off_in_another() {
    let beside = Some(("matmul", 200.0));
    let runs = (0..6).flat_map(|round| {
        let polls =
            |policy, wall, beside| ScenarioRun { vm: "poll".into(), order: 1, ..run(round, policy, wall, beside) };
        [
            run(round, "off", 1_000, None),
            run(round, "off", 4_000, beside),
            polls("off", 800, None),
            polls("off", 8_000, beside),
        ]
    });
    let mut report = report(runs.collect());
    let of = |report: &ScenarioReport, background: &str| {
        let found = report.summary.iter().find(|row| row.vm == "poll" && row.background == background).unwrap();
        (found.baseline.clone(), found.speedup)
    };
    assert_eq!(of(&report, "alone"), (None, None), "off has nothing to be compared with in its own VM");
    report.scenario = json!({"vm": [{"name": "app"}, {"name": "poll", "baseline": "app"}]});
    report.summary = report.summarize();
    for (background, expected) in [("alone", 1.25), ("near: matmul", 0.5)] {
        let (baseline, speedup) = of(&report, background);
        assert_eq!(baseline.as_deref(), Some("app"));
        assert!(near(speedup, expected) && speedup.unwrap().ci95.is_some(), "{background}: {speedup:?}");
    }
    assert!(
        report.summary.iter().filter(|row| row.vm == "app").all(|row| row.baseline.is_none() && row.speedup.is_none())
    );
    assert!(report.to_string().contains("of VM poll are against off in VM app"), "{report}");
    // What a policy does in its own VM is told too.
    let own = (0..6).map(|round| ScenarioRun { vm: "poll".into(), ..run(round, "full", 400, None) });
    report.runs.extend(own.collect::<Vec<ScenarioRun>>());
    report.summary = report.summarize();
    let full = row(&report, "alone", "full");
    assert!(near(full.speedup, 2.5) && near(full.own_speedup, 2.0), "{full:?}");
    assert!(report.to_string().contains("by own off"), "{report}");
}
