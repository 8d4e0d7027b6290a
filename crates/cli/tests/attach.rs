//! `gleaner attach`: to a process, to a cgroup; nothing of the program's is touched, and nothing is left.

mod common;

use common::machine::{idle_values, threads_of};
use common::program::Program;
use common::{Said, comes_true, finish, gleaner, is_root, pid_of, send};
use std::path::Path;
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
    // Another profile retains nothing where yielding threads are all there is and a halted vCPU answers as soon.
    let args = ["--pid", &pid, "--for", "1s", "--no-trial", "--profile", "latency"];
    attach(&args, &json).with_status(0).naming(&["attached to process", &pid]);
    let report = report(&json);
    assert_eq!((report["attached"].as_bool(), report["restored"].as_bool()), (Some(true), Some(true)), "{report}");
    assert!(report["cpu_time_ns"].as_u64().unwrap() > 0 && report["threads_max"].as_u64().unwrap() > 1, "{report}");
    let decisions = report["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|decision| decision["action"] == "retain"), "{report}");
    assert!(decisions.iter().all(|decision| decision["action"] != "deactivate"), "{report}");
    assert_eq!(idle_values(), before);
    assert!(program.is_running(), "attaching ended the program");
    program.ends_well();
}

#[test]
fn it_ends_with_what_it_is_attached_to() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("attach.json");
    let program = Program::start();
    let pid = program.pid().to_string();
    let ended = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        program.ends_well();
    });
    attach(&["--pid", &pid, "--policy", "observe"], &json).with_status(0);
    ended.join().unwrap();
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
    let json = out.path().join("attach.json");
    let unit = folder.file_stem().unwrap().to_str().unwrap().to_owned();
    let attached = std::thread::spawn({
        let json = json.clone();
        move || attach(&["--unit", &unit, "--for", "2s", "--policy", "observe"], &json)
    });
    std::thread::sleep(Duration::from_millis(500));
    programs.push(Program::start());
    enters(&programs[1]);
    std::thread::sleep(Duration::from_millis(500));
    let both: usize = programs.iter().map(|program| threads_of(program.pid()).len()).sum();
    attached.join().unwrap().with_status(0);
    programs.into_iter().for_each(Program::ends_well);
    assert!(comes_true(|| std::fs::remove_dir(&folder).is_ok()));
    // Threads come and go; one program alone has half as many.
    let seen = report(&json)["threads_max"].as_u64().unwrap();
    assert!(seen >= both as u64 && seen < 2 * both as u64, "{seen} of {both}");
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
