//! The test bed with real guests: a scenario from end to end, and what becomes of guests and runners that die.
//!
//! The guests are emulated, so nothing here looks at a duration. They get the static binary that was built beside this
//! one.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_gleaner-lab")).with_file_name("gleaner");
    assert!(binary.is_file(), "{}: build the whole workspace first, as `make test` does", binary.display());
    binary
}

fn runner(scenario: &Path, json: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner-lab"));
    command.args(["bed", "run"]).arg(scenario).arg("--json").arg(json).arg("--binary").arg(binary());
    command
}

/// A folder with a scenario of one VM that runs one command.
fn one_vm(command: &str, more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"one\"\ndescription = \"one VM\"\nrounds = 2\n{more}\n[machine]\naccelerator = \"tcg\"\n[[vm]]\nname = \"app\"\n\
         role = \"measured\"\nvcpus = 1\nmemory_mib = 256\ncap = 1.5\npolicies = [\"off\"]\n\
         workloads = [{{ command = [\"sh\", \"-c\", {command:?}] }}]\n"
    );
    fs::write(folder.path().join("scenario.toml"), text).unwrap();
    folder
}

fn run(folder: &Path) -> (Output, Value) {
    let json = folder.join("out.json");
    let output = runner(&folder.join("scenario.toml"), &json).output().unwrap();
    (output, read(&json))
}

fn read(json: &Path) -> Value {
    let text = fs::read_to_string(json).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", json.display()))
}

#[test]
fn guest_scenario_from_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("smoke.json");
    let output = runner(&root().join("experiments/smoke/scenario.toml"), &json).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("neighbour: matmul"), "the table: {stdout}");
    let report = read(&json);
    assert_eq!(report["schema"], "gleaner.scenario/1");
    assert_eq!(report["incomplete"], Value::Null);
    assert_eq!(report["scenario"]["vm"][0]["name"], "app");
    let runs = report["runs"].as_array().unwrap();
    let cases: BTreeSet<(&str, &str)> = runs
        .iter()
        .map(|run| (run["policy"].as_str().unwrap(), run["background"][0]["workload"].as_str().unwrap()))
        .collect();
    let expected = [("full", "matmul"), ("full", "nothing"), ("off", "matmul"), ("off", "nothing")];
    assert_eq!(cases, BTreeSet::from(expected), "each combination");
    assert_eq!(runs.len(), 4, "once");
    for run in runs {
        assert_eq!((&run["exit_status"], &run["output"]), (&Value::from(0), &Value::Null), "{run}");
        assert!(run["checksum"].is_string(), "the program's own result: {run}");
        assert_eq!(run["left_behind"], Value::Array(vec![]), "nothing is left in the guest: {run}");
        assert_eq!(run["run"]["restored"], true, "{run}");
        for figure in ["wall_ns", "host_wall_ns", "host_cpu_ns", "items_per_second"] {
            assert!(run[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {run}");
        }
        // Managed runs say so: the program lasts long enough for Gleaner to begin, on any machine.
        assert_eq!(run["run"]["cpu_time_ns"].is_null(), run["policy"] == "off", "{run}");
        let neighbour = &run["background"][0];
        let rate = &neighbour["items_per_second"];
        if neighbour["workload"] == "matmul" {
            assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "the neighbour got something done: {run}");
        } else {
            assert_eq!(*rate, Value::Null, "{run}");
        }
    }
    assert!(report["solos"][0]["items_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{}", report["solos"]);
    for row in report["summary"].as_array().unwrap() {
        assert_eq!((&row["n"], &row["failed"]), (&Value::from(1), &Value::from(0)), "{row}");
        assert!(row["weighted_speedup"]["median"].as_f64().is_some_and(|sum| sum > 0.0), "{row}");
    }
}

/// A program and a command of two programs go on while two slices take turns.
#[test]
fn guest_programs_go_on_while_slices_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let vm = |name: &str, workload: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\nrole = \"measured\"\nvcpus = 1\nmemory_mib = 256\npin = \"0\"\npolicies = [\"off\"]\nworkloads = [{workload}]\n"
        )
    };
    let of_two = "trap 'trap - TERM; kill 0' TERM; for name in a b; do gleaner workload independent --threads 1 --for 0s \
                  --progress-every 100ms --progress-name $name & done; wait";
    let text = format!(
        "name = \"turns\"\ndescription = \"two VMs\"\nrounds = 1\n[machine]\naccelerator = \"tcg\"\nslices = [\"5ms\", \"1ms\"]\nin_turn = 2\n{}{}",
        vm("one", "{ program = \"independent\", threads = 1 }"),
        vm("two", &format!("{{ label = \"both\", command = [\"sh\", \"-c\", {of_two:?}] }}")),
    );
    fs::write(folder.path().join("scenario.toml"), text).unwrap();
    let (output, report) = run(folder.path());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("by first slice"), "the table: {stdout}");
    assert_eq!(report["runs"], Value::Array(vec![]));
    let [in_turn] = report["in_turn"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!(in_turn["vms"][1], serde_json::json!({"vm": "two", "workload": "both"}));
    assert_eq!((&in_turn["chosen_ns"], &in_turn["changes"]), (&Value::Null, &Value::Null), "nobody is adaptive");
    let turns = in_turn["turns"].as_array().unwrap();
    let mut had: Vec<(u64, &str)> =
        turns.iter().map(|turn| (turn["pass"].as_u64().unwrap(), turn["slice"].as_str().unwrap())).collect();
    had.sort_unstable();
    assert_eq!(had, [(0, "1ms"), (0, "5ms"), (1, "1ms"), (1, "5ms")]);
    for turn in turns {
        let rates = turn["items_per_second"].as_array().unwrap();
        assert!(rates.len() == 2 && rates.iter().all(|rate| rate.as_f64() > Some(0.0)), "{turn}");
        assert!(turn["length_ns"].as_u64() > Some(0), "{turn}");
    }
}

#[test]
fn guest_that_panics_is_reported_with_its_console() {
    let folder = one_vm("echo c >/proc/sysrq-trigger", "");
    let (output, report) = run(folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("VM app is gone") && stderr.contains("Kernel panic"), "{stderr}");
    assert!(report["incomplete"].as_str().unwrap().contains("VM app is gone"), "{report}");
}

#[test]
fn guest_that_hangs_is_not_waited_for() {
    // The second run hangs, and the third finds a VM that was booted anew.
    let folder =
        one_vm("[ -e /tmp/second ] && sleep 1000; echo >/tmp/second", "warmup_rounds = 1\nrun_timeout = \"15s\"");
    let (output, report) = run(folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("did not answer in time"), "{stderr}");
    let runs = report["runs"].as_array().unwrap();
    let statuses: Vec<&Value> = runs.iter().map(|run| &run["exit_status"]).collect();
    assert_eq!(statuses, [&Value::from(0), &Value::from(124), &Value::from(0)], "{report}");
    assert!(runs[1]["failure"].as_str().unwrap().contains("run_timeout (15s)"), "{}", runs[1]);
    assert_eq!(report["vms"][0]["boots"], 2, "{}", report["vms"]);
    let row = &report["summary"][0];
    assert_eq!((&row["n"], &row["failed"]), (&Value::from(1), &Value::from(1)), "{row}");
    assert_eq!(report["incomplete"], Value::Null);
}

#[test]
fn guest_hands_back_a_commands_metric_and_result() {
    let command = r#"gleaner workload request-reply --threads 1 --items 50 --json "$GLEANER_WORKLOAD_JSON" >/dev/null
[ -e /tmp/second ] || echo 'took: 250 us'; echo >/tmp/second"#;
    let folder = one_vm(command, "");
    let path = folder.path().join("scenario.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("command = [", "metric = 'took: ([0-9]+) us', better = \"lower\", command = ["))
        .unwrap();
    let (output, report) = run(folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [first, second] = report["runs"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(first["metric"], serde_json::json!({"value": 250.0, "higher_is_better": false}), "{first}");
    assert!(first["latency"]["p50_ns"].as_u64().is_some_and(|ns| ns > 0), "the workload's own result: {first}");
    assert_eq!((&first["failure"], &first["output"]), (&Value::Null, &Value::Null));
    assert!(second["failure"].as_str().is_some_and(|why| why.contains("no match")), "{second}");
    assert!(second["output"].is_string() && second["exit_status"] == 0, "{second}");
    assert!(first["checksum"].is_string() && first["checksum"] == second["checksum"], "the same work: {second}");
    assert_eq!(report["summary"][0]["failed"], 1, "{}", report["summary"]);
}

/// A runner in the middle of a run, and its VM's process.
fn in_the_middle(folder: &Path) -> (Child, u32) {
    let mut runner = runner(&folder.join("scenario.toml"), &folder.join("out.json"));
    let mut runner = runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(240);
    loop {
        assert!(Instant::now() < end && runner.try_wait().unwrap().is_none(), "the runner did not come to a run");
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", runner.id())).unwrap_or_default();
        let is_vm =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("qemu"));
        let vm = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_vm);
        if let Some(vm) = vm
            && !cgroups_of(runner.id()).is_empty()
        {
            return (runner, vm);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn cgroups_of(runner: u32) -> Vec<PathBuf> {
    let prefix = format!("gleaner-testbed-{runner}-");
    let in_folder = |folder: PathBuf| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let mut all: Vec<PathBuf> = in_folder("/sys/fs/cgroup".into());
    all.extend(in_folder("/sys/fs/cgroup/cpu".into()));
    all.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    all
}

/// Whether it holds within a minute.
fn soon(what: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn guest_and_its_cap_go_with_a_runner_that_is_killed() {
    let folder = one_vm("sleep 1000", "");
    let (mut runner, vm) = in_the_middle(folder.path());
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(soon(|| is_gone(vm)), "QEMU ({vm}) goes on");
    assert!(soon(|| cgroups_of(runner.id()).is_empty()), "left: {:?}", cgroups_of(runner.id()));
}

#[test]
fn guest_ends_in_order_when_the_runner_is_interrupted() {
    let folder = one_vm("sleep 1000", "");
    let (mut runner, vm) = in_the_middle(folder.path());
    let interrupted = Command::new("kill").args(["-INT", &runner.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(runner.wait().unwrap().code(), Some(130));
    assert!(is_gone(vm) && cgroups_of(runner.id()).is_empty());
    assert_eq!(read(&folder.path().join("out.json"))["incomplete"], "interrupted");
}
