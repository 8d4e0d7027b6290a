//! `gleaner.ab/1`.

use super::{check, has, units_are_named};
use gleaner_report::{
    AbComparison, AbMachine, AbMedians, AbMetric, AbMode, AbReport, AbRun, AbSideCosts, AbSpeedup, AbSpread,
};
use serde_json::Value;

/// Numbers that are counts, or have the metric's unit.
const PLAIN: &[&str] = &[
    "runs",
    "outliers",
    "metric",
    "voluntary_switches",
    "involuntary_switches",
    "active_vcpus_mean",
    "pairs_planned",
    "pairs",
    "warmups",
    "shuffle_seed",
    "vcpus",
    "pair",
    "order",
    "guard_trips",
    "exit_status",
    "metric_mean",
    "metric_deviation",
    // A ratio by its object's name: `speedup`.
    "median",
    "ci95",
];

fn ab_run(mode: &str, pair: u64, order: u64, wall_ns: u64) -> AbRun {
    let managed = mode == "full";
    AbRun {
        mode: mode.into(),
        pair,
        order,
        wall_ns,
        metric: None,
        cpu_time_ns: if managed { 3_900_000_000 } else { 3_100_000_000 },
        retained_ns: if managed { 700_000_000 } else { 0 },
        steal_ns: Some(12_000_000),
        voluntary_switches: if managed { 15_000 } else { 20_000 },
        involuntary_switches: 300,
        guard_trips: u64::from(managed && pair == 2),
        active_vcpus_mean: if managed { 3.25 } else { 4.0 },
        exit_status: 0,
        outlier: wall_ns > 5_000_000_000,
    }
}

fn mode(mode: &str, outliers: u64, wall_ns: u64) -> AbMode {
    let run = ab_run(mode, 1, 1, wall_ns);
    let median = AbMedians {
        wall_ns,
        metric: None,
        cpu_time_ns: run.cpu_time_ns,
        retained_ns: run.retained_ns,
        steal_ns: run.steal_ns,
        voluntary_switches: run.voluntary_switches,
        involuntary_switches: run.involuntary_switches,
        active_vcpus_mean: run.active_vcpus_mean,
    };
    let spread = AbSpread {
        wall_ns_mean: wall_ns + 10_000_000,
        wall_deviation_ns: Some(20_000_000),
        metric_mean: None,
        metric_deviation: None,
    };
    AbMode { mode: mode.into(), runs: 5, outliers, median: Some(median), spread: Some(spread) }
}

fn ab() -> AbReport {
    let walls = [(2_000, 1_650), (2_040, 1_640), (2_010, 1_660), (6_100, 1_655), (1_990, 1_610)];
    let pair = |(pair, (off, full)): (u64, (u64, u64))| {
        [ab_run("full", pair, 1, full * 1_000_000), ab_run("off", pair, 2, off * 1_000_000)]
    };
    AbReport {
        schema: AbReport::SCHEMA.into(),
        command: vec!["pbzip2".into(), "-k".into(), "big.tar".into()],
        modes: vec![mode("off", 1, 2_010_000_000), mode("full", 0, 1_650_000_000)],
        profile: "balanced".into(),
        metric: None,
        pairs_planned: 5,
        pairs: 5,
        warmups: 1,
        shuffle_seed: 42,
        machine: AbMachine { kernel: "6.18.0".into(), vcpus: 4 },
        runs: (1..).zip(walls).flat_map(pair).collect(),
        speedup: Some(AbSpeedup { median: 1.236, ci95: Some([1.021, 4.21]), pairs: 5 }),
        verdict: "helps".into(),
        verdict_withheld: None,
        pairs_to_tell: None,
        told_verdict: "helps".into(),
        further: Vec::new(),
        side_costs: AbSideCosts {
            cpu_time_ratio: Some(1.258),
            cpu_time_less_retained_ratio: Some(1.03),
            voluntary_switches_ratio: Some(0.75),
            involuntary_switches_ratio: Some(1.0),
            retained_ns: Some(700_000_000),
            retained_ratio: Some(0.106),
        },
        incomplete: None,
        notes: vec!["the host was short of CPUs: times the contention guard stopped a yielding thread: 1".into()],
    }
}

#[test]
fn ab_whole() {
    let metric = AbMetric {
        name: "transactions/s".into(),
        regex: r"transactions: .*\(([0-9.]+) per sec".into(),
        better: "higher".into(),
    };
    let mut report = AbReport { metric: Some(metric), ..ab() };
    for run in &mut report.runs {
        run.metric = Some((2e12 / run.wall_ns as f64).round());
    }
    for median in report.modes.iter_mut().filter_map(|mode| mode.median.as_mut()) {
        median.metric = Some((2e12 / median.wall_ns as f64).round());
    }
    for spread in report.modes.iter_mut().filter_map(|mode| mode.spread.as_mut()) {
        (spread.metric_mean, spread.metric_deviation) = (Some(1_000.0), Some(20.0));
    }
    let json = check("ab_whole", &report);
    has(
        &json,
        &[
            "runs[].mode",
            "runs[].wall_ns",
            "runs[].steal_ns",
            "speedup.median",
            "speedup.ci95",
            "verdict",
            "incomplete",
        ],
    );
    units_are_named(&json, PLAIN);
    assert_eq!(json["speedup"]["ci95"].as_array().map(Vec::len), Some(2));
    has(&json, &["modes[].spread.wall_ns_mean", "modes[].spread.metric_deviation", "told_verdict"]);
}

#[test]
fn ab_of_wall_time() {
    check("ab_of_wall_time", &ab());
    let close = AbSpeedup { median: 1.021, ci95: Some([0.997, 1.045]), pairs: 10 };
    let text = AbReport { speedup: Some(close), verdict: "no difference".into(), ..ab() }.to_string();
    let verdict = "full is 2.1 % faster than off, 95 % interval 0.3 % slower to 4.5 % faster: no difference.";
    assert!(text.contains(verdict), "{text}");
    let wide = AbSpeedup { median: 0.9, ci95: Some([0.47, 1.57]), pairs: 10 };
    let wide = AbReport { speedup: Some(wide), verdict: "no difference".into(), pairs_to_tell: Some(330), ..ab() };
    let verdict = "full is 10.0 % slower than off, 95 % interval 0.47 times as fast to 1.57 times as fast: \
                   inconclusive; about 330 pairs would tell.";
    assert!(wide.to_string().contains(verdict), "{wide}");
    assert_eq!((wide.told_verdict(), &*wide.verdict), ("inconclusive", "no difference"));
}

#[test]
fn ab_unknown() {
    let mut report = AbReport {
        runs: ab().runs.into_iter().take(1).collect(),
        modes: vec![
            AbMode { mode: "off".into(), runs: 0, outliers: 0, median: None, spread: None },
            mode("full", 0, 1_650_000_000),
        ],
        pairs: 0,
        speedup: None,
        verdict: "no difference".into(),
        verdict_withheld: Some("no pair of runs is complete and has a ratio".into()),
        told_verdict: "inconclusive".into(),
        side_costs: AbSideCosts::default(),
        incomplete: Some("the command ended with status 3 in pair 1, mode off".into()),
        notes: vec![],
        ..ab()
    };
    report.runs[0].steal_ns = None;
    let json = check("ab_unknown", &report);
    for key in ["metric", "speedup"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
    assert_eq!(json["modes"][0].get("median"), Some(&Value::Null));
    assert_eq!(json["runs"][0].get("steal_ns"), Some(&Value::Null));
    assert_eq!(json["side_costs"].get("cpu_time_ratio"), Some(&Value::Null));
}

#[test]
fn ab_with_more_pairs_than_are_printed() {
    let pairs = |n: u64| {
        (1..=n).flat_map(|pair| [ab_run("off", pair, 1, 2_000_000_000), ab_run("full", pair, 2, 2_000_000_000)])
    };
    let mut runs: Vec<AbRun> = pairs(30).collect();
    runs[49].outlier = true;
    let text = AbReport { runs, ..ab() }.to_string();
    let shown = |pair: u64| text.lines().any(|line| line.trim_start().starts_with(&format!("{pair} ")));
    assert!(shown(20) && !shown(21) && shown(25) && !shown(30) && text.contains("2.00s*"), "{text}");
}

fn three() -> AbReport {
    let mut report = ab();
    report.modes.push(mode("retain", 0, 1_900_000_000));
    for pair in 1..=5 {
        report.runs.push(ab_run("retain", pair, 3, 1_900_000_000));
    }
    report.further.push(AbComparison {
        mode: "retain".into(),
        speedup: Some(AbSpeedup { median: 1.058, ci95: Some([0.9, 1.3]), pairs: 5 }),
        verdict: "no difference".into(),
        verdict_withheld: None,
        pairs_to_tell: Some(40),
        side_costs: AbSideCosts { cpu_time_ratio: Some(1.1), ..AbSideCosts::default() },
    });
    report
}

#[test]
fn three_modes_are_each_compared_with_the_first() {
    let report = three();
    let text = report.to_string();
    for words in [
        "5 rounds of off, full and retain, in random order within rounds",
        "full is 23.6 % faster than off, ",
        ": full helps.\n",
        "retain is 5.8 % faster than off, 95 % interval 10.0 % slower to 30.0 % faster: inconclusive; about 40 pairs",
        "speedup of retain",
        "full/off",
        "retain/off",
        "mean wall time, with its standard deviation: off 2.02s ± 20.0ms, full ",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let row = text.lines().find(|line| line.trim_start().starts_with("CPU time")).unwrap();
    assert!(row.contains("3.90s") && row.contains("1.26") && row.ends_with("1.00"), "of what stands there: {row}");
    assert_eq!(report.verdicts().collect::<Vec<_>>(), ["helps", "no difference"]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["further"][0]["mode"], "retain");
    assert!(serde_json::to_value(ab()).unwrap().get("further").is_none());
}

#[test]
fn csv_has_every_run_and_markdown_every_mode() {
    let mut report = three();
    report.runs[0].steal_ns = None;
    let csv = report.csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + report.runs.len());
    assert_eq!(lines[1], "full,1,1,1650000000,,3900000000,700000000,,15000,300,0,3.25,0,false");
    assert!(lines.iter().all(|line| line.split(',').count() == 14), "{csv}");
    assert_eq!(
        report.markdown().lines().skip(2).collect::<Vec<_>>(),
        [
            "| off | 5 | 2.01s | 2.02s ± 20.0ms | - | - | - |",
            "| full | 5 | 1.65s | 1.66s ± 20.0ms | 1.236 | 1.021 to 4.210 | helps |",
            "| retain | 5 | 1.90s | 1.91s ± 20.0ms | 1.058 | 0.900 to 1.300 | inconclusive |",
        ]
    );
}
