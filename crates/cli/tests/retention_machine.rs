//! Retention retains, end to end: the same program with and without it, in turn, on this machine's own vCPUs.

mod common;

use common::{GLEANER, finish, run};
use serde_json::Value;

/// A chain of two threads that wait for each other all the time, each pinned nowhere.
fn relay(policy: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut command = run(["--policy", policy, "--observer", "bpf", "--no-trial", "--quiet", "--json"]);
    command.arg(&file).args(["--", GLEANER, "workload", "relay", "--threads", "2", "--for", "1s"]);
    finish(&mut command).with_status(0);
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

fn per_s(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap() / report["wall_ns"].as_f64().unwrap() * 1e9
}

/// The middle one of three.
fn median(reports: &[Value], of: impl Fn(&Value) -> f64) -> f64 {
    let mut all: Vec<f64> = reports.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn idle_periods_are_retained_and_end_sooner_on_this_machine() {
    let probe = finish(&mut run(["--observer", "bpf", "--policy", "observe", "--quiet", "--", "true"]));
    if probe.status != Some(0) {
        gleaner_testing::skip!("needs BPF: {}", probe.stderr);
    }
    let pairs: Vec<[Value; 2]> = (0..3).map(|_| ["observe", "retain"].map(relay)).collect();
    let [without, with] = [0, 1].map(|way| pairs.iter().map(|pair| pair[way].clone()).collect::<Vec<Value>>());
    let halts = |reports: &[Value]| median(reports, |report| per_s(report, "halts"));
    if halts(&without) < 100.0 {
        gleaner_testing::skip!("needs idle vCPUs that halt: {:.0} halts/s", halts(&without));
    }
    for report in &with {
        assert!(report["retained_ns"].as_u64() > Some(0), "{report:#}");
    }
    assert!(without.iter().all(|report| report["retained_ns"] == 0), "{without:#?}");
    assert!(halts(&with) < halts(&without) / 2.0, "{:.0} halts/s, {:.0} without", halts(&with), halts(&without));
    let wakeup =
        |reports: &[Value]| median(reports, |report| report["lengths"]["wake_to_run"]["p50_ns"].as_f64().unwrap());
    assert!(wakeup(&with) < wakeup(&without), "{} ns, {} without", wakeup(&with), wakeup(&without));
}
