//! `gleaner host list` and `gleaner host probe` on this machine: VMs made of threads with vCPUs' names, and real ones
//! under QEMU.

mod common;

use common::{comes_true, comes_true_within, finish, gleaner, own_pid};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What `gleaner host list` says with these arguments, as JSON.
#[track_caller]
fn list(arguments: &[&str]) -> Value {
    let said = finish(gleaner(["host", "list", "--json", "--for", "300ms"]).args(arguments)).with_status(0);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stdout))
}

/// Ends its child, by its pid.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // guest.sh ends its QEMU when it is asked to end; QEMU itself does too.
        common::send(i32::try_from(self.0.id()).unwrap(), libc::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Threads of this process with vCPUs' names; ended when dropped.
struct PretendVm {
    end: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl PretendVm {
    fn start(names: [&str; 2]) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let threads = names.map(|name| {
            let end = Arc::clone(&end);
            let busy = move || while !end.load(Ordering::Relaxed) {};
            std::thread::Builder::new().name(name.to_owned()).spawn(busy).unwrap()
        });
        Self { end, threads: threads.into() }
    }
}

impl Drop for PretendVm {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn busy_vcpus_on_this_machine_are_seen_at_work() {
    let _vm = PretendVm::start(["fc_vcpu 0", "fc_vcpu 1"]);
    let pid = own_pid().to_string();
    let report = list(&["--vm", &pid]);
    assert_eq!(report["schema"], "gleaner.host-list/1");
    let interval = report["interval_ns"].as_u64().unwrap();
    let vm = &report["vms"][0];
    assert_eq!((&vm["vmm"], &vm["pid"]), (&Value::from("firecracker"), &Value::from(own_pid())));
    let vcpus = vm["vcpus"].as_array().unwrap();
    assert_eq!(vcpus.len(), 2, "{vm}");
    for (index, vcpu) in vcpus.iter().enumerate() {
        assert_eq!(vcpu["index"], index, "{vcpu}");
        assert_eq!(
            (&vcpu["policy"], &vcpu["rt_priority"], &vcpu["exited"]),
            (&"other".into(), &Value::Null, &false.into())
        );
        let number = |key: &str| vcpu[key].as_u64().unwrap_or_else(|| panic!("{key}: {vcpu}"));
        // Whatever else goes on, a busy thread runs or waits all the time.
        let used = number("run_ns") + number("wait_ns");
        assert!(used * 10 > interval * 7, "{vcpu} in {interval}");
        assert!(vcpu["slice_ns"].is_u64() || vcpu["slice_from"].as_str().unwrap().len() > 10, "{vcpu}");
    }
    let text = finish(&mut gleaner(["host", "list", "--for", "50ms", "--vm", &pid])).with_status(0).stdout;
    for words in ["firecracker", "class", "on", "wait/run"] {
        assert!(text.contains(words), "nothing about {words:?} in:\n{text}");
    }
}

#[test]
fn who_is_no_vm() {
    for (wanted, words) in [
        ("no-such-vm-anywhere", &["no VM is called 'no-such-vm-anywhere'"][..]),
        ("1", &["process 1", "is no VM"]),
        ("2147483647", &["no process 2147483647"]),
    ] {
        finish(&mut gleaner(["host", "list", "--for", "10ms", "--vm", wanted])).with_status(2).saying("").naming(words);
    }
    for length in ["0s", "5", "soon"] {
        finish(&mut gleaner(["host", "list", "--for", length])).with_status(2).naming(&[length]);
    }
}

fn qemu(arguments: &[&str]) -> Command {
    emulated("tcg,thread=multi", arguments)
}

fn emulated(accelerator: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", accelerator, "-m", "32", "-nodefaults", "-display", "none", "-S"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn guest_whose_vcpus_share_a_thread_is_listed_as_that() {
    let arguments = ["-smp", "2", "-name", "single,debug-threads=on"];
    let child = emulated("tcg,thread=single", &arguments).spawn().expect("QEMU, from scripts/setup.sh test");
    let child = Ended(child);
    let pid = child.0.id().to_string();
    let said = || finish(&mut gleaner(["host", "list", "--for", "10ms", "--vm", &pid]));
    assert!(comes_true(|| said().stdout.contains("in one thread")), "{:?}", said());
    let report = list(&["--vm", &pid]);
    let vm = &report["vms"][0];
    assert_eq!(
        (&vm["name"], &vm["accelerator"], vm["vcpus"].as_array().unwrap().len()),
        (&"single".into(), &"tcg".into(), 1)
    );
}

#[test]
fn guest_that_hides_its_vcpus_is_listed_with_what_would_help() {
    let child = Ended(qemu(&["-name", "hidden"]).spawn().expect("QEMU, from scripts/setup.sh test"));
    let pid = child.0.id().to_string();
    let said = || finish(&mut gleaner(["host", "list", "--for", "10ms", "--vm", &pid]));
    assert!(comes_true(|| said().status == Some(0)), "{:?}", said());
    let said = said().with_status(0);
    assert!(said.stdout.contains("hidden: qemu") && said.stdout.contains("debug-threads=on"), "{said:?}");
}

#[test]
fn guest_of_the_test_bed_with_two_busy_vcpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let fetched = Command::new(root.join("testbed/fetch-kernel.sh")).arg("6.1").output().unwrap();
    let line = String::from_utf8(fetched.stdout).unwrap();
    let kernel = PathBuf::from(line.trim_end().split_once(' ').expect("a kernel 6.1").1);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("busy.sh");
    std::fs::write(&script, "while :; do :; done &\nwhile :; do :; done &\nsleep 230\n").unwrap();
    let guest = Command::new(root.join("testbed/guest.sh"))
        .args(["--timeout", "240", "--memory", "256"])
        .args([kernel.as_os_str(), script.as_os_str(), "2".as_ref()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let guest = Ended(guest);
    let descends = |pid: i64| {
        let mut pid = pid;
        while pid > 1 && pid != i64::from(guest.0.id()) {
            let stat = common::text_of(format!("/proc/{pid}/stat"));
            let Some((_, rest)) = stat.rsplit_once(')') else { return false };
            pid = rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
        }
        pid > 1
    };
    let find = || {
        let report = list(&[]);
        let vm = report["vms"].as_array().unwrap().iter().find(|vm| descends(vm["pid"].as_i64().unwrap()))?.clone();
        let busy = vm["vcpus"].as_array().unwrap().iter().filter(|vcpu| {
            let used = vcpu["run_ns"].as_u64().unwrap_or(0) + vcpu["wait_ns"].as_u64().unwrap_or(0);
            used * 2 > report["interval_ns"].as_u64().unwrap()
        });
        (busy.count() == 2).then_some(vm)
    };
    let mut found = None;
    comes_true_within(Duration::from_secs(210), || {
        found = find();
        found.is_some()
    });
    let vm = found.expect("two busy vCPUs");
    assert_eq!((&vm["name"], &vm["vmm"], &vm["accelerator"]), (&"gleaner-guest".into(), &"qemu".into(), &"tcg".into()));
    assert_eq!(vm["vcpus"][1]["thread"], "CPU 1/TCG");
}

#[test]
fn probe_of_this_machine_knows_or_says_why_not() {
    let said = finish(&mut gleaner(["host", "probe", "--json"])).with_status(0);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["schema"], "gleaner.host-probe/1");
    for key in [
        "hz",
        "hrtick",
        "preemption",
        "base_slice_ns",
        "slice_per_thread",
        "rt_throttling",
        "rt_group_runtime_ns",
        "fifo",
        "switch",
        "pause_exits",
        "halt_polling",
    ] {
        let finding = &report[key];
        assert!(finding["from"].as_str().is_some_and(|from| !from.is_empty()), "{key}: {finding}");
        assert!(said.stderr.contains("verdict"), "{}", said.stderr);
    }
    assert!((24..=10_000).contains(&report["hz"]["value"].as_u64().unwrap()), "{}", report["hz"]);
    let switch = &report["switch"]["value"];
    assert!(
        switch["p50_ns"].as_u64().unwrap() > 0 && switch["by_working_set"].as_array().unwrap().len() > 2,
        "{switch}"
    );
    assert!(report["verdict"]["text"].as_str().unwrap().contains("slices"), "{}", report["verdict"]);
}
