//! `gleaner-lab sim sweep`: the same bytes whoever simulates a point, nothing done twice, nothing mixed, nothing lost.

mod common;

use common::{LAB, Said, comes_true, finish, lab, pid_of, send};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SCENARIO: &str = r#"
name = "small"
description = "A chain of threads, off and retained, beside a neighbour"
rounds = 2
seed = 7
run_timeout = "20s"

[machine]
cpus = "0-1"

[simulator]
scheduler = "eevdf"

[[vm]]
name = "app"
role = "measured"
vcpus = 2
policies = ["off", "retain"]
workloads = [{ program = "relay", threads = 2, items = 500, granularity = "5us" }]

[[vm]]
name = "neighbour"
role = "background"
vcpus = 2
workloads = [{ program = "matmul", threads = 1, granularity = "100us" }]
"#;

const AXES: [&str; 4] = ["--set", "simulator.slice=6ms,1ms", "--set", "vm.app.workloads.relay.granularity=5us,20us"];

/// A folder with a scenario in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(place.scenario(), SCENARIO).unwrap();
        place
    }

    fn scenario(&self) -> PathBuf {
        self.folder.path().join("scenario.toml")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = lab(["sim", "sweep"]);
        command.arg(self.scenario()).arg("-o").arg(self.at(out)).args(more);
        command
    }

    fn sweep(&self, out: &str, more: &[&str]) -> Said {
        finish(self.command(out, &AXES).args(more))
    }

    /// The result as JSON.
    fn json(&self, out: &str, more: &[&str]) -> Value {
        let said = self.sweep(out, more).with_status(0);
        let report = serde_json::from_str(&said.stdout).unwrap();
        report
    }

    /// Every point's file with its bytes.
    fn points(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(self.at(out).join("points")).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())).collect()
    }
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn threads_and_shards_change_no_byte() {
    let place = Place::new();
    let one = place.json("one", &["--jobs", "1", "--json"]);
    // Two slices, two granularities, two policies, two seeds.
    assert_eq!((&one["points"], &one["points_simulated"], &one["points_missing"]), (&16.into(), &16.into(), &0.into()));
    let whole = place.points("one");
    assert_eq!(whole.len(), 16);
    place.sweep("four", &["--jobs", "4"]).with_status(0);
    assert!(place.points("four") == whole, "the number of threads shows in the results");
    for shard in ["3/3", "1/3", "2/3"] {
        let part = place.json("parts", &["--shard", shard, "--json"]);
        assert_eq!(part["shard"], shard);
        assert!(part["points_simulated"].as_u64().unwrap() >= 5, "{part}");
    }
    assert!(place.points("parts") == whole, "the shards together are not the whole");
    // Whoever asks afterwards gets everything and does nothing; the folder's name apart, it is the same result.
    let (mut again, mut first) = (place.json("parts", &["--json"]), one);
    assert_eq!(again["points_simulated"], 0);
    for (key, value) in [("folder", "x".into()), ("points_simulated", 0.into())] {
        again[key] = Value::clone(&value);
        first[key] = value;
    }
    assert_eq!(again, first);
    assert_ne!(place.json("other-seed", &["--seed", "8", "--json"])["rows"], first["rows"]);
}

#[test]
fn rows_are_what_sim_run_says_of_each_point() {
    let place = Place::new();
    let swept = place.json("out", &["--json"]);
    let rows = swept["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 32, "a row for each point and VM");
    assert_eq!(swept["parameters"][0]["column"], "simulator.slice_ns");
    assert_eq!(swept["parameters"][0]["values"], serde_json::json!([6_000_000, 1_000_000]));
    // The scenario of one setting, written out by hand.
    let by_hand = SCENARIO
        .replace("scheduler = \"eevdf\"", "scheduler = \"eevdf\"\nslice = \"1ms\"")
        .replace("granularity = \"5us\"", "granularity = \"20us\"");
    fs::write(place.at("hand.toml"), by_hand).unwrap();
    let said = finish(lab(["sim", "run"]).arg(place.at("hand.toml")).arg("--json"));
    let run: Value = serde_json::from_str(&said.with_status(0).stdout).unwrap();
    let mut compared = 0;
    for run in run["runs"].as_array().unwrap() {
        let vms = run["vms"].as_array().unwrap();
        let policy = &vms.iter().find(|vm| vm["role"] == "measured").unwrap()["policy"];
        let mine: Vec<&Value> = rows
            .iter()
            .filter(|row| row["simulator.slice_ns"] == 1_000_000 && row["seed"] == run["seed"])
            .filter(|row| row["vm.app.workloads.relay.granularity_ns"] == 20_000)
            .collect();
        for vm in vms {
            // The neighbour's own policy is always off: its rows are told apart by their point.
            let point =
                mine.iter().find(|row| row["vm"] == "app" && row["policy"] == *policy).unwrap()["point"].clone();
            let row = mine.iter().find(|row| row["vm"] == vm["vm"] && row["point"] == point).unwrap();
            for key in ["items", "items_per_s", "wall_ns", "halts", "stolen_ns", "latency_p99_ns", "timeout_ns", "role"]
            {
                assert_eq!(row[key], vm[key], "{key}");
            }
            assert_eq!((&row["end_ns"], &row["events"]), (&run["end_ns"], &run["events"]));
            compared += 1;
        }
    }
    assert_eq!(compared, 8, "two policies, two rounds, two machines");
    assert!(rows.iter().all(|row| row["beside"] == "matmul"));
}

#[test]
fn only_what_is_missing_is_done() {
    let place = Place::new();
    place.sweep("out", &[]).with_status(0);
    let whole = place.points("out");
    let file = |n: u32| place.at("out").join(format!("points/{n:06}.parquet"));
    let kept = modified(&file(0));
    fs::remove_file(file(3)).unwrap();
    fs::remove_file(file(11)).unwrap();
    // What a kill leaves of a file that was being written.
    fs::write(place.at("out").join("points/.unfinished-x"), "half").unwrap();
    let again = place.json("out", &["--json"]);
    assert_eq!((&again["points_simulated"], &again["points_here"]), (&2.into(), &16.into()));
    assert_eq!(modified(&file(0)), kept, "a finished point was written again");
    let mut now = place.points("out");
    now.remove(".unfinished-x").unwrap();
    assert!(now == whole);
    // A file that was damaged afterwards is named, with what to do.
    fs::write(file(5), "damaged").unwrap();
    place.sweep("out", &[]).with_status(1).naming(&["points/000005.parquet", "delete it and run this again"]);
}

#[test]
fn another_sweep_in_the_same_folder_is_refused() {
    let place = Place::new();
    place.sweep("out", &["--shard", "1/8"]).with_status(0);
    let before = place.points("out");
    let advice = "name another folder with -o, or delete this one";
    place.sweep("out", &["--seed", "9"]).with_status(2).naming(&["--seed changed since", advice]);
    place.sweep("out", &["--seeds", "3"]).with_status(2).naming(&["--seeds changed since", advice]);
    finish(&mut place.command("out", &["--set", "simulator.slice=6ms"]))
        .with_status(2)
        .naming(&["--set changed", advice]);
    fs::write(place.scenario(), SCENARIO.replace("items = 500", "items = 600")).unwrap();
    place.sweep("out", &[]).with_status(2).naming(&["the scenario changed since", advice]);
    // A comment changes nothing.
    fs::write(place.scenario(), format!("# the same\n{SCENARIO}")).unwrap();
    place.sweep("out", &["--shard", "1/8"]).with_status(0);
    let manifest = place.at("out").join("sweep.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("\"build\": \"", "\"build\": \"9", 1)).unwrap();
    place.sweep("out", &[]).with_status(2).naming(&["another build of gleaner", advice]);
    fs::write(&manifest, "{}").unwrap();
    place.sweep("out", &[]).with_status(2).naming(&["sweep.json", "no sweep's"]);
    assert!(place.points("out") == before);
}

#[test]
fn a_policy_file_that_changed_is_noticed() {
    let place = Place::new();
    let policies = "policies = [\"off\", { label = \"mine\", policy = \"retain\", config = \"mine.toml\" }]";
    fs::write(place.scenario(), SCENARIO.replace("policies = [\"off\", \"retain\"]", policies)).unwrap();
    let short = ["--shard", "1/16"];
    fs::write(place.at("mine.toml"), "").unwrap();
    place.sweep("out", &short).with_status(0);
    fs::write(place.at("mine.toml"), "# another day\n").unwrap();
    place.sweep("out", &short).with_status(2).naming(&["a policy file changed since"]);
}

#[test]
fn what_cannot_be_swept_is_named_and_nothing_is_made() {
    let place = Place::new();
    for (more, said) in [
        (&["--set", "simulator.slice=30ms,30zs"][..], &["--set simulator.slice=30zs", "is no duration", "20us"][..]),
        (&["--set", "simulator.slce=1ms"], &["unknown field `slce`", "`slice`"]),
        (&["--set", "vm.web.vcpus=1"], &["there is no vm.web; there is vm.0 (app), vm.1 (neighbour)"]),
        (&["--set", "vm.app.vcpus=0"], &["vcpus = 0: must be within 1 and 64"]),
        (&["--set", "vm.app.workloads.relay.program=block-io"], &["no program \"block-io\" can be simulated"]),
        (&["--set", "seed=1,2"], &["--seeds"]),
        (&["--set", "simulator.slice"], &["has no '='"]),
        (&["--set", "vm.app.vcpus=1", "--set", "vm.app.vcpus=2"], &["is there twice"]),
        (&["--shard", "0/4"], &["1/4"]),
        (&["--seeds", "0"], &["0"]),
        (&["--seeds", "100000"], &["200000 points or more; must be 100000 at most"]),
    ] {
        finish(&mut place.command("out", more)).with_status(2).naming(said);
        assert!(!place.at("out").exists(), "{more:?} left a folder behind");
    }
    fs::write(place.at("file"), "").unwrap();
    place.sweep("file", &[]).with_status(2).naming(&["cannot write to", "-o"]);
}

#[test]
fn an_interrupt_leaves_finished_points_and_is_gone_on_from() {
    let place = Place::new();
    let many = ["--seeds", "400", "--jobs", "1", "--set", "simulator.slice=6ms,1ms"];
    let mut command = Command::new(LAB);
    command.args(["sim", "sweep"]).arg(place.scenario()).arg("-o").arg(place.at("out")).args(many);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let points = place.at("out").join("points");
    let begun = || fs::read_dir(&points).is_ok_and(|entries| entries.count() > 3);
    assert!(comes_true(begun), "no point was finished");
    send(pid_of(&child), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let kept = place.points("out").len();
    assert!((3..1600).contains(&kept), "{kept} points");
    let words = format!("{kept} of 1600 points are finished and kept in");
    assert!(said.contains(&words) && said.contains("goes on from there"), "{said}");
    assert!(place.points("out").keys().all(|name| name.ends_with(".parquet")), "half a file was left behind");
    // What is missing of a part that is small enough to wait for.
    let part = finish(place.command("out", &many).args(["--shard", "1/100", "--json"])).with_status(0);
    let part: Value = serde_json::from_str(&part.stdout).unwrap();
    let had = part["points_here"].as_u64().unwrap() - part["points_simulated"].as_u64().unwrap();
    assert!(part["points_here"] == 16 && had >= 1, "{had}");
}
