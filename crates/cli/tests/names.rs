//! Names are bytes that anybody may choose, and so is what stands in command lines: real processes with odd ones, dead
//! ones, and several of one name.

mod common;

use common::{Said, comes_true, finish, gleaner, pid_of};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A shell under a program's name that waits for the end of its input, with these arguments in its command line.
struct Named {
    child: Child,
    _input: ChildStdin,
}

impl Named {
    fn start(folder: &tempfile::TempDir, program: &[u8], arguments: &[&[u8]]) -> Self {
        let file = folder.path().join(OsStr::from_bytes(program));
        if !file.exists() {
            fs::copy("/bin/sh", &file).unwrap();
        }
        let mut command = Command::new(&file);
        command.args(["-c", "read wait; exit 0"]).args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let named = Self { child, _input: input };
        let comm = format!("/proc/{}/comm", named.pid());
        assert!(comes_true(|| fs::read(&comm).is_ok_and(|comm| comm.starts_with(&program[..program.len().min(15)]))));
        named
    }

    fn pid(&self) -> i32 {
        pid_of(&self.child)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn list(arguments: &[&str]) -> Said {
    finish(gleaner(["host", "list", "--for", "20ms"]).args(arguments))
}

/// What `host list --json` says of one process; null where it is no VM.
fn listed(pid: i32) -> Value {
    let said = list(&["--json"]).with_status(0);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    report["vms"].as_array().unwrap().iter().find(|vm| vm["pid"] == pid).cloned().unwrap_or_default()
}

#[test]
fn a_name_that_is_no_utf8_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let vm = Named::start(&folder, b"qemu-system-fr\xc3\xa9", &[b"-name", b"bureau\xff"]);
    let pid = vm.pid().to_string();
    assert_eq!(listed(vm.pid())["name"], r"bureau\xff");
    for wanted in [&pid, r"bureau\xff"] {
        let said = list(&["--vm", wanted]).with_status(0);
        assert!(said.stdout.contains(r"bureau\xff: qemu"), "{said:?}");
    }
    let raw = finish(gleaner(["host", "list", "--for", "20ms", "--vm"]).arg(OsStr::from_bytes(b"bureau\xff")));
    assert!(raw.with_status(0).stdout.contains(&pid));
    let slice = [
        "host",
        "run",
        "--tid",
        &pid,
        "--slice",
        "1ms",
        "--for",
        "300ms",
        "--interval",
        "100ms",
        "--no-enforce",
        "--json",
        "-",
    ];
    let said = finish(&mut gleaner(slice));
    if said.status == Some(0) {
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        let thread = &report["vms"][0];
        assert_eq!((&thread["name"], &thread["left_ns"]), (&Value::from(r"qemu-system-fr\xc3"), &Value::Null));
    } else {
        said.with_status(1).naming(&["slice"]);
    }
}

#[test]
fn control_characters_stay_off_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let name = "web\u{1b}[2J\u{7}\nfake: qemu (kvm), pid 1\r\u{202e}x\u{9b}31m";
    let vm = Named::start(&folder, b"qemu-system-x86_64", &[b"-name", name.replace(',', ",,").as_bytes()]);
    // A process that is no VM, and is called odd things too.
    let other = Named::start(&folder, b"o\x1b[2J\x07", &[]);
    let (pid, other) = (vm.pid().to_string(), other.pid().to_string());
    let texts = [
        list(&[]),
        list(&["--vm", &pid]),
        list(&["--vm", name]),
        list(&["--vm", "no\u{1b}[2Jsuch"]),
        list(&["--vm", &other]),
        finish(&mut gleaner(["host", "run", "--vm", &pid, "--for", "100ms"])),
        finish(&mut gleaner(["host", "run", "--tid", &other, "--slice", "3ms", "--for", "100ms", "--no-enforce"])),
        finish(&mut gleaner(["host", "run", "--for", "100ms"])),
        finish(&mut gleaner(["run", "--policy", "off", "--", "no\u{1b}[2Jsuch"])),
    ];
    for said in texts {
        let text = said.stdout + &said.stderr;
        let steers = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
        assert!(!text.contains(steers), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("fake")), "{text}");
    }
    // JSON is JSON, and the name in it is the one that is shown.
    assert_eq!(listed(vm.pid())["name"], r"web\u{1b}[2J\u{7}\nfake: qemu (kvm), pid 1\r\u{202e}x\u{9b}31m");
}

#[test]
fn a_dead_process_is_no_vm() {
    let folder = tempfile::tempdir().unwrap();
    let mut vm = Named::start(&folder, b"qemu-system-x86_64", &[b"-name", b"vm101"]);
    assert_eq!(listed(vm.pid())["name"], "vm101");
    vm.child.kill().unwrap();
    let status = format!("/proc/{}/status", vm.pid());
    assert!(comes_true(|| fs::read_to_string(&status).unwrap().contains("State:\tZ")));
    assert_eq!(listed(vm.pid()), Value::Null);
    let pid = vm.pid().to_string();
    list(&["--vm", &pid]).with_status(2).saying("").naming(&["has ended", &pid]);
    let slice = ["host", "run", "--tid", &pid, "--slice", "1ms", "--for", "100ms", "--no-enforce"];
    finish(&mut gleaner(slice)).with_status(2).naming(&["ended"]);
}

#[test]
fn vms_of_one_name_are_told_apart_and_the_name_alone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Named::start(&folder, b"qemu-system-x86_64", &[b"-name", b"guest=twin,debug-threads=on"]);
    let (one, two) = (start(), start());
    let names = [&one, &two].map(|vm| listed(vm.pid())["name"].as_str().unwrap().to_owned());
    assert_eq!(names, [&one, &two].map(|vm| format!("twin#{}", vm.pid())));
    let (first, second) = (names[0].as_str(), names[1].as_str());
    for command in [&["list"][..], &["run", "--for", "1s"]] {
        let said = finish(gleaner(["host"]).args(command).args(["--vm", "twin"]));
        said.with_status(2).saying("").naming(&["'twin' means 2 VMs", first, second]);
    }
    for vm in [&one, &two] {
        let said = list(&["--vm", &format!("twin#{}", vm.pid())]).with_status(0);
        assert_eq!(said.stdout.matches(": qemu").count(), 1, "{said:?}");
    }
    // The other one goes: the name alone means this one again.
    let pid = one.pid();
    drop(two);
    assert_eq!(listed(pid)["name"], "twin");
    list(&["--vm", "twin"]).with_status(0);
    list(&["--vm", &format!("twin#{pid}")]).with_status(0);
}
