//! `--capture` of `run` and `attach`, `gleaner replay` and `gleaner dump`.

mod common;

use common::daemon::{Daemon, WATCHED, group};
use common::program::Program;
use common::{Said, comes_true, finish, gleaner, is_root, run};
use serde_json::Value;
use std::path::Path;

/// Two threads that hand over to each other, long enough for a trial: for three seconds, and not so many times.
const PROGRAM: &str = "end=$(($(date +%s) + 4)); while [ $(date +%s) -lt $end ]; do echo | cat >/dev/null; done";

fn captured(file: &Path, options: &[&str]) -> Said {
    let mut command = run(["--capture"]);
    command.arg(file).args(options).args(["--", "sh", "-c", PROGRAM]);
    finish(&mut command)
}

fn replay(file: &Path, options: &[&str]) -> Said {
    finish(gleaner(["replay"]).arg(file).args(options))
}

fn dump(file: &Path, options: &[&str]) -> Said {
    finish(gleaner(["dump"]).arg(file).args(options))
}

fn report(said: &Said) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[test]
fn a_run_is_recorded_and_decided_again_to_the_last_byte_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.capture");
    let json = folder.path().join("run.json");
    captured(&file, &["--json", json.to_str().unwrap()]).with_status(0);
    let run: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let found = report(&replay(&file, &["--json"]).with_status(0));
    assert_eq!(
        (found["identical"].as_bool(), found["recorded_by"].as_str()),
        (Some(true), Some(env!("CARGO_PKG_VERSION")))
    );
    let group = &found["groups"][0];
    assert_eq!((group["name"].as_str(), &group["windows"]), (Some("sh"), &run["windows"]));
    // Each decision that the run tells is there, with its reason.
    let decisions = dump(&file, &["--json", "--what", "decisions"]).with_status(0).stdout;
    let lines = decisions.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<Value> = lines.filter(|line| line["what"] == "decision").collect();
    let run_told = run["decisions"].as_array().unwrap();
    assert_eq!(told.len(), run_told.len());
    for (told, run) in told.iter().zip(run_told) {
        for key in ["at_ns", "action", "vcpu", "reason"] {
            assert_eq!(told[key], run[key], "{told}");
        }
    }
    // Other parameters are told, and the status stays 0.
    let other = report(&replay(&file, &["--json", "--set", "load_factor=0.25"]).with_status(0));
    assert_eq!(other["changed"][0], serde_json::json!({"key": "load_factor", "recorded": "1.0", "replayed": "0.25"}));
    replay(&file, &["--set", "load_factor=9"]).with_status(2).naming(&["load_factor = 9"]);
    replay(&file, &["--set", "lod_factor=1"]).with_status(2).naming(&["no such key", "gleaner params"]);
}

#[test]
fn with_another_profile_of_numbers_decisions_differ() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.capture");
    captured(&file, &["--observer", "procfs", "--retain", "yielding", "--policy", "retain", "--no-trial"])
        .with_status(0);
    let config = folder.path().join("other.toml");
    // Then nothing is retained until a trial has shown that it pays.
    std::fs::write(&config, "retention_trials = true\n").unwrap();
    let said = replay(&file, &["--config", config.to_str().unwrap(), "--set", "load_factor=0.5"]).with_status(0);
    assert!(said.stdout.contains("with retention_trials = true instead of false"), "{said:?}");
    assert!(said.stdout.contains("  then  ") && said.stdout.contains("  now   "), "{said:?}");
    std::fs::write(&config, "turns_cpus_max = \"x\"\n").unwrap();
    replay(&file, &["--config", config.to_str().unwrap()]).with_status(2).naming(&["other.toml"]);
}

#[test]
fn what_runs_already_is_recorded_too() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("attach.capture");
    let pid = program.pid().to_string();
    // Where they cost much, windows last for a second.
    let recorded = |time: &str| {
        let mut attach = gleaner(["attach", "--pid", &pid, "--for", time, "--policy", "observe", "--capture"]);
        finish(attach.arg(&file)).with_status(0);
        let found = report(&replay(&file, &["--json"]).with_status(0));
        found["groups"][0]["windows"].as_u64() > Some(5)
    };
    assert!(["2s", "10s", "40s"].into_iter().any(recorded));
    let text = dump(&file, &[]).with_status(0).stdout;
    assert!(text.starts_with("recorded by gleaner ") && text.contains(" window, ") && text.contains("recording ended"));
    program.ends_well();
}

#[test]
fn a_damaged_file_gives_what_can_be_read_and_says_where_it_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.capture");
    captured(&file, &["--policy", "observe"]).with_status(0);
    let bytes = std::fs::read(&file).unwrap();
    let whole = dump(&file, &["--json"]).with_status(0).stdout;
    let cut = folder.path().join("cut.capture");
    std::fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    let said = dump(&cut, &[]).with_status(1);
    assert!(said.stderr.contains("cut.capture: damaged at byte ") && said.stderr.contains("ends within a frame"));
    assert!(said.stdout.contains("recorded by gleaner"), "{said:?}");
    let json = dump(&cut, &["--json"]).with_status(1).stdout;
    let before = json.lines().take_while(|line| !line.contains("\"what\":\"damage\"")).count();
    assert!(before > 0 && json.lines().zip(whole.lines()).take(before).all(|(cut, whole)| cut == whole));
    let found = report(&replay(&cut, &["--json"]).with_status(1));
    assert!(found["damage"]["offset"].as_u64() > Some(9) && found["identical"] == false, "{found}");
    for (text, told) in [(&b"{}"[..], "no capture"), (b"", "no capture")] {
        std::fs::write(&cut, text).unwrap();
        for command in ["dump", "replay"] {
            finish(gleaner([command]).arg(&cut)).with_status(2).naming(&["cut.capture: ", told]);
        }
    }
    dump(Path::new("/no/such/file"), &[]).with_status(2).naming(&["/no/such/file"]);
    replay(folder.path(), &[]).with_status(2).naming(&["cannot read"]);
}

#[test]
fn a_full_disk_and_a_full_file_cost_nobody_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small.capture");
    let program = ["--", "sh", "-c", "sleep $0; echo ran; exit 3"];
    // Until it was to be written to the disk.
    let stopped = |run: &dyn Fn(&str) -> Said| {
        let ran = |seconds| run(seconds).with_status(3).saying("ran\n");
        let stops = |said: &Said| said.stderr.contains("recording has stopped");
        let said = ["2", "10", "40"].into_iter().map(ran).find(stops).expect("it stops");
        assert_eq!(said.stderr.matches("recording has stopped").count(), 1, "{said:?}");
        said
    };
    let said = stopped(&|seconds| finish(run(["--capture", "/dev/full"]).args(program).arg(seconds)));
    assert!(said.stderr.contains("No space left on device"), "{said:?}");
    finish(run(["--capture"]).arg(&small).args(["--capture-limit", "1k"]).args(program))
        .with_status(2)
        .naming(&["write 64k to 1G"]);
    finish(run(["--capture", "/no/such/folder/x"]).args(program)).with_status(2).naming(&["cannot write --capture"]);
    finish(run(["--policy", "off", "--capture"]).arg(&small).args(program).arg("0")).with_status(3).saying("ran\n");
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    // A disk that fills up while the program runs: there is less room than a second of windows takes.
    let script = "mkdir -p $W/small && mount -t tmpfs -o size=4k none $W/small && head -c 4096 /dev/zero >$W/small/full 2>/dev/null; \
                  exec $G run --retain-for 1ms --capture $W/small/run.capture -- sh -c 'sleep $0; echo ran; exit 3' $0";
    stopped(&|seconds| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", script, seconds]).env("G", common::GLEANER).env("W", folder.path());
        finish(command.env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID"))
    });
}

/// Counts windows of a group in a capture.
fn windows(found: &Value, name: &str) -> u64 {
    let of_group = found["groups"].as_array().unwrap().iter().filter(|group| group["name"] == name);
    of_group.map(|group| group["windows"].as_u64().unwrap()).sum()
}

#[test]
fn the_daemons_recorder_tells_what_was_and_what_comes() {
    let (one, two, folder) = (Program::start(), Program::start(), tempfile::tempdir().unwrap());
    let groups = group("one", &one, "profile = \"latency\"\n[group.one.params]\nload_factor = 0.5")
        + &group("two", &two, WATCHED);
    let mut daemon = Daemon::start(&("[capture]\nsize = \"1M\"\n[daemon]\nretain = \"none\"\n".to_owned() + &groups));
    let file = folder.path().join("a.capture");
    let taken = |options: &[&str]| {
        let words = [&["capture", file.to_str().unwrap()], options].concat();
        daemon.asked(&words).with_status(0);
        report(&replay(&file, &["--json"]).with_status(0))
    };
    let some = || comes_true(|| windows(&taken(&[]), "one") > 5);
    assert!(some());
    let found = taken(&[]);
    assert!(found["identical"] == true && windows(&found, "two") > 5, "{found}");
    let decided = |group: &Value| group["name"] == "one" && !group["actions"].as_array().unwrap().is_empty();
    assert!(found["groups"].as_array().unwrap().iter().any(decided), "{found}");
    // From now on: the segments before are not in it, and each decision can be decided again all the same.
    let before = windows(&found, "one");
    let words = ["capture", file.to_str().unwrap(), "--for", "1s"];
    daemon.asked(&words).with_status(0);
    let now = report(&replay(&file, &["--json"]).with_status(0));
    let count = windows(&now, "one");
    assert!(now["identical"] == true && count > 0 && count < before + 20, "{now}");
    let text = dump(&file, &[]).with_status(0).stdout;
    assert!(text.contains("one: policy retain, profile latency, load_factor = 0.5"), "{text}");
    // A reload with other settings begins anew, without them there is nothing.
    std::fs::write(daemon.configuration(), groups).unwrap();
    daemon.asked(&["reload"]).with_status(0);
    daemon.asked(&["capture", "/tmp/x"]).with_status(1).naming(&["nothing is recorded", "--for"]);
    assert!(!daemon.state().join("capture").exists());
    let taken = report(&daemon.asked(&[&words[..], &["--json"]].concat()).with_status(0));
    assert_eq!((&taken["recorded_ns"], &taken["segments"]), (&1_000_000_000_u64.into(), &1.into()), "{taken}");
    assert_eq!(taken["file_bytes"].as_u64(), Some(std::fs::metadata(&file).unwrap().len()));
    let asked = report(&replay(&file, &["--json"]).with_status(0));
    assert!(asked["identical"] == true && windows(&asked, "two") > 0, "{asked}");
    assert!(daemon.is_running());
    assert_eq!(daemon.ends(), (Some(0), false));
    [one, two].into_iter().for_each(Program::ends_well);
}

#[test]
fn what_a_named_folder_has_stays_and_a_killed_daemons_is_gone_on_with() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let ring = folder.path().join("ring");
    let configuration = format!("[capture]\nfolder = \"{}\"\n", ring.display()) + &group("one", &program, WATCHED);
    let segments = || {
        let mut all: Vec<_> =
            std::fs::read_dir(&ring).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    };
    let daemon = Daemon::start(&configuration);
    assert!(comes_true(|| segments().len() == 1 && std::fs::metadata(&segments()[0]).unwrap().len() > 1_000));
    daemon.signal(libc::SIGKILL);
    drop(daemon);
    let second = Daemon::start(&configuration);
    assert!(comes_true(|| segments().len() == 2 && std::fs::metadata(&segments()[1]).unwrap().len() > 1_000));
    assert_eq!(second.ends(), (Some(0), false));
    assert_eq!(segments().len(), 2);
    let file = folder.path().join("both.capture");
    let both: Vec<u8> = segments().iter().flat_map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::write(&file, both).unwrap();
    let found = report(&replay(&file, &["--json"]).with_status(0));
    assert_eq!((found["identical"].as_bool(), found["groups"].as_array().unwrap().len()), (Some(true), 2), "{found}");
    program.ends_well();
}
