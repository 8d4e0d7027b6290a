//! The daemon's host agent, on a VM that is only threads with vCPUs' names, here in the test itself.

mod common;

use common::daemon::Daemon;
use common::machine::{children_of, command_line, guardian_of};
use common::program::Program;
use common::vm::Vm;
use common::{comes_true, own_pid, send};
use gleaner_model::Nanos;
use std::time::Duration;

fn host(slice: &str) -> String {
    format!("[host]\nvm = [\"{}\"]\nslice = \"{slice}\"\ninterval = \"200ms\"\n", own_pid())
}

fn status(daemon: &Daemon) -> serde_json::Value {
    serde_json::from_str(&daemon.asked(&["status", "--json"]).with_status(0).stdout).unwrap()
}

fn tells(daemon: &Daemon, words: &[&str], told: &[&str]) {
    let said = daemon.asked(words).with_status(0).stdout;
    assert!(told.iter().all(|told| said.contains(told)), "{told:?}: {said}");
}

fn agent_of(daemon: &Daemon) -> Option<i32> {
    children_of(daemon.pid()).into_iter().find(|pid| command_line(*pid).contains(" host run "))
}

#[test]
fn the_daemon_runs_the_agent_beside_its_groups_and_all_is_given_back_on_this_machine() {
    let (vm, program) = (Vm::start(), Program::start());
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let group = format!("[group.one]\npid = {}\nprofile = \"observe-only\"\n", program.pid());
    let mut daemon = Daemon::start(&(host("1ms") + &group));
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]));
    let slice = |daemon: &Daemon| status(daemon)["host"]["vms"][0]["slice_ns"].as_u64();
    assert!(comes_true(|| slice(&daemon) == Some(1_000_000)));
    let told = status(&daemon);
    assert_eq!((&told["groups"][0]["name"], &told["host"]["policy"]), (&"one".into(), &"static".into()), "{told}");
    assert_eq!(told["host"]["pid"].as_i64(), agent_of(&daemon).map(i64::from));
    tells(&daemon, &["status"], &["host agent, static: 1 VM, slices 1.00ms", "one"]);
    tells(&daemon, &["explain"], &["one (process", "host agent, static", "2 vCPUs: slice 1.00ms"]);
    tells(&daemon, &["explain", "host"], &["ago", "static"]);
    // Another slice takes another agent, and no group notices.
    std::fs::write(daemon.configuration(), host("3ms") + &group).unwrap();
    daemon.asked(&["reload"]).with_status(0);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(3); 2]));
    // Whoever kills it.
    let agent = agent_of(&daemon).unwrap();
    assert!(comes_true(|| guardian_of(agent).is_some()));
    send(agent, libc::SIGKILL);
    daemon.says("host agent: ended (signal 9), and will be started again");
    daemon.says("host agent: runs as process");
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(3); 2]));
    assert!(comes_true(|| slice(&daemon) == Some(3_000_000)));
    std::fs::write(daemon.configuration(), &group).unwrap();
    daemon.asked(&["reload"]).with_status(0);
    assert_eq!((vm.slices(), &status(&daemon)["host"]), (before.clone(), &serde_json::Value::Null));
    std::fs::write(daemon.configuration(), host("1ms")).unwrap();
    daemon.asked(&["reload"]).with_status(0);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]));
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(vm.slices(), before);
    program.ends_well();
}

#[test]
fn the_agent_ends_with_a_killed_daemon_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let daemon = Daemon::start(&host("1ms"));
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]));
    daemon.signal(libc::SIGKILL);
    assert!(comes_true(|| vm.slices() == before), "{:?}", vm.slices());
}

#[test]
fn who_only_watches_starts_no_agent() {
    let daemon = Daemon::start_as("[host]\n", |mut command| {
        command.arg("--dry-run");
        command
    });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(agent_of(&daemon), None);
    let told = status(&daemon);
    assert_eq!(told["host"]["why_not"], "not started (--dry-run)", "{told}");
    assert_eq!(told["groups"].as_array().unwrap().len(), 0, "nothing but VMs is its business: {told}");
    tells(&daemon, &["status"], &["host agent: not started"]);
    assert_eq!(daemon.ends(), (Some(0), false));
}
