//! `gleaner-lab cache reproduce`: what it says, what it refuses, and that nothing of it is left when it is stopped.

mod common;

use common::{Killed, Said, comes_true, finish, lab, pid_of, send};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn reproduce(folder: &Path, arguments: &[&str]) -> Said {
    finish(&mut command(folder, arguments))
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = lab(["cache", "reproduce"]);
    command.args(arguments).current_dir(folder);
    command
}

/// A program that goes round so many lines, as a recording.
fn record(folder: &Path, name: &str, lines: u64) {
    let file = File::create(folder.join(format!("{name}.lackey.zst"))).unwrap();
    let mut recording = zstd::Encoder::new(file, 1).unwrap();
    recording.include_checksum(true).unwrap();
    for turn in 0..4 * lines {
        recording.write_all("I  401000,4\n".repeat(40).as_bytes()).unwrap();
        writeln!(recording, " L {:x},8", 0x1000_0000 + turn % lines * 64).unwrap();
    }
    recording.finish().unwrap();
}

/// Recordings for mix 7: one program fits the second level, the other no level.
fn recordings() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "sjeng", 1_000);
    record(folder.path(), "libquantum", 60_000);
    folder
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn value(found: &Value, case: &str, metric: &str) -> f64 {
    let rows = found["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    row.unwrap_or_else(|| panic!("no {case} {metric} in {found:#}"))["simulated"].as_f64().unwrap()
}

#[test]
fn a_smoke_run_is_labelled_as_one_wherever_it_is_read() {
    let folder = recordings();
    let arguments = ["micro:fig8", "--mix", "7", "--traces", ".", "--json", "x.json"];
    let said = reproduce(folder.path(), &[&arguments[..], &["--smoke"]].concat()).with_status(0);
    assert!(said.stdout.contains("smoke run"), "{said:#?}");
    let found = json(&folder.path().join("x.json"));
    assert_eq!((&found["schema"], &found["smoke"]), (&"gleaner.reproduction/1".into(), &true.into()), "{found:#}");
    assert!(found["rows"].as_array().unwrap().iter().all(|row| row["smoke"] == true), "{found:#}");
    assert!(found["notes"].to_string().contains("smoke run"), "{found:#}");
    let cpi = |case: &str| value(&found, case, "1ms cpi");
    assert!(cpi("mix-7 B libquantum") > cpi("mix-7 A sjeng"), "{found:#}");
    let said = reproduce(folder.path(), &[&arguments[..], &["--quanta", "10"]].concat()).with_status(0);
    assert!(!said.stdout.contains("smoke run"), "{said:#?}");
    let found = json(&folder.path().join("x.json"));
    assert_eq!(found["smoke"], false);
    assert!(found["rows"].as_array().unwrap().iter().all(|row| row["smoke"] == false), "{found:#}");
}

#[test]
fn made_up_programs_run_too_and_jobs_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (jobs, file) in [("1", "one.json"), ("2", "two.json")] {
        let arguments = ["micro:fig8", "--mix", "1", "--smoke", "--jobs", jobs, "--json", file];
        reproduce(folder.path(), &arguments).with_status(0);
    }
    let [one, two] = ["one.json", "two.json"].map(|file| json(&folder.path().join(file)));
    assert_eq!(one, two);
    assert!(value(&one, "mix-1 B sjeng", "30ms cpi") > 0.0, "{one:#}");
}

#[test]
fn what_cannot_be_reproduced_is_named_and_leaves_no_file() {
    let folder = recordings();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("none")).unwrap();
    for name in ["cut", "empty", "foreign"] {
        fs::create_dir(path(name)).unwrap();
        fs::copy(path("libquantum.lackey.zst"), path(name).join("libquantum.lackey.zst")).unwrap();
        let mut bytes = fs::read(path("sjeng.lackey.zst")).unwrap();
        match name {
            "cut" => bytes.truncate(bytes.len() - 1),
            "empty" => bytes.clear(),
            _ => bytes = b"R 10\n".repeat(100),
        }
        fs::write(path(name).join("sjeng.lackey.zst"), bytes).unwrap();
    }
    let all = ["micro:fig8", "--mix", "7", "--smoke", "--traces"];
    let with = |folder| [&all[..], &[folder]].concat();
    for (arguments, words) in [
        (vec![], &["FIGURE"][..]),
        (vec!["micro:fig9"], &["micro:fig9", "micro:fig7", "micro:fig12"]),
        (vec!["micro:fig8", "--mix", "18"], &["no mix 18", "1 to 17"]),
        (vec!["micro:fig8", "--mix", "seven"], &["seven", "--mix"]),
        (vec!["micro:fig8", "--quanta", "0"], &["0", "1..=10000"]),
        (vec!["micro:fig8", "--quanta", "3", "--smoke"], &["--smoke", "cannot be used with"]),
        (vec!["micro:fig8", "--jobs", "0"], &["--jobs", "1..=1024"]),
        (with("nowhere"), &["--traces nowhere", "no such folder"]),
        (with("sjeng.lackey.zst"), &["--traces sjeng.lackey.zst", "no such folder"]),
        (with("none"), &["no mix to run", "left out", "none/sjeng.lackey.zst", "--trace-mem=yes"]),
        (with("cut"), &["cut/sjeng.lackey.zst"]),
        (with("empty"), &["empty/sjeng.lackey.zst"]),
        (with("foreign"), &["foreign/sjeng.lackey.zst"]),
    ] {
        let arguments = [&arguments[..], &["--json", "x.json"]].concat();
        reproduce(folder.path(), &arguments).with_status(2).saying("").naming(words);
        assert!(!path("x.json").exists(), "{arguments:?}");
    }
}

#[test]
fn mixes_without_a_recording_are_left_out_and_named() {
    let folder = recordings();
    let arguments = ["micro:fig8", "--mix", "7", "--mix", "12", "--traces", ".", "--smoke"];
    let said = reproduce(folder.path(), &arguments).with_status(0);
    assert!(said.stdout.contains("mix-7 A sjeng") && !said.stdout.contains("mix-12 A"), "{said:#?}");
    assert!(said.stdout.contains("left out for want of recordings: 12;"), "{said:#?}");
}

#[test]
fn one_that_is_stopped_leaves_an_older_result_and_no_new_one() {
    let folder = recordings();
    let files = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    fs::write(folder.path().join("old.json"), "{}").unwrap();
    let before = files();
    for (result, signal) in [
        ("new.json", libc::SIGINT),
        ("new.json", libc::SIGTERM),
        ("new.json", libc::SIGKILL),
        ("old.json", libc::SIGINT),
    ] {
        let arguments =
            ["micro:fig8", "--mix", "7", "--quanta", "10000", "--traces", ".", "--jobs", "1", "--json", result];
        let started = command(folder.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = Killed(started.unwrap());
        let pid = pid_of(&child.0);
        let simulates = || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1);
        assert!(comes_true(simulates), "it has started its threads");
        send(pid, signal);
        let status = child.0.wait().unwrap();
        assert_eq!(status.signal(), Some(signal), "{status:?}");
        assert_eq!(files(), before, "after signal {signal}");
        assert_eq!(fs::read_to_string(folder.path().join("old.json")).unwrap(), "{}");
    }
}
