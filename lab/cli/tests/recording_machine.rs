//! `gleaner record` and `gleaner-lab sim from-recording` on a program whose waits are known: the recording has them,
//! and played back they still wait for each other.

mod common;
#[path = "../../../crates/observe/tests/support/mod.rs"]
mod support;

use common::{finish, finish_with_stdin, gleaner, lab};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{bpf_expected, play};

/// Plays a role when the tests start this binary as the program to be recorded.
#[test]
fn player() {
    play();
}

/// Records this binary in a role; gives what the program said of itself, and the result.
fn recorded(role: &str, file: &Path, more: &[&str]) -> (String, Value) {
    let json = file.with_extension("json");
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(gleaner());
    command.args(["record", "--threads"]).args(more).arg("-o").arg(file).arg("--json").arg(&json).arg("--").arg(own);
    command.args(["--exact", "player", "--nocapture", "--test-threads=1"]).env("GLEANER_TEST_ROLE", role);
    let output = finish_with_stdin(&mut command, b"g\n");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stderr));
    let done = said.lines().find_map(|line| line.split_once("done ")).map(|(_, rest)| rest.trim().to_owned());
    let report = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    (done.unwrap_or_default(), report)
}

fn simulated(file: &Path, more: &[&str]) -> Value {
    let output = lab(["sim", "from-recording", "--json"]).args(more).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_slice(&output.stdout).unwrap();
    report
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_recorded_program_waits_as_it_did_on_this_machine() {
    if !bpf_expected() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ping.glthreads");
    // 500 us of CPU time 600 times, each after the other.
    let (waited, record) = recorded("pingpong:300:500", &file, &[]);
    let (waited, turns_ns) = (waited.parse::<f64>().unwrap(), 600.0 * 500_000.0);
    assert_eq!((&record["ended_by"], &record["exit_status"]), (&Value::from("exit"), &Value::from(0)), "{record}");
    assert_eq!((&record["lost_events"], &record["untracked_threads"]), (&Value::from(0), &Value::from(0)), "{record}");
    let scenario = folder.path().join("what-if.toml");
    let result = simulated(&file, &["--vcpus", "16", "--scenario", scenario.to_str().unwrap()]);
    let (of, replay) = (&result["recorded"], number(&result["replay"]["wall_ns"]));
    println!("recorded {of}, played back in {replay} ns");

    // Every read that found nothing was ended by the other thread. A few more blocks are the test harness's.
    let waits = number(&of["waits"]);
    assert!(waited > 50.0 && waits >= waited * 0.9 && waits < 620.0 + 100.0, "{waits} waits, {waited} known");
    assert!(number(&of["cpu_ns"]) >= turns_ns, "{of}");
    // If they did not wait for each other, half the time would do. A read that found its byte (its vCPU was away
    // meanwhile) is no wait, and what comes after it may come earlier elsewhere. And nothing is slower than it was
    // where others disturbed it.
    assert!(replay >= turns_ns * 0.98 * (waited / 600.0), "{replay}, {waited} waits");
    assert!(replay <= number(&of["wall_ns"]) * 1.1, "{replay} {of}");
    // One computes at a time: 16 vCPUs are no help.
    let speedup = number(&result["rows"][0]["speedup"]);
    assert!((0.9..1.1).contains(&speedup), "{result}");

    // The scenario says the same.
    let said = lab(["sim", "run"]).arg(&scenario).arg("--json").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let same: Value = serde_json::from_slice(&said.stdout).unwrap();
    let walls = |of: &Value| of.as_array().unwrap().iter().map(|row| row["wall_ns"].clone()).collect::<Vec<_>>();
    let runs: Vec<Value> = same["runs"].as_array().unwrap().iter().map(|run| run["vms"][0].clone()).collect();
    assert_eq!(walls(&Value::from(runs)), walls(&result["rows"]));
}

#[test]
fn a_recording_stops_at_its_limit_and_the_program_of_this_machine_goes_on() {
    if !bpf_expected() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.glthreads");
    let (waited, record) = recorded("pingpong:20000:0", &file, &["--max-bytes", "64k"]);
    assert!(waited.parse::<u64>().unwrap() > 0, "it did not end by itself: {record}");
    assert_eq!((&record["ended_by"], &record["exit_status"]), (&Value::from("limit"), &Value::from(0)), "{record}");
    assert!(std::fs::metadata(&file).unwrap().len() <= 64 << 10, "{record}");
    assert!(record["notes"][0].as_str().unwrap().contains("--max-bytes"), "{record}");
    let result = simulated(&file, &["--policy", "off"]);
    assert_eq!(result["recorded"]["ended_by"], "limit");
    assert!(number(&result["recorded"]["unfinished_threads"]) >= 2.0, "{result}");
}

#[test]
fn what_cannot_be_played_back_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("text"), "name = 1").unwrap();
    std::fs::write(at("cut"), b"GLTHRD\r\n\x01H").unwrap();
    std::fs::write(at("new"), b"GLTHRD\r\n\x02").unwrap();
    for (name, words) in [
        ("none", "cannot read"),
        ("text", "no recording of threads"),
        ("cut", "not whole"),
        ("new", "version 2, and this gleaner reads version 1"),
    ] {
        finish(&mut lab(["sim", "from-recording", &at(name)])).with_status(2).naming(&[&at(name), words]);
    }
}
