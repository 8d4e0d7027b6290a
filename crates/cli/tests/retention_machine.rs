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

/// Hand-overs say that polling pays: `relay` is faster for it. The counter grows ten times as fast while nobody polls.
#[test]
fn a_progress_figure_decides_on_this_machine() {
    let parameter = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
    let Ok(had) = std::fs::read_to_string(parameter) else {
        gleaner_testing::skip!("needs the haltpoll governor");
    };
    let folder = tempfile::tempdir().unwrap();
    let [file, counter] = ["run.json", "done"].map(|name| folder.path().join(name));
    let script = format!(
        "(i=0; while read now <{parameter}; do
            [ \"$now\" = {had} ] && i=$((i + 1000)) || i=$((i + 100))
            echo $i >{done}.new; mv {done}.new {done}; sleep 0.001
        done) & counter=$!
        {GLEANER} workload relay --threads 2 --for 3s; kill $counter",
        had = had.trim(),
        done = counter.display()
    );
    let retained = |options: &[&str]| {
        let mut command = run(["--policy", "retain", "--retain", "haltpoll", "--quiet", "--json"]);
        command.arg(&file).args(options).args(["--", "sh", "-c", &script]);
        finish(&mut command);
        let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        if report["means"]["retention"] != "haltpoll" {
            return None;
        }
        Some(report["retained_ns"].as_f64().unwrap() / report["wall_ns"].as_f64().unwrap())
    };
    let (Some(by_handovers), Some(by_progress)) = (retained(&[]), retained(&["--progress", counter.to_str().unwrap()]))
    else {
        gleaner_testing::skip!("needs the haltpoll governor");
    };
    assert!(by_progress < by_handovers / 2.0, "{by_progress} s a second polled, {by_handovers} by hand-overs");
}
