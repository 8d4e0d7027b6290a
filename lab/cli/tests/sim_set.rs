//! `gleaner-lab sim run` with `--set`, `--seeds` and `--jsonl`: nothing done twice, nothing mixed, nothing lost; what
//! cannot be is named.

mod common;

use common::{LAB, Said, finish, lab};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SET: [&str; 4] = ["--set", "simulator.slice=6ms,1ms", "--set", "vm.app.workloads.relay.items=50,60"];

fn scenario(folder: &TempDir, workload: &str) -> PathBuf {
    let path = folder.path().join("x.toml");
    let text = format!(
        "name = \"x\"\ndescription = \"x\"\nrounds = 1\nrun_timeout = \"20s\"\n\n[[vm]]\nname = \"app\"\nrole = \"measured\"\n\
         vcpus = 2\npolicies = [\"off\", \"retain\"]\nworkloads = [{workload}]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

const SHORT: &str = "{ program = \"relay\", items = 50 }";

fn run(path: &Path, more: &[&str]) -> Said {
    finish(lab(["sim", "run"]).arg(path).args(more))
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error} in {said:#?}"))
}

fn points(file: &Path) -> Vec<String> {
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["point"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = fs::read_to_string(file).unwrap().lines().map(line).collect();
    all.sort();
    all
}

#[test]
fn every_setting_is_a_result_and_jobs_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT);
    let whole = run(&path, &[&SET[..], &["--seeds", "2", "--jobs", "1", "--json"]].concat()).with_status(0);
    let results = json(&whole);
    let results = results.as_array().unwrap();
    // Two slices by two numbers of items; two policies and two seeds in each.
    assert_eq!(results.len(), 4);
    assert!(results.iter().all(|result| result["runs"].as_array().unwrap().len() == 4), "{results:#?}");
    assert_eq!(results[1]["set"]["vm.app.workloads.relay.items"], 60);
    assert_eq!(results[1]["set"]["simulator.slice"], "6ms");
    let again = run(&path, &[&SET[..], &["--seeds", "2", "--jobs", "4", "--json"]].concat()).with_status(0);
    assert_eq!(whole.stdout, again.stdout);
    // One setting alone gives the same runs as among others.
    let one = json(&run(&path, &["--set", "simulator.slice=6ms", "--seeds", "2", "--json"]).with_status(0));
    assert_eq!(one["runs"], results[0]["runs"]);
    let said = run(&path, &SET).with_status(0);
    assert!(said.stdout.contains("Set: simulator.slice=1ms, vm.app.workloads.relay.items=60"), "{said:#?}");
}

#[test]
fn what_a_file_has_is_not_simulated_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT);
    let file = folder.path().join("x.jsonl");
    let call = |more: &[&str]| {
        let jsonl = ["--jsonl", file.to_str().unwrap(), "--json"];
        json(&run(&path, &[&SET[..], &jsonl[..], more].concat()).with_status(0))
    };
    let first = call(&[]);
    let whole = points(&file);
    assert_eq!(whole.len(), 8);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(call(&[]), first);
    assert_eq!(fs::read(&file).unwrap(), bytes, "nothing was added");
    // A call that was killed within a line: what is left of it goes, and is simulated again.
    fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    assert_eq!(call(&[]), first);
    assert_eq!(points(&file), whole);
    // More seeds add theirs; another scenario's lines do not count.
    call(&["--seeds", "2"]);
    assert_eq!(points(&file).len(), 16);
    scenario(&folder, "{ program = \"relay\", items = 50, granularity = \"9us\" }");
    call(&[]);
    assert_eq!(points(&file).len(), 24);
    // A file of somebody else's stays as it is.
    fs::write(&file, "precious\n").unwrap();
    let said = run(&path, &["--jsonl", file.to_str().unwrap()]).with_status(2);
    said.naming(&["x.jsonl:1: is no line"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious\n");
}

#[test]
fn what_cannot_be_set_is_named_before_anything_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT);
    for (set, said) in [
        ("simulator.slice", "has no '='"),
        ("seed=1,2", "--seeds"),
        ("vm.app.memory_mib=128,256", "changes nothing"),
        ("vm.web.vcpus=2", "there is no vm.web"),
        ("vm.app.vcpus=2,-1", "vm.app.vcpus=-1"),
        ("simulator.sliec=1ms", "sliec"),
    ] {
        run(&path, &["--set", set]).with_status(2).saying("").naming(&[said]);
    }
    let key = format!("{}=1", vec!["a"; 20_000].join("."));
    run(&path, &["--set", &key]).with_status(2).naming(&["20000 levels"]);
    let value = format!("vm.app.x={}1{}", "[".repeat(5_000), "]".repeat(5_000));
    run(&path, &["--set", &value]).with_status(2);
    let twice = ["--set", "vm.app.vcpus=2", "--set", "vm.app.vcpus=4"];
    run(&path, &twice).with_status(2).naming(&["give each key once"]);
    run(&path, &["--seeds", "99999"]).with_status(2).naming(&["more than 100000 simulations"]);
}

#[test]
fn time_that_stands_still_and_extreme_numbers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, "{ program = \"matmul\", threads = 1, granularity = \"0s\" }");
    run(&path, &[]).with_status(2).naming(&["time does not go on", "granularity"]);
    for granularity in ["2h", "100000days", "18446744073s"] {
        let path = scenario(&folder, &format!("{{ program = \"relay\", granularity = \"{granularity}\" }}"));
        run(&path, &[]).with_status(2).naming(&["x.toml:11: granularity", "1h"]);
    }
}

/// Every command that has its result on stdout.
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT);
    let path = path.to_str().unwrap();
    for arguments in [
        &["sim", "run", path][..],
        &["sim", "run", path, "--json"],
        &["sim", "list"],
        &["bed", "list"],
        &["bed", "check", path],
        &["--help"],
        &["--version"],
        &["sim", "run", "--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(LAB).args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
    }
    run(Path::new(path), &["--jsonl", "/dev/full"]).with_status(2).naming(&["/dev/full"]);
    // A reader that has seen enough is no failure.
    for list in ["sim", "bed"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = Command::new(LAB).args([list, "list"]).stdout(writer).stderr(Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(0), "{list}");
    }
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, SHORT);
    for arguments in [&["sim", "run", "/dev/zero"][..], &["sim", "run", path.to_str().unwrap(), "--probe", "/dev/zero"]]
    {
        let said = finish(&mut lab(arguments));
        assert!(
            said.status == Some(2) && (said.stderr.contains("longer than") || said.stderr.contains("larger than")),
            "{arguments:?}: {said:#?}"
        );
    }
}
