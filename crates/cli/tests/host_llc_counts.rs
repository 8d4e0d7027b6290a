//! `gleaner host llc` as a whole: counts -> classes -> threads moved -> other counts, until the end, and everything
//! undone.
//!
//! The machines that tests run on have neither a thread's cache counters nor cache allocation. Both are played here by
//! one kernel of the test's own (act's tests/support): it takes and refuses what resctrl takes and refuses, and its
//! counters answer to where a thread is. The command, its loop, its policy, its journal, and the threads that it moves
//! are real. Nothing is told (`--class`).

#[path = "../../act/tests/support/fake_resctrl.rs"]
mod fake_resctrl;

mod common;

use common::machine::guardian_of;
use common::{LONGEST_WAIT, gleaner, send};
use fake_resctrl::{FakeResctrl, Machine, Nature};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

/// A process that stands for a VM; ended with the test.
struct Vm(Child);

impl Vm {
    fn start(fake: &FakeResctrl, nature: Nature) -> Self {
        let vm = Self(Command::new("sleep").arg("60").env_clear().spawn().unwrap());
        fake.play(vm.pid(), nature);
        vm
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn threads(&self) -> Vec<i32> {
        let entries = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn llc(fake: &FakeResctrl, vms: &[&Vm], more: &[&str]) -> Command {
    let mut command = gleaner(["host", "llc", "--interval", "20ms", "--json", "--resctrl"]);
    command.arg(fake.path()).arg("--counters").arg(fake.counters());
    for vm in vms {
        command.args(["--pid", &vm.pid().to_string()]);
    }
    command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONGEST_WAIT, "waited in vain until {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Which of our groups a VM's threads are all in; `None`: in the root's.
fn place(fake: &FakeResctrl, vm: &Vm) -> Option<&'static str> {
    let groups: Vec<String> = fake.groups().into_iter().filter(|name| !name.contains('/')).collect();
    let threads = vm.threads();
    ["thrash", "friendly"].into_iter().find(|kind| {
        let group = groups.iter().find(|name| name.starts_with("gleaner-") && name.ends_with(kind));
        group.is_some_and(|group| threads.iter().all(|tid| fake.holds(group, *tid)))
    })
}

fn vm<'a>(json: &'a Value, vm: &Vm) -> &'a Value {
    let vms = json["vms"].as_array().unwrap();
    vms.iter().find(|found| found["pid"] == vm.pid()).unwrap_or_else(|| panic!("{json:#}"))
}

#[test]
fn each_vm_gets_what_its_counts_say_and_all_is_undone() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let (batch, web, quiet) =
        (Vm::start(&fake, Nature::THRASHING), Vm::start(&fake, Nature::FRIENDLY), Vm::start(&fake, Nature::CPU_BOUND));
    let child = llc(&fake, &[&batch, &web, &quiet], &["--period", "1000"]).spawn().unwrap();
    until("both are where they belong", || {
        (place(&fake, &batch), place(&fake, &web)) == (Some("thrash"), Some("friendly"))
    });
    assert_eq!(place(&fake, &quiet), None);
    send(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    for (of, class, share) in
        [(&batch, "thrashing", "minimal"), (&web, "cache-friendly", "rest"), (&quiet, "CPU-bound", "untouched")]
    {
        let found = vm(&json, of);
        assert_eq!((&found["class"], &found["share"], &found["told"]), (&class.into(), &share.into(), &false.into()));
    }
    // The friendly one missed as a thrashing one does, until the other was confined: it was never taken for one.
    let moves: Vec<(i64, &str)> = json["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["pid"].as_i64().unwrap(), change["to"].as_str().unwrap()))
        .collect();
    assert_eq!(moves, [(batch.pid().into(), "minimal"), (web.pid().into(), "rest")], "{json:#}");
    let misses = |of: &Vm, figure: &str| vm(&json, of)[figure].as_f64();
    assert_eq!((misses(&web, "misses_full_pki"), misses(&batch, "misses_minimal_pki")), (Some(2.0), Some(30.0)));
    let log = fake.take_log();
    let masks: Vec<&String> = log.iter().filter(|line| line.contains("schemata < ")).collect();
    assert!(masks.iter().any(|line| line.contains("-thrash/") && line.contains("0=400;1=400")), "{masks:?}");
    assert!(masks.iter().any(|line| line.contains("-friendly/") && line.contains("0=3ff;1=3ff")), "{masks:?}");
    assert!(!log.iter().any(|line| line.contains(&format!("/tasks < {}", quiet.pid())) && line.contains("-thrash/")));
    assert_eq!((json["restored"].as_bool(), fake.groups()), (Some(true), Vec::new()));
    assert!([&batch, &web, &quiet].iter().all(|vm| fake.holds("", vm.pid())));
}

#[test]
fn a_vm_that_changes_moves_and_moves_back() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let (batch, web) = (Vm::start(&fake, Nature::THRASHING), Vm::start(&fake, Nature::FRIENDLY));
    let child = llc(&fake, &[&batch, &web], &["--period", "4"]).spawn().unwrap();
    let places = || (place(&fake, &batch), place(&fake, &web));
    until("both are where they belong", || places() == (Some("thrash"), Some("friendly")));
    // Seen in any two intervals.
    fake.play(web.pid(), Nature::THRASHING);
    until("the one that thrashes now is confined too", || places() == (Some("thrash"), Some("thrash")));
    // Seen only when it is lent the cache for a sample.
    fake.play(batch.pid(), Nature::FRIENDLY);
    until("the one that uses the cache now has it", || places() == (Some("friendly"), Some("thrash")));
    // It fills nothing any more: back to where it was before everything.
    fake.play(batch.pid(), Nature::CPU_BOUND);
    until("the one that needs no cache now is let go", || place(&fake, &batch).is_none());
    send(i32::try_from(child.id()).unwrap(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let json = report(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!((&vm(&json, &batch)["class"], &vm(&json, &web)["class"]), (&"CPU-bound".into(), &"thrashing".into()));
    assert!(json["changes"].to_string().contains("a sample"), "{json:#}");
    assert!(fake.groups().is_empty());
}

#[test]
fn a_processor_that_takes_an_empty_mask_lets_the_thrashing_fill_nothing() {
    let amd = Machine { min_cbm_bits: 0, sparse_masks: true, shareable_bits: 0, ..Machine::default() };
    let Some(fake) = FakeResctrl::mount(Machine { cbm_mask: 0xffff, ..amd }) else { return };
    let (batch, web) = (Vm::start(&fake, Nature::THRASHING), Vm::start(&fake, Nature::FRIENDLY));
    let child = llc(&fake, &[&batch, &web], &["--period", "1000"]).spawn().unwrap();
    until("both are where they belong", || {
        (place(&fake, &batch), place(&fake, &web)) == (Some("thrash"), Some("friendly"))
    });
    send(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    let json = report(&child.wait_with_output().unwrap());
    assert_eq!((&json["groups"][0]["ways_mask"], &json["groups"][1]["ways_mask"]), (&"0".into(), &"ffff".into()));
    let log = fake.take_log();
    assert!(log.iter().any(|line| line.contains("-thrash/schemata < L3:0=0;1=0")), "{log:?}");
    assert!(fake.groups().is_empty());
}

#[test]
fn after_a_kill_of_all_of_it_restore_undoes_it_on_this_machine() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let batch = Vm::start(&fake, Nature::THRASHING);
    let mut child = llc(&fake, &[&batch], &[]).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    until("it is confined", || place(&fake, &batch) == Some("thrash"));
    let guardian = guardian_of(pid).expect("there is a guardian");
    for pid in [guardian, pid] {
        send(pid, libc::SIGKILL);
    }
    child.wait().unwrap();
    assert_eq!(place(&fake, &batch), Some("thrash"), "nobody is left to undo it");
    let restored = gleaner(["restore"]).output().unwrap();
    assert_eq!(restored.status.code(), Some(0), "{}", String::from_utf8_lossy(&restored.stderr));
    assert!(fake.groups().is_empty() && fake.holds("", batch.pid()), "{:?}", fake.groups());
}

#[test]
fn a_thread_without_counters_is_named_and_the_others_are_judged() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let workload = gleaner(["workload", "freqsleep", "--threads", "2", "--seconds", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (half, none) = (Vm(workload), Vm::start(&fake, Nature::THRASHING));
    until("its threads are there", || half.threads().len() >= 3);
    // Only one thread of the first can be counted, and none of the second.
    fake.play(half.pid(), Nature::THRASHING);
    fake.state().load.natures.remove(&none.pid());
    let child = llc(&fake, &[&half, &none], &[]).spawn().unwrap();
    until("all threads of the first are confined", || place(&fake, &half) == Some("thrash"));
    send(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    let json = report(&output);
    let warnings: Vec<&str> = json["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let of = |vm: &Vm| -> &str {
        let mut mine = warnings.iter().filter(|text| text.contains(&format!("(pid {})", vm.pid())));
        let found = mine.next().unwrap_or_else(|| panic!("{warnings:?}"));
        assert_eq!(mine.next(), None, "said once");
        found
    };
    assert!(of(&half).contains("of its") && of(&half).contains("it is judged by the others"), "{warnings:?}");
    assert!(of(&none).contains("1 of its 1 threads") && of(&none).contains("cannot be judged"), "{warnings:?}");
    assert_eq!((&vm(&json, &none)["class"], &vm(&json, &none)["share"]), (&Value::Null, &"untouched".into()));
    assert_eq!(output.status.code(), Some(0), "{json:#}");
}

#[test]
fn without_changing_anything_it_says_what_they_are() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let (batch, web) = (Vm::start(&fake, Nature::THRASHING), Vm::start(&fake, Nature::CPU_BOUND));
    for mode in ["--monitor-only", "--dry-run"] {
        let length: &[&str] = if mode == "--dry-run" { &[mode] } else { &[mode, "--for", "100ms"] };
        let output = llc(&fake, &[&batch, &web], length).output().unwrap();
        let json = report(&output);
        assert_eq!(output.status.code(), Some(0), "{json:#}");
        assert_eq!(
            (&vm(&json, &batch)["class"], &vm(&json, &web)["class"]),
            (&"thrashing".into(), &"CPU-bound".into())
        );
        assert_eq!((json["changed"].as_bool(), fake.take_log()), (Some(false), Vec::new()));
    }
}
