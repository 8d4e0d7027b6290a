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
    assert_eq!(report["run_queue_method"], "sampled");
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
    for pcpu in report["pcpus"].as_array().unwrap() {
        let samples: u64 = pcpu["run_queue_samples"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(samples, report["samples"].as_u64().unwrap(), "{pcpu}");
    }
    let text = finish(&mut gleaner(["host", "list", "--for", "50ms", "--vm", &pid])).with_status(0).stdout;
    for words in ["firecracker", "class", "pCPU", "equation 1"] {
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
    std::fs::write(&script, "while :; do :; done &\nwhile :; do :; done &\nsleep 170\n").unwrap();
    let guest = Command::new(root.join("testbed/guest.sh"))
        .args(["--timeout", "180", "--memory", "256"])
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
        (busy.count() == 2).then_some((vm, report))
    };
    let mut found = None;
    comes_true_within(Duration::from_secs(150), || {
        found = find();
        found.is_some()
    });
    let (vm, report) = found.expect("two busy vCPUs");
    assert_eq!((&vm["name"], &vm["vmm"], &vm["accelerator"]), (&"gleaner-guest".into(), &"qemu".into(), &"tcg".into()));
    assert_eq!(vm["vcpus"][1]["thread"], "CPU 1/TCG");
    assert!(
        report["pcpus"].as_array().unwrap().iter().any(|pcpu| pcpu["run_queue_max"].as_u64() > Some(0)),
        "{report}"
    );
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
        "exit",
        "exit_from_host",
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
    assert!(report["exit"]["value"]["p50_ns"].as_u64().unwrap() > 0, "{}", report["exit"]);
    assert_eq!(report["exit"]["value"]["side"], "guest");
    // This machine's KVM may emulate what the VM of one page runs, or there may be none: then it says so, here and in
    // words.
    let from_host = &report["exit_from_host"];
    if let Some(exit) = from_host["value"].as_object() {
        assert!(exit["side"] == "host" && exit["p50_ns"].as_u64().unwrap() > 0, "{from_host}");
    } else {
        let why = from_host["from"].as_str().unwrap();
        assert!(["kvm", "KVM", "VM of one page"].iter().any(|word| why.contains(word)), "{why}");
        assert!(said.stderr.contains("unknown: ") && said.stderr.contains(why), "{}", said.stderr);
    }
    assert!(report["verdict"]["text"].as_str().unwrap().contains("slices"), "{}", report["verdict"]);
}

#[test]
fn guest_with_a_kvm_of_its_own_measures_exits_from_the_hosts_side() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let fetch = |arguments: &[&str]| {
        let fetched = Command::new(root.join("testbed/fetch-kernel.sh")).args(arguments).output().unwrap();
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        String::from_utf8(fetched.stdout).unwrap()
    };
    // Modules first: asking for them may move the series to its newest kernel.
    let modules = fetch(&["--modules", "6.1", "kvm"]);
    let kernel = fetch(&["6.1"]);
    let mut guest = Command::new(root.join("testbed/guest.sh"));
    guest.args(["--timeout", "240", "--binary", env!("CARGO_BIN_EXE_gleaner")]);
    for (number, module) in modules.lines().enumerate() {
        guest.args(["--file", &format!("{module}:/kvm/{number}-module.ko")]);
    }
    let kernel = kernel.trim_end().split_once(' ').expect("a kernel 6.1").1;
    let output = guest.arg(kernel).arg(root.join("testbed/kvm.sh")).arg("2").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let probe = |name: &str| -> Value {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("json {name} "))).expect("a probe");
        serde_json::from_str(line).unwrap()
    };
    let without = probe("without");
    assert!(without["exit_from_host"]["value"].is_null(), "{without}");
    assert!(without["exit_from_host"]["from"].as_str().unwrap().contains("there is no /dev/kvm"), "{without}");
    // Under emulation CPUID leaves no guest; that of the VM of one page goes through KVM, and that takes longer.
    let with = probe("with");
    let (alone, exit) = (&with["exit"]["value"], &with["exit_from_host"]["value"]);
    assert_eq!((&alone["leaves_guest"], &exit["side"]), (&Value::Bool(false), &"host".into()), "{with}");
    assert!(exit["p50_ns"].as_u64().unwrap() > alone["p50_ns"].as_u64().unwrap(), "{with}");
    assert!(exit["p95_ns"].as_u64() >= exit["p50_ns"].as_u64() && exit["n"].as_u64().unwrap() > 0, "{with}");
}
