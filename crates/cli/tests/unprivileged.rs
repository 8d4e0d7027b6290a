//! Without privilege: weaker means are used and named, what is asked for by name is refused, and nothing is left
//! behind.

mod common;

use common::machine::journals_of_run;
use common::unprivileged::{Unprivileged, json};
use common::{Killed, comes_true, finish, lasting, pid_of, send};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

#[test]
fn without_privilege_weaker_means_are_used_and_named() {
    let user = Unprivileged::new();
    let run = ["run", "--retain-for", "1ms", "--json", "--", "sh", "-c", "sleep $0; exit 3"];
    let said = lasting(|seconds| finish(user.gleaner(&run).arg(seconds)));
    let said = said.with_status(3).naming(&["instead of cpu.idle", "/proc", "BPF"]);
    let report = json(&said);
    assert_eq!(
        report["means"],
        serde_json::json!({
            "observer": "procfs", "placement": "affinity", "retention": "yielding", "yielding": "sched-idle"
        })
    );
    assert_eq!(report["restored"], true);
    assert!(!user.state().exists(), "its journal is left");
    // Without a runtime folder it is a private one in /tmp.
    let wait = "until ls -d /tmp/gleaner-$(id -u) 2>/dev/null; do sleep 0.05; done; exit 4";
    let mut command = user.gleaner(&["run", "--retain-for", "1ms", "--", "sh", "-c", wait]);
    let said = finish(command.env_remove("XDG_RUNTIME_DIR")).with_status(4);
    let folder = said.stdout.trim();
    assert!(folder.starts_with("/tmp/gleaner-"), "{said:#?}");
    assert!(!Path::new(folder).exists(), "{folder} is left");
}

/// Another user may make it first: nothing in it is opened, and nothing waits.
#[test]
fn a_name_in_tmp_that_another_user_has_taken_is_left_alone() {
    if !common::is_root() {
        gleaner_testing::skip!("needs root");
    }
    let (victim, other) = (54_321, 54_322);
    let taken = Path::new("/tmp/gleaner-54321");
    std::fs::create_dir(taken).unwrap();
    let [lock, socket] = ["daemon.lock", "gleaner.sock"].map(|name| taken.join(name));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mkfifo = finish(std::process::Command::new("mkfifo").arg(&lock));
    for path in [taken, &lock, &socket] {
        std::os::unix::fs::chown(path, Some(other), Some(other)).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let user = Unprivileged::new();
    let own = format!("until ls -d /tmp/gleaner-{victim}-* 2>/dev/null; do sleep 0.05; done; exit 3");
    let tried: [&[&str]; 3] =
        [&["run", "--retain-for", "1ms", "-q", "--", "sh", "-c", &own], &["status"], &["restore"]];
    let said = tried.map(|arguments| {
        let mut command = std::process::Command::new("timeout");
        command.args(["60", "setpriv", &format!("--reuid={victim}"), &format!("--regid={victim}"), "--clear-groups"]);
        finish(command.arg(user.binary()).args(arguments).env_remove("XDG_RUNTIME_DIR").current_dir("/"))
    });
    let asked = listener.accept();
    let left = std::fs::read_dir("/tmp").unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("gleaner-54321-")).count();
    std::fs::remove_dir_all(taken).unwrap();
    let [run, status, restore] = said;
    mkfifo.with_status(0);
    let run = run.with_status(3);
    assert!(run.stdout.starts_with("/tmp/gleaner-54321-") && left == 0, "{run:#?}, {left} left");
    status.with_status(1).naming(&["no daemon"]);
    restore.with_status(0);
    assert!(asked.is_err(), "it was asked");
}

#[test]
fn without_privilege_what_is_asked_for_by_name_is_refused() {
    let user = Unprivileged::new();
    for (option, words) in
        [(&["--observer", "bpf"][..], &["BPF", "run as root"][..]), (&["--strict"], &["--strict", "cpu.idle"])]
    {
        let arguments = [&["run", "--retain-for", "1ms"], option, &["--", "echo", "ran"]].concat();
        finish(&mut user.gleaner(&arguments)).with_status(125).saying("").naming(words);
        assert!(!user.state().exists(), "{option:?}: its journal is left");
    }
}

#[test]
fn without_privilege_a_killed_run_is_undone_too() {
    let user = Unprivileged::new();
    let mut command = user.gleaner(&["run", "--retain-for", "1ms", "-q", "--", "sleep", "600"]);
    let child = Killed(command.process_group(0).stdout(Stdio::null()).spawn().unwrap());
    assert!(comes_true(|| !journals_of_run(&user.state(), pid_of(&child.0)).is_empty()));
    send(pid_of(&child.0), libc::SIGKILL);
    assert!(comes_true(|| !user.state().exists()), "its journal is left");
    send(-pid_of(&child.0), libc::SIGKILL);
}

#[test]
fn without_privilege_doctor_and_probe_say_what_they_can() {
    let user = Unprivileged::new();
    let said = finish(&mut user.gleaner(&["doctor", "--json"])).with_status(0);
    let report = json(&said);
    let available = |list: &str, name: &str| {
        let found = report[list].as_array().unwrap().iter().find(|means| means["name"] == name).unwrap();
        assert!(!found["detail"].as_str().unwrap().is_empty(), "{found}");
        found["available"].as_bool().unwrap()
    };
    assert!(!available("observers", "bpf") && available("observers", "procfs"), "{report}");
    assert!(available("actuators", "affinity"), "{report}");
    let said = finish(&mut user.gleaner(&["probe", "--samples", "50", "--json"])).with_status(0);
    assert!(json(&said)["notes"].to_string().contains("cpu.idle"), "{said:#?}");
    assert!(!user.state().exists());
}

/// Copies of the shell with the set-user-ID bit: the program has another's rights, over which Gleaner has none.
#[test]
fn a_set_user_id_program_keeps_its_rights_and_its_status() {
    if !common::is_root() {
        gleaner_testing::skip!("needs root");
    }
    let user = Unprivileged::new();
    let shell = user.folder.path().join("shell");
    std::fs::copy("/bin/sh", &shell).unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let shell = shell.to_str().unwrap();
    for options in [&[][..], &["--policy", "consolidate"], &["--retain", "yielding"]] {
        let program = ["--", shell, "-p", "-c", "id -u; sleep $0; exit 3"];
        let run = [&["run", "--retain-for", "1ms"][..], options, &program].concat();
        lasting(|seconds| finish(user.gleaner(&run).arg(seconds))).with_status(3).saying("0\n");
    }
}
