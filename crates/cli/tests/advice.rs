//! Wherever a command is taken, what only a shell understands is told to be given to one.

mod common;

use common::{Said, finish, gleaner};
use std::ffi::OsStr;

/// Commands that are no programs.
const FOR_A_SHELL: [&[&str]; 4] = [
    &["sleep 0.1 && true"],
    &["FOO=1", "sleep", "0.1"],
    &["ulimit -n 100; ls *.c"],
    &["no-such-command-anywhere", "-x"],
];

fn of(way: &[&str], command: &[&str]) -> Said {
    // An empty folder as PATH's first would hide nothing: what is a builtin must be no program there either.
    let folder = tempfile::tempdir().unwrap();
    finish(gleaner(way.iter().map(OsStr::new)).current_dir(folder.path()).args(["--"]).args(command))
}

#[track_caller]
fn told(way: &[&str], status: i32) {
    for command in FOR_A_SHELL {
        of(way, command).with_status(status).saying("").naming(&["cannot run", "check its spelling", "sh -c '...'"]);
    }
}

#[test]
fn what_is_for_a_shell_is_told_to_be_given_to_one() {
    told(&["run", "--retain-for", "1ms"], 127);
    told(&["run", "--policy", "off"], 127);
    told(&["ab", "-n", "2", "--modes", "off,observe"], 127);
}
