//! `gleaner run --timer-slack`: the program has it, what it starts has it, and nobody keeps it.

mod common;

use common::{Killed, comes_true, finish, is_root, pid_of, run, send, text_of};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn slackened(script: &str) -> Command {
    let mut command = run(["--timer-slack", "2ms", "--quiet", "--", "sh", "-c"]);
    command.arg(script);
    command
}

fn slack_of(pid: i32) -> String {
    text_of(format!("/proc/{pid}/timerslack_ns")).trim().to_owned()
}

#[test]
fn the_program_and_its_children_have_it() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    finish(&mut slackened("cat /proc/$$/timerslack_ns; (cat /proc/self/timerslack_ns)"))
        .with_status(0)
        .saying("2000000\n2000000\n");
    finish(run(["--quiet", "--"]).args(["cat", "/proc/self/timerslack_ns"])).with_status(0).saying("50000\n");
}

#[test]
fn what_outlives_the_program_gets_the_kernels_own_back() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let output = slackened("sleep 300 >/dev/null 2>&1 & echo $!").output().unwrap();
    let pid: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let slack = slack_of(pid);
    send(pid, libc::SIGKILL);
    assert_eq!(slack, "50000");
}

#[test]
fn so_does_the_program_when_gleaner_is_killed() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let child =
        slackened("echo $$; exec sleep 300").process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid: i32 = line.trim().parse().unwrap();
    let before = slack_of(pid);
    // Its root is in the journal a moment after it began.
    send(pid_of(&child.0), libc::SIGKILL);
    let restored = comes_true(|| slack_of(pid) == "50000");
    send(pid, libc::SIGKILL);
    assert_eq!((before.as_str(), restored), ("2000000", true));
}

#[test]
fn a_slack_out_of_range_or_for_nobody_is_refused() {
    let for_nobody = ["--policy", "off", "--timer-slack", "2ms", "--"];
    finish(run(for_nobody).arg("true")).with_status(2).naming(&["--timer-slack", "--policy off"]);
    finish(run(["--timer-slack", "2s", "--"]).arg("true")).with_status(2).naming(&["--timer-slack", "100ms"]);
}
