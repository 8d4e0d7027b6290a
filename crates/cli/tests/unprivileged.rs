//! Without privilege: weaker means are used and named, what is asked for by name is refused, and nothing is left
//! behind.

mod common;

use common::machine::journals_of_run;
use common::unprivileged::{Unprivileged, json};
use common::{Killed, comes_true, finish, pid_of, send};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

#[test]
fn without_privilege_weaker_means_are_used_and_named() {
    let user = Unprivileged::new();
    let said = finish(&mut user.gleaner(&["run", "--timeout", "1ms", "--json", "--", "sh", "-c", "sleep 0.3; exit 3"]));
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
    let mut command =
        user.gleaner(&["run", "--timeout", "1ms", "--", "sh", "-c", "sleep 0.3; ls -d /tmp/gleaner-$(id -u); exit 4"]);
    let said = finish(command.env_remove("XDG_RUNTIME_DIR")).with_status(4);
    let folder = said.stdout.trim();
    assert!(folder.starts_with("/tmp/gleaner-"), "{said:#?}");
    assert!(!Path::new(folder).exists(), "{folder} is left");
}

#[test]
fn without_privilege_what_is_asked_for_by_name_is_refused() {
    let user = Unprivileged::new();
    for (option, words) in [
        (&["--observer", "bpf"][..], &["BPF", "run as root"][..]),
        (&["--placement", "cpuset"], &["cpuset"]),
        (&["--strict"], &["--strict", "cpu.idle"]),
    ] {
        let arguments = [&["run", "--timeout", "1ms"], option, &["--", "echo", "ran"]].concat();
        finish(&mut user.gleaner(&arguments)).with_status(125).saying("").naming(words);
        assert!(!user.state().exists(), "{option:?}: its journal is left");
    }
}

#[test]
fn without_privilege_a_killed_run_is_undone_too() {
    let user = Unprivileged::new();
    let mut command = user.gleaner(&["run", "--timeout", "1ms", "-q", "--", "sh", "-c", "sleep 1; exit 0"]);
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
    assert!(!available("actuators", "cpuset") && available("actuators", "affinity"), "{report}");
    let said = finish(&mut user.gleaner(&["probe", "--samples", "50", "--json"])).with_status(0);
    assert!(json(&said)["notes"].to_string().contains("cpu.idle"), "{said:#?}");
    assert!(!user.state().exists());
}
