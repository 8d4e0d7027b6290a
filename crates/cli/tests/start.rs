//! The program first: what Gleaner does beside it begins later, and sees all the same what was started meanwhile.

mod common;

use common::machine::{children_of, guardian_of};
use common::{Killed, comes_true, finish, is_root, pid_of, run};
use serde_json::Value;
use std::process::Stdio;

/// When a process started, in ticks since the boot, as the kernel has it.
fn started_at(pid: i32) -> Option<u64> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    gleaner_sys::Stat::parse(&line)?.start_time()
}

/// Whether the guardian, which there is before anything is changed, was started before the program.
fn guardian_is_first(options: &[&str]) -> Option<bool> {
    let mut command = run(options);
    command.args(["--policy", "full", "--quiet", "--", "sleep", "600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let run = Killed(command.spawn().unwrap());
    let main = pid_of(&run.0);
    assert!(comes_true(|| guardian_of(main).is_some() && children_of(main).len() == 2), "{options:?}");
    let guardian = guardian_of(main).unwrap();
    let program = children_of(main).into_iter().find(|pid| *pid != guardian).unwrap();
    // Within a tick, which is 10 ms, pids tell: the kernel gives them in turn.
    let (guardian, began) = ((started_at(guardian)?, guardian), (started_at(program)?, program));
    common::send(program, libc::SIGKILL);
    Some(guardian < began)
}

#[test]
fn the_program_is_started_before_anything_else() {
    assert_eq!(guardian_is_first(&[]), Some(false));
    assert_eq!(guardian_is_first(&["--retain", "yielding"]), Some(false));
}

#[test]
fn what_is_asked_for_by_name_is_there_before_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    assert_eq!(guardian_is_first(&["--capture", capture.to_str().unwrap()]), Some(true));
}

/// Children, and an orphan that came to Gleaner, from before it looked.
#[test]
fn trees_that_were_forked_early_are_seen() {
    let script = "for n in 1 2 3 4; do (sleep $0; sleep 0.1) & done; sh -c \"sleep $0 & exit\"; sleep $0; exit 3";
    for observer in ["auto", "procfs", "bpf"] {
        if observer == "bpf" && !is_root() {
            continue;
        }
        let options = ["--policy", "observe", "--observer", observer, "--json", "--", "sh", "-c", script];
        let report = |seconds: &str| -> Value {
            let said = finish(run(options).arg(seconds)).with_status(3);
            serde_json::from_str(&said.stdout).unwrap()
        };
        // The shell, four children with a sleep each, the orphan, a sleep of its own. The last sleeps come later, and
        // all of it may be over before a busy machine comes to look.
        let is_whole = |report: &Value| report["threads_max"].as_u64() >= Some(10);
        let seen = ["1.2", "5", "25"].into_iter().map(report).find(is_whole);
        let report = seen.unwrap_or_else(|| panic!("{observer}: never so many threads"));
        assert_eq!(
            report["means"]["observer"].as_str() == Some("procfs"),
            observer == "procfs" || !is_root(),
            "{report}"
        );
    }
}

/// Nothing of what takes long is done for it.
#[test]
fn a_short_program_is_not_observed_and_says_so() {
    for policy in ["observe", "full"] {
        let said = finish(&mut run(["--policy", policy, "--json", "--", "sh", "-c", "exit 3"])).with_status(3);
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((&report["exit_status"], &report["restored"]), (&3.into(), &true.into()), "{report}");
        // On a busy machine it may have lasted.
        if report["wall_ns"].as_u64() < Some(5_000_000) {
            assert_eq!(report["means"]["observer"], Value::Null, "{report}");
            assert!(said.stderr.contains("not observed"), "{said:?}");
        }
    }
}
