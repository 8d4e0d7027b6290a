//! `gleaner host llc` from beginning to end, on a resctrl that answers as the kernel's does (act's
//! tests/support/fake_resctrl.rs). Classes are told: the machines that tests run on have no counters. What is judged is
//! decide's to test.

#[path = "../../act/tests/support/fake_resctrl.rs"]
mod fake_resctrl;

#[path = "../../report/tests/support/frozen.rs"]
mod frozen;

use fake_resctrl::{FakeResctrl, Machine};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A process that stands for a VM; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").env_clear().spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn llc(fake: &FakeResctrl, told: &[(&Sleeper, &str)], more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner"));
    command.args(["host", "llc", "--interval", "20ms", "--resctrl"]).arg(fake.path());
    for (vm, class) in told {
        command.args(["--pid", &vm.pid().to_string(), "--class", &format!("{}={class}", vm.pid())]);
    }
    command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The group of ours whose name ends so, while there is one.
fn group(fake: &FakeResctrl, kind: &str) -> Option<String> {
    fake.groups().into_iter().find(|name| name.starts_with("gleaner-") && name.ends_with(kind))
}

#[test]
fn each_is_where_its_class_belongs_and_all_is_undone() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let (batch, web, quiet) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let told = [(&batch, "thrashing"), (&web, "cache-friendly"), (&quiet, "cpu-bound")];
    let output = llc(&fake, &told, &["--for", "200ms", "--json"]).output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!(json["schema"], "gleaner.llc/1");
    frozen::check(&json);
    assert_eq!(
        (&json["changed"], &json["restored"], &json["missing"]),
        (&true.into(), &true.into(), &serde_json::json!([]))
    );
    let groups: Vec<&str> = (0..2).map(|at| json["groups"][at]["ways_mask"].as_str().unwrap()).collect();
    assert_eq!(groups, ["400", "3ff"]);
    let shares: Vec<&str> = (0..3).map(|at| json["vms"][at]["share"].as_str().unwrap()).collect();
    assert_eq!(shares, ["minimal", "rest", "untouched"]);
    assert_eq!(json["vms"][0]["occupancy_bytes"], 131_072);
    let log = fake.take_log();
    let joined =
        |kind: &str, vm: &Sleeper| log.iter().any(|line| line.contains(&format!("-{kind}/tasks < {}", vm.pid())));
    assert!(joined("thrash", &batch) && joined("friendly", &web), "{log:?}");
    assert!(!log.iter().any(|line| line.contains(&format!("thrash/tasks < {}", quiet.pid()))), "{log:?}");
    assert!(fake.groups().is_empty() && fake.holds("", batch.pid()));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("thrashing VMs filled the ways 400") && words.contains("Everything was undone"), "{words}");
}

#[test]
fn a_kill_or_a_signal_leaves_nothing_behind() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT] {
        let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
        let batch = Sleeper::start();
        let mut child = llc(&fake, &[(&batch, "thrashing")], &["--json"]).spawn().unwrap();
        until("the thread is in its group", || {
            group(&fake, "thrash").is_some_and(|name| fake.holds(&name, batch.pid()))
        });
        // SAFETY: kill takes no memory; the child has not been waited for.
        unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) };
        let status = child.wait().unwrap();
        assert_eq!(status.code(), (signal != libc::SIGKILL).then_some(0));
        until("it is undone", || fake.groups().is_empty());
        assert!(fake.holds("", batch.pid()));
    }
}

#[test]
fn threads_that_come_later_join_and_a_vm_that_ends_ends_it() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let batch = Sleeper::start();
    let child = llc(&fake, &[(&batch, "thrashing")], &["--json"]).spawn().unwrap();
    until("the thread is in its group", || group(&fake, "thrash").is_some_and(|name| fake.holds(&name, batch.pid())));
    drop(batch);
    let output = child.wait_with_output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0));
    assert!(json["warnings"].to_string().contains("gone"), "{json:#}");
    assert!(fake.groups().is_empty());
}

#[test]
fn somebody_elses_threads_are_left_alone() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let theirs = Sleeper::start();
    let libvirt = fake.path().join("qemu-1-web");
    fs::create_dir(&libvirt).unwrap();
    fs::write(libvirt.join("tasks"), theirs.pid().to_string()).unwrap();
    let output = llc(&fake, &[(&theirs, "thrashing")], &["--for", "100ms", "--json"]).output().unwrap();
    let json = report(&output);
    assert_eq!(json["vms"][0]["threads_left_alone"], 1, "{json:#}");
    assert!(fake.holds("qemu-1-web", theirs.pid()));
    assert_eq!(fake.groups(), ["qemu-1-web"]);
}

#[test]
fn what_a_host_lacks_is_said_and_nothing_is_changed() {
    let batch = Sleeper::start();
    for (machine, word) in [
        (Machine { cat: false, ..Machine::default() }, "no CAT"),
        (Machine { closids: 1, ..Machine::default() }, "Out of CLOSIDs"),
        (Machine { exclusive: 0x7fe, ..Machine::default() }, "cannot be divided"),
    ] {
        let Some(fake) = FakeResctrl::mount(machine) else { return };
        let output = llc(&fake, &[(&batch, "thrashing")], &["--json"]).output().unwrap();
        let json = report(&output);
        assert_eq!(output.status.code(), Some(1), "{json:#}");
        assert!(json["missing"].to_string().contains(word), "{json:#}");
        assert_eq!((&json["changed"], &json["restored"]), (&false.into(), &true.into()));
        assert_eq!(fake.take_log(), Vec::<String>::new());
        assert!(String::from_utf8_lossy(&output.stderr).contains("Nothing was changed"));
    }
}

#[test]
fn with_one_class_of_service_left_the_thrashing_are_confined_all_the_same() {
    let Some(fake) = FakeResctrl::mount(Machine { closids: 2, ..Machine::default() }) else { return };
    let (batch, web) = (Sleeper::start(), Sleeper::start());
    let told = [(&batch, "thrashing"), (&web, "cache-friendly")];
    let output = llc(&fake, &told, &["--for", "100ms", "--json"]).output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!(json["groups"].as_array().unwrap().len(), 1);
    assert!(json["warnings"].to_string().contains("stay where they are"), "{json:#}");
    assert!(fake.groups().is_empty());
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be() {
    let Some(fake) = FakeResctrl::mount(Machine { min_cbm_bits: 0, sparse_masks: true, ..Machine::default() }) else {
        return;
    };
    let batch = Sleeper::start();
    let output = llc(&fake, &[(&batch, "thrashing")], &["--dry-run", "--json"]).output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!((&json["changed"], &json["vms"][0]["share"]), (&false.into(), &"minimal".into()));
    assert_eq!((&json["groups"][0]["ways_mask"], &json["groups"][0]["name"]), (&"0".into(), &Value::Null));
    assert_eq!(fake.take_log(), Vec::<String>::new());
}

#[test]
fn this_host_says_what_it_lacks() {
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap();
    if filesystems.contains("resctrl") {
        gleaner_testing::skip!("needs a host without resctrl");
    }
    let batch = Sleeper::start();
    let pid = batch.pid().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner"))
        .args(["host", "llc", "--pid", &pid, "--class", &format!("{pid}=thrashing")])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("no CAT") && words.contains("Nothing was changed"), "{words}");
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    for (args, word) in [
        (&["--pid", "2147483646"][..], "no such process"),
        (&["--vm", "no-such-vm"], "no-such-vm"),
        (&["--pid", "1", "--class", "other=thrashing"], "no VM that is looked at"),
        (&["--pid", "1", "--class", "1=fast"], "is no class"),
        (&["--for", "1ns"], "write 10ms"),
        (&["--dry-run", "--monitor-only"], "cannot be used with"),
        (&["--period", "1"], "4"),
    ] {
        let output = llc(&fake, &[], args).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {words}");
        assert!(words.contains(word), "{args:?}: {words}");
    }
    assert_eq!(fake.take_log(), Vec::<String>::new());
}
