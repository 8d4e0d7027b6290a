//! `gleaner attach`: to a process, to a cgroup; nothing of the program's is touched, and nothing is left.

mod common;

use common::machine::{idle_values, threads_of};
use common::program::Program;
use common::{Killed, Said, comes_true, finish, gleaner, is_root, pid_of, send, text_of};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn attach(args: &[&str], json: &Path) -> Said {
    finish(gleaner(["attach", "--json", json.to_str().unwrap()]).args(args))
}

fn report(json: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn it_watches_and_retains_what_runs_already_and_leaves_it_as_it_was_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("attach.json");
    let (before, mut program) = (idle_values(), Program::start());
    let pid = program.pid().to_string();
    // Another profile retains nothing where yielding threads are all there is and a halted vCPU answers as soon. On a
    // busy machine it may take a while.
    let retains = ["1s", "5s", "25s"].into_iter().any(|time| {
        let args = ["--pid", &pid, "--for", time, "--no-trial", "--profile", "latency"];
        attach(&args, &json).with_status(0).naming(&["attached to process", &pid]);
        let report = report(&json);
        assert_eq!((report["attached"].as_bool(), report["restored"].as_bool()), (Some(true), Some(true)), "{report}");
        let decisions = report["decisions"].as_array().unwrap();
        assert!(decisions.iter().all(|decision| decision["action"] != "deactivate"), "{report}");
        assert_eq!(idle_values(), before);
        assert!(program.is_running(), "attaching ended the program");
        let is_seen = report["cpu_time_ns"].as_u64() > Some(0) && report["threads_max"].as_u64() > Some(1);
        is_seen && decisions.iter().any(|decision| decision["action"] == "retain")
    });
    assert!(retains, "{}", report(&json));
    program.ends_well();
}

#[test]
fn it_ends_with_what_it_is_attached_to() {
    let folder = tempfile::tempdir().unwrap();
    let [json, said] = ["attach.json", "said"].map(|name| folder.path().join(name));
    let program = Program::start();
    let mut command = gleaner(["attach", "--pid", &program.pid().to_string(), "--policy", "observe", "--json"]);
    let attached = command.arg(&json).stdin(Stdio::null()).stderr(std::fs::File::create(&said).unwrap()).spawn();
    let mut attached = Killed(attached.unwrap());
    assert!(comes_true(|| text_of(&said).contains("attached to process")), "{}", text_of(&said));
    program.ends_well();
    assert!(comes_true(|| attached.0.try_wait().unwrap().is_some()), "it does not end");
    assert!(attached.0.wait().unwrap().success(), "{}", text_of(&said));
    assert_eq!(report(&json)["means"]["retention"], serde_json::Value::Null);
}

#[test]
fn a_kill_is_undone_on_this_machine() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    haltpoll_is_free!();
    let (before, mut program) = (idle_values(), Program::start());
    let mut command = gleaner(["attach", "--no-trial", "--quiet", "--pid", &program.pid().to_string()]);
    let mut attached = command.spawn().unwrap();
    if Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(comes_true(|| idle_values() != before), "nothing was retained");
    } else {
        gleaner_testing::skipped("no cpuidle driver");
        std::thread::sleep(Duration::from_millis(500));
    }
    send(pid_of(&attached), libc::SIGKILL);
    attached.wait().unwrap();
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    assert!(program.is_running());
    program.ends_well();
}

#[test]
fn a_cgroups_processes_are_watched_as_they_come() {
    finish(gleaner(["attach", "--cgroup"]).arg(std::env::temp_dir())).with_status(2).naming(&["no such cgroup"]);
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let Some(top) = tops.into_iter().find(|top| top.join("cgroup.procs").exists()) else {
        gleaner_testing::skip!("needs a cgroup hierarchy of version 2");
    };
    let folder = top.join(format!("attach-test-{}.service", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut programs = vec![Program::start()];
    let enters = |program: &Program| std::fs::write(folder.join("cgroup.procs"), program.pid().to_string()).unwrap();
    enters(&programs[0]);
    let out = tempfile::tempdir().unwrap();
    let [json, said] = ["attach.json", "said"].map(|name| out.path().join(name));
    let unit = folder.file_stem().unwrap().to_str().unwrap().to_owned();
    let counted = |programs: &[Program]| programs.iter().map(|program| threads_of(program.pid()).len() as u64).sum();
    // Each time another one comes. It may take a while until a window has seen it.
    let is_seen = [1, 5, 25].into_iter().any(|seconds| {
        let mut command = gleaner(["attach", "--unit", &unit, "--policy", "observe", "--json"]);
        let attached = command.arg(&json).stdin(Stdio::null()).stderr(std::fs::File::create(&said).unwrap()).spawn();
        let mut attached = Killed(attached.unwrap());
        assert!(comes_true(|| text_of(&said).contains("attached to ")), "{}", text_of(&said));
        let others: u64 = counted(&programs);
        programs.push(Program::start());
        enters(&programs[programs.len() - 1]);
        // A thread of each comes and goes.
        assert!(comes_true(|| counted(&programs) > others + 6));
        std::thread::sleep(Duration::from_secs(seconds));
        send(pid_of(&attached.0), libc::SIGTERM);
        assert!(attached.0.wait().unwrap().success(), "{}", text_of(&said));
        report(&json)["threads_max"].as_u64() > Some(others + 4)
    });
    programs.into_iter().for_each(Program::ends_well);
    assert!(comes_true(|| std::fs::remove_dir(&folder).is_ok()));
    assert!(is_seen, "{}", report(&json));
}

#[test]
fn what_is_not_there_is_named() {
    for (args, why) in [
        (&["--pid", "999999999"][..], "no such process"),
        (&["--unit", "no-such-unit-at-all"], "no cgroup is called no-such-unit-at-all.service"),
        (&["--for", "5s"], "--pid"),
        (&["--pid", "1", "--unit", "x"], "cannot be used with"),
    ] {
        finish(gleaner(["attach"]).args(args)).with_status(2).naming(&[why]);
    }
}
