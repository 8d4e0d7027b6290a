//! `gleaner host run` on VMs that are only threads with vCPUs' names, here in the test itself.

mod common;

use common::machine::guardian_of;
use common::vm::Vm;
use common::{comes_true, finish, gleaner, own_pid, pid_of, send, text_of};
use gleaner_act::{Journal, SliceOutcome, Slices};
use gleaner_model::Nanos;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn agent(more: &[&str]) -> Child {
    let pid = own_pid().to_string();
    let mut command = gleaner(["host", "run", "--vm", &pid, "--interval", "200ms"]);
    command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_slice_for_all_is_set_delivered_and_given_back_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("run.json");
    let mut agent = agent(&["--slice", "1ms", "--json", json.to_str().unwrap()]);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]));
    // A dozen windows, with slices and after them.
    std::thread::sleep(Duration::from_secs(3));
    send(pid_of(&agent), libc::SIGTERM);
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    assert_eq!(vm.slices(), before);

    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&report["schema"], &report["restored"]), (&"gleaner.host-run/1".into(), &true.into()), "{report:#}");
    let found = &report["vms"][0];
    assert_eq!(found["vm"], own_pid());
    assert_eq!(found["slices"][0]["slice_ns"], 1_000_000, "{report:#}");
    assert!(report["decisions"][0]["reason"].as_str().unwrap().contains("static"));
    assert!(found["before"]["run_ratio"].is_number() && found["after"]["run_ratio"].is_number(), "{report:#}");
    if report["observer"] == "bpf" && report["enforcement"]["method"] == "ticker" {
        // 4 ms is the tick, and what a slice of 1 ms would be without enforcement.
        let delivered = found["after"]["delivered_p50_ns"].as_u64().unwrap();
        assert!(delivered < 3_000_000, "{report:#}");
    }
}

#[test]
fn policy_and_slices_for_all_take_turns_and_everything_is_given_back_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let pid = own_pid().to_string();
    let fixed = ["host", "run", "--vm", &pid, "--slice", "5ms"];
    let turns = ["--in-turn", "1ms,3ms", "--interval", "100ms", "--lead", "200ms", "--turn", "1s", "--passes", "2"];
    let mut command = gleaner(fixed.iter().chain(&turns).chain(&["--json"]).copied());
    let agent = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ends = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let output = agent.wait_with_output().unwrap();
            over.store(true, Ordering::Relaxed);
            output
        }
    });
    // Each has a second twice, and is looked for all the time. It ends by itself.
    let mut wanted =
        vec![vec![Nanos::from_millis(5); 2], vec![Nanos::from_millis(1); 2], vec![Nanos::from_millis(3); 2]];
    while !over.load(Ordering::Relaxed) {
        let now = vm.slices();
        wanted.retain(|slices| *slices != now);
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = ends.join().unwrap();
    assert_eq!((output.status.code(), vm.slices()), (Some(0), before));
    assert!(wanted.is_empty(), "never in force: {wanted:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let in_turn = &report["in_turn"];
    assert_eq!(in_turn["lead_ns"], 200_000_000);
    let turns = in_turn["turns"].as_array().unwrap();
    for pass in 0..2 {
        let of = turns.iter().filter(|turn| turn["pass"] == pass);
        let mut slices: Vec<Option<u64>> = of.map(|turn| turn["slice_ns"].as_u64()).collect();
        slices.sort_unstable();
        assert_eq!(slices, [None, Some(1_000_000), Some(3_000_000)], "{in_turn:#}");
    }
    let ns = |turn: &Value, key: &str| turn[key].as_u64().unwrap();
    // One after the other; how long, and how far apart, is for the tests of `turns`, which have a clock of their own.
    assert!(turns.iter().all(|turn| ns(turn, "from_ns") < ns(turn, "until_ns")), "{in_turn:#}");
    // Between two of them slices are not yet in force.
    let apart = |two: &[Value]| ns(&two[0], "until_ns") < ns(&two[1], "from_ns");
    assert!(turns.windows(2).all(apart), "{in_turn:#}");
    let figures = in_turn["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 3, "one VM under three slices: {in_turn:#}");
    assert!(
        figures.iter().all(|figures| figures["run_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)),
        "{in_turn:#}"
    );
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("in turn, 2 passes, after 200ms for the policy alone"), "{words}");
}

/// Gives a thread a slice as some other program does, which no run of Gleaner knows of.
fn set_by_somebody_else(tid: i32, slice: Nanos) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), "somebody-else").unwrap();
    assert_eq!(Slices::new().set(tid, slice, &mut journal).unwrap(), SliceOutcome::Set(slice));
}

#[test]
fn a_slice_that_somebody_else_changes_is_set_back_and_said_once_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    // One that was chosen by its owner, so that what is undone is told from what the kernel gives by itself.
    set_by_somebody_else(vm.tids[0], Nanos::from_millis(7));
    let (before, ours) = (vm.slices(), [Nanos::from_millis(1); 2]);
    let pid = own_pid().to_string();
    let mut command = gleaner(["host", "run", "--slice", "1ms", "--interval", "100ms", "--vm", &pid]);
    let agent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(comes_true(|| vm.slices() == ours), "{:?}", vm.slices());
    for tid in [vm.tids[0], vm.tids[1], vm.tids[0]] {
        set_by_somebody_else(tid, Nanos::from_millis(5));
        assert!(comes_true(|| vm.slices() == ours), "{:?}", vm.slices());
    }
    send(pid_of(&agent), libc::SIGTERM);
    let done = agent.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert_eq!(vm.slices(), before);
    let named = format!("gleaner: somebody else gave thread {} of VM", vm.tids[0]);
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("gleaner: somebody else")).collect();
    assert!(told.len() == 1 && told[0].starts_with(&named) && told[0].contains("5.00ms"), "{said}");
}

/// Another process as a VM whose one vCPU computes on the CPU of [`Vm`]'s, and gets next to nothing there although its
/// nice value entitles it to as much as the others: it is SCHED_IDLE.
struct Starved(Child);

impl Starved {
    fn start(beside: i32, folder: &std::path::Path) -> Self {
        let named = folder.join("fc_vcpu 0");
        std::fs::copy("/bin/sh", &named).unwrap();
        let child = std::process::Command::new(named).args(["-c", "while :; do :; done"]).spawn().unwrap();
        let own = rustix::thread::Pid::from_raw(pid_of(&child));
        let one = sched_getaffinity(rustix::thread::Pid::from_raw(beside)).unwrap();
        sched_setaffinity(own, &one).unwrap();
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter outlives the call.
        assert_eq!(unsafe { libc::sched_setscheduler(pid_of(&child), libc::SCHED_IDLE, &raw const param) }, 0);
        Self(child)
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_share_that_is_unfair_is_said_once_meanwhile_and_at_the_end_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let starved = Starved::start(vm.tids[0], folder.path());
    let config = folder.path().join("host.toml");
    // The kernel counts a wait once it is over, so of a short time a starved thread seems to have wanted less.
    std::fs::write(&config, "fairness_span_ms = 2000\nrunnable_share_min = 0.5\n").unwrap();
    let (own, theirs) = (own_pid().to_string(), pid_of(&starved.0).to_string());
    let args = ["host", "run", "--vm", &own, "--vm", &theirs, "--interval", "200ms", "--for", "5s", "--json"];
    for policy in [&["--slice", "adaptive"][..], &["--slice", "1ms"]] {
        let said = finish(gleaner(args).args(policy).arg("--config").arg(&config)).with_status(0);
        let named = format!("({theirs}) got");
        let count = |begins: &str| {
            let lines = said.stderr.lines();
            lines
                .filter(|line| line.starts_with(begins) && line.contains(&named) && line.contains("less than fair"))
                .count()
        };
        assert_eq!((count("gleaner: VM"), count("UNFAIR: VM")), (1, 1), "{}", said.stderr);
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        let vms = report["vms"].as_array().unwrap();
        let found = vms.iter().find(|vm| vm["vm"] == pid_of(&starved.0)).unwrap();
        assert!(found["unfair"] == true && found["share_ratio"].as_f64().unwrap() < 0.9, "{report:#}");
        // What a ticker's wake-up takes is known by then, and no longer `tick_us`.
        let ticks = report["enforcement"]["ticks"].as_u64().unwrap();
        assert!(ticks < 2_500 || report["price"]["tick_ns"] != 8_000, "{report:#}");
    }
}

#[test]
fn a_killed_agent_leaves_no_slice_behind_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let mut agent = agent(&["--slice", "adaptive"]);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]), "{:?}", vm.slices());
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(comes_true(|| vm.slices() == before), "{:?}", vm.slices());
}

#[test]
fn a_guardian_that_was_killed_is_replaced_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let mut agent = agent(&["--slice", "1ms"]);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]), "{:?}", vm.slices());
    let first = guardian_of(pid_of(&agent)).unwrap();
    send(first, libc::SIGKILL);
    assert!(comes_true(|| guardian_of(pid_of(&agent)).is_some_and(|now| now != first)), "no other guardian");
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(comes_true(|| vm.slices() == before), "{:?}", vm.slices());
}

#[test]
fn a_vcpu_that_comes_later_gets_the_slice_too_on_this_machine() {
    let mut vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let mut agent = agent(&["--slice", "1ms"]);
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]), "{:?}", vm.slices());
    vm.add_vcpu();
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 3]), "{:?}", vm.slices());
    send(pid_of(&agent), libc::SIGTERM);
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    assert_eq!(vm.slices(), [before[0]; 3]);
}

#[test]
fn two_runs_do_not_hold_the_same_vcpus_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    let before = vm.slices();
    let (one, pid) = ([Nanos::from_millis(1); 2], own_pid().to_string());
    let mut first = agent(&["--slice", "1ms"]);
    assert!(comes_true(|| vm.slices() == one), "{:?}", vm.slices());
    let holder = format!("process {}, another run", pid_of(&first));
    let tid = vm.tids[0].to_string();
    for second in [["--vm", &pid], ["--tid", &tid]] {
        let said = finish(gleaner(["host", "run", "--slice", "2ms", "--for", "10s"]).args(second));
        said.with_status(1).naming(&[&holder]);
        assert_eq!(vm.slices(), one, "{second:?}");
    }
    send(pid_of(&first), libc::SIGTERM);
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert_eq!(vm.slices(), before);
}

#[test]
fn bad_input_is_named_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("host.toml");
    std::fs::write(&config, "gain_min = 7.0\n").unwrap();
    let config = config.to_str().unwrap();
    for (args, words) in [
        (&["--vm", "no-such-vm"][..], &["no-such-vm"][..]),
        (&["--vm", "1"], &["process 1", "no VM"]),
        (&["--tid", "2147483647"], &["no thread 2147483647"]),
        (&["--tid", "0"], &["0"]),
        (&["--tid", "1", "--vm", "x"], &["--tid", "--vm"]),
        (&["--slice", "200ms"], &["--slice", "100us"]),
        (&["--slice", "soon"], &["--slice"]),
        (&["--slice", "adapt"], &["--slice", "adaptive"]),
        (&["--interval", "0s"], &["--interval", "100ms"]),
        (&["--interval", "5m"], &["--interval", "60s"]),
        (&["--config", "/no/such/file"], &["/no/such/file"]),
        (&["--config", config], &["host.toml:1", "gain_min = 7", "from 0.0001 to 1"]),
        (&["--json", "/no/such/dir/x"], &["/no/such/dir/x"]),
        (&["--in-turn", "200ms"], &["--in-turn", "100us"]),
        (&["--in-turn", "1ms,soon"], &["--in-turn", "soon"]),
        (&["--in-turn", "1ms,1000us"], &["--in-turn", "1.00ms is there twice"]),
        (&["--slice", "1ms", "--in-turn", "5ms,1ms"], &["1.00ms is there twice"]),
        (&["--in-turn", "1ms", "--interval", "1s"], &["--interval 400ms or less"]),
        (&["--in-turn", "1ms", "--turn", "200ms", "--interval", "300ms"], &["--interval 200ms or less"]),
        (&["--passes", "3"], &["--in-turn"]),
    ] {
        finish(gleaner(["host", "run", "--for", "1s"]).args(args)).with_status(2).naming(words);
    }
}

/// A process that looks like a QEMU whose threads have no names; ended when dropped.
struct Nameless(Child);

impl Nameless {
    fn start(name: &str) -> Self {
        let mut command = std::process::Command::new("sh");
        std::os::unix::process::CommandExt::arg0(&mut command, "qemu-system-x86_64");
        // It waits for a line that does not come.
        Self(command.args(["-c", "read line", "-name", name]).stdin(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_vm_without_known_vcpus_is_refused_by_name_and_told_of_when_it_comes_later_on_this_machine() {
    let vm = Vm::start();
    if !vm.has_slices() {
        return;
    }
    // A VM that gets the name later is meant once the first has ended: this process's own goes by what it is and its
    // pid.
    let name = format!("firecracker-{}", own_pid());
    let mut command = gleaner(["host", "run", "--slice", "1ms", "--interval", "100ms", "--vm", &name]);
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let mut agent = command.spawn().unwrap();
    assert!(comes_true(|| vm.slices() == [Nanos::from_millis(1); 2]), "{:?}", vm.slices());
    let nameless = Nameless::start(&name);
    let pid = nameless.0.id().to_string();
    // Two are called so now, and the word still means the first.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(vm.slices(), [Nanos::from_millis(1); 2]);
    drop(vm);
    let told = || text_of(&said).lines().filter(|line| line.contains(&pid) && line.contains("left alone")).count();
    assert!(comes_true(|| told() > 0), "{}", text_of(&said));
    // Some more windows.
    std::thread::sleep(Duration::from_secs(2));
    send(pid_of(&agent), libc::SIGTERM);
    agent.wait().unwrap();
    assert_eq!(told(), 1, "once, not in each window: {}", text_of(&said));
    let named = finish(gleaner(["host", "run", "--for", "300ms"]).args(["--vm", &pid]));
    named.with_status(2).naming(&["no vCPU threads", &pid, "debug-threads=on"]);
}
