//! Work that may take long ends when it is told to, with what is done; results that are damaged, lost or half there are
//! called so.

#![allow(clippy::format_collect, reason = "ten lines of text")]

mod common;

use common::{LAB, Said, comes_true, finish, lab, pid_of, send};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// With a workload, an hour long unless it has items.
fn scenario(folder: &TempDir, workload: &str, more: &str) -> PathBuf {
    let path = folder.path().join("x.toml");
    let text = format!(
        "name = \"x\"\ndescription = \"x\"\nrounds = 1\nrun_timeout = \"1h\"\n{more}\n[[vm]]\nname = \"a\"\nrole = \"measured\"\n\
         vcpus = 2\npolicies = [\"off\"]\nworkloads = [{workload}]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

const ENDLESS: &str = "{ program = \"relay\" }";
const SHORT: &str = "{ program = \"relay\", items = 5 }";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A command at work; it listens to signals by the time this returns.
fn started(command: &mut Command) -> Child {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", pid_of(&child));
    let catches = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        // SIGINT, SIGTERM and, set last, SIGALRM.
        u64::from_str_radix(&caught, 16).unwrap_or(0) & 0x6002 == 0x6002
    };
    assert!(comes_true(catches), "it does not listen to signals");
    child
}

/// What a command says that is told to end once some of its work is done, which may take a while.
fn ended_with(start: impl Fn() -> Child, signal: i32, done: impl Fn(&Said) -> bool) -> Said {
    let ended = |ms| ended_by(start(), Duration::from_millis(ms), signal).with_status(130);
    [300, 2_000, 10_000].into_iter().map(ended).find(done).expect("something is done")
}

/// What a command says that is told to end after this time, and does within the longest wait.
fn ended_by(mut child: Child, after: Duration, signal: i32) -> Said {
    std::thread::sleep(after);
    send(pid_of(&child), signal);
    let over = comes_true(|| child.try_wait().unwrap().is_some());
    if !over {
        send(pid_of(&child), libc::SIGKILL);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = Said { status: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert!(over, "the signal did not end it: {said:#?}");
    said
}

#[test]
fn a_signal_ends_a_simulation_and_leaves_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, ENDLESS, "");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let has_items = |said: &Said| json(&said.stdout)["runs"][0]["vms"][0]["items"].as_u64() > Some(0);
        let said = ended_with(|| started(lab(["sim", "run"]).arg(&path).arg("--json")), signal, has_items);
        let result = json(&said.stdout);
        assert_eq!((&result["stopped_by"], &result["runs"][0]["stopped"]), (&"interrupt".into(), &true.into()));
        assert_eq!(result["runs"][0]["complete"], false);
        said.naming(&["PARTIAL RESULT: a signal ended it", "The last run was ended at"]);
    }
}

#[test]
fn limits_end_a_simulation_and_are_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, ENDLESS, "");
    let run = |limit: [&str; 2]| finish(lab(["sim", "run"]).arg(&path).args(limit).arg("--json")).with_status(0);
    let events = run(["--max-events", "50k"]);
    let result = json(&events.stdout);
    assert_eq!(result["stopped_by"], "max-events");
    assert!((50_000..60_000).contains(&result["runs"][0]["events"].as_u64().unwrap()), "{result}");
    assert_eq!(events.stdout, run(["--max-events", "50k"]).stdout, "the same events, the same bytes");
    assert_eq!(json(&run(["--max-time", "200ms"]).stdout)["stopped_by"], "max-time");
    // What ends by itself is whole.
    scenario(&folder, SHORT, "");
    let whole = json(&run(["--max-time", "1h"]).stdout);
    assert_eq!((&whole["stopped_by"], &whole["runs"][0]["stopped"]), (&Value::Null, &false.into()));
    for bad in [["--max-events", "0"], ["--max-events", "x"], ["--max-time", "5"], ["--max-time", "0s"]] {
        finish(lab(["sim", "run"]).arg(&path).args(bad)).with_status(2);
    }
}

/// Three combinations, the limit in the second: it stands in the result, the third does not.
#[test]
fn a_part_of_several_runs_is_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let several = "{ program = \"relay\", items = 5 }, { program = \"relay\", label = \"b\" }, { program = \"relay\", label = \"c\", items = 5 }";
    let path = scenario(&folder, several, "");
    let said = finish(lab(["sim", "run"]).arg(&path).args(["--max-events", "30k", "--json"])).with_status(0);
    let result = json(&said.stdout);
    let stopped: Vec<&Value> = result["runs"].as_array().unwrap().iter().map(|run| &run["stopped"]).collect();
    assert_eq!(stopped, [false, true]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn time_that_stands_still_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, "{ program = \"matmul\", threads = 1, granularity = \"0s\" }", "");
    finish(lab(["sim", "run"]).arg(path)).with_status(2).naming(&["time does not go on", "granularity"]);
}

#[test]
fn extreme_numbers_in_scenarios_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for granularity in ["2h", "100000days", "18446744073s"] {
        let workload = format!("{{ program = \"relay\", granularity = \"{granularity}\" }}");
        let path = scenario(&folder, &workload, "");
        finish(lab(["sim", "run"]).arg(path)).with_status(2).naming(&["x.toml:11: granularity", "1h"]);
    }
}

#[test]
fn a_sweep_keeps_what_it_has_and_takes_nothing_damaged_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT, "");
    let sweep = |more: &[&str]| {
        let mut command = lab(["sim", "sweep"]);
        finish(
            command
                .arg(&path)
                .arg("-o")
                .arg(folder.path().join("sw"))
                .args(["--seeds", "2", "--jobs", "1", "--json"])
                .args(more),
        )
    };
    let point = |n: u32| folder.path().join(format!("sw/points/00000{n}.parquet"));
    let whole = sweep(&[]).with_status(0).stdout;
    assert_eq!(json(&whole)["stopped_by"], Value::Null);
    let good = fs::read(point(0)).unwrap();
    fs::copy(point(1), point(0)).unwrap();
    sweep(&[]).with_status(1).saying("").naming(&["000000.parquet", "that of point 1", "delete it"]);
    for at in (0..good.len()).step_by(97) {
        let mut damaged = good.clone();
        damaged[at] ^= 16;
        fs::write(point(0), damaged).unwrap();
        sweep(&[]).with_status(1).saying("").naming(&["000000.parquet"]);
    }
    for length in [0, 3, good.len() - 1] {
        fs::write(point(0), &good[..length]).unwrap();
        sweep(&[]).with_status(1).saying("").naming(&["000000.parquet"]);
    }
    fs::remove_file(point(0)).unwrap();
    File::create(point(0)).unwrap().set_len(1 << 40).unwrap();
    sweep(&[]).with_status(1).naming(&["longer than"]);
    fs::remove_file(point(0)).unwrap();
    let rows = |text: &str| json(text)["rows"].clone();
    assert_eq!(rows(&sweep(&[]).with_status(0).stdout), rows(&whole), "what was deleted is simulated again");
    assert_eq!(fs::read(point(0)).unwrap(), good);
    // Another limit gives other results.
    sweep(&["--max-events", "10"]).with_status(2).naming(&["--max-events changed"]);
}

#[test]
fn a_sweeps_time_may_be_over_before_its_points() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, ENDLESS, "");
    let sweep = |out: &str, more: &[&str]| {
        finish(lab(["sim", "sweep"]).arg(&path).arg("-o").arg(folder.path().join(out)).args(more).arg("--json"))
    };
    let result = json(&sweep("time", &["--max-time", "300ms"]).with_status(0).stdout);
    assert_eq!((&result["stopped_by"], &result["points_missing"]), (&"max-time".into(), &1.into()));
    assert!(fs::read_dir(folder.path().join("time/points")).unwrap().next().is_none(), "half a point is none");
    let result = json(&sweep("events", &["--max-events", "20k"]).with_status(0).stdout);
    assert_eq!((&result["stopped_by"], &result["rows"][0]["complete"]), (&Value::Null, &false.into()));
}

#[test]
fn a_key_of_many_levels_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT, "");
    for (levels, said) in [(17, "17 levels"), (20_000, "20000 levels")] {
        let key = format!("{}=1", vec!["a"; levels].join("."));
        finish(lab(["sim", "sweep"]).arg(&path).args(["-o", "sw", "--set", &key])).with_status(2).naming(&[said]);
    }
    let value = format!("vm.a.x={}1{}", "[".repeat(5_000), "]".repeat(5_000));
    finish(lab(["sim", "sweep"]).arg(&path).args(["-o", "sw", "--set", &value])).with_status(2);
}

/// Every command that has its result on stdout.
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT, "");
    let path = path.to_str().unwrap();
    for (arguments, status) in [
        (&["sim", "run", path][..], 1),
        (&["sim", "run", path, "--json"], 1),
        (&["sim", "list"], 1),
        (&["bed", "list"], 1),
        (&["bed", "check", path], 1),
        (&["sim", "sweep", path, "-o", folder.path().join("sw").to_str().unwrap()], 1),
        (&["--help"], 1),
        (&["--version"], 1),
        (&["sim", "run", "--help"], 1),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(LAB).args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
    }
    // A reader that has seen enough is no failure.
    for list in ["sim", "bed"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = Command::new(LAB).args([list, "list"]).stdout(writer).stderr(Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(0), "{list}");
    }
}

#[test]
fn earlier_files_outlive_a_command_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, "{ command = [\"true\"] }", "");
    let kept = folder.path().join("t.json");
    for option in ["--trace", "--json"] {
        fs::write(&kept, "precious").unwrap();
        finish(lab(["sim", "run"]).arg(&path).arg(option).arg(&kept)).with_status(2);
        assert_eq!(fs::read_to_string(&kept).unwrap(), "precious", "{option}");
    }
    // The test bed's result: neither an earlier one is lost, nor is an empty one left.
    let new = folder.path().join("new.json");
    for place in [&kept, &new] {
        let missing = ["--binary", "/no/such/file", "--json"];
        finish(lab(["bed", "run"]).arg(&path).args(missing).arg(place)).with_status(2).naming(&["/no/such/file"]);
    }
    assert!(fs::read_to_string(&kept).unwrap() == "precious" && !new.exists());
    scenario(&folder, SHORT, "");
    finish(lab(["sim", "run"]).arg(&path).arg("--trace").arg(&kept)).with_status(0);
    assert!(json(&fs::read_to_string(&kept).unwrap())["traceEvents"].is_array());
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT, "");
    let path = path.to_str().unwrap();
    for arguments in [
        &["sim", "run", "/dev/zero"][..],
        &["sim", "sweep", "/dev/zero", "-o", "x"],
        &["sim", "run", path, "--probe", "/dev/zero"],
    ] {
        let said = finish(&mut lab(arguments));
        assert!(
            said.status == Some(2) && (said.stderr.contains("longer than") || said.stderr.contains("larger than")),
            "{arguments:?}: {said:#?}"
        );
    }
}
