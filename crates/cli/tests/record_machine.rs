//! `gleaner record`: where it records to, and what it says when it cannot. What a recording holds is tried where it is
//! played back (lab/cli/tests/recording_machine.rs).

mod common;
#[path = "../../observe/tests/support/mod.rs"]
mod support;

use common::unprivileged::Unprivileged;
use common::{finish, gleaner};
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};
use support::bpf_expected;

/// A device or a pipe is written to, and not replaced by a file.
#[test]
fn a_pipe_is_recorded_into_on_this_machine() {
    if !bpf_expected() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    finish(gleaner(["record", "--threads", "-o"]).arg(&pipe).args(["--", "true"])).with_status(0);
    let read = reader.wait_with_output().unwrap().stdout;
    assert!(read.starts_with(b"GLTHRD\r\n"), "{} bytes", read.len());
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn without_bpf_it_says_what_is_needed() {
    let user = Unprivileged::new();
    let file = user.runtime().join("x.glthreads");
    let said = finish(&mut user.gleaner(&["record", "--threads", "-o", file.to_str().unwrap(), "--", "true"]));
    said.with_status(1).naming(&["needs BPF", "who woke whom", "root"]).saying("");
    assert!(!file.exists());
}

#[test]
fn what_cannot_be_recorded_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    finish(&mut gleaner(["record", "--", "true"])).with_status(2).naming(&["--threads"]);
    finish(&mut gleaner(["record", "--threads", "--max-bytes", "8k", "--", "true"])).with_status(2).naming(&["64k"]);
    let nowhere = at("no/such/folder/x");
    let said = finish(&mut gleaner(["record", "--threads", "-o", &nowhere, "--", "true"]));
    said.with_status(2).naming(&[&nowhere, "name a file"]);
    if bpf_expected() {
        let file = at("x.glthreads");
        let said = finish(&mut gleaner(["record", "--threads", "-o", &file, "--", "no-such-command-anywhere"]));
        said.with_status(2).naming(&["no-such-command-anywhere", "not found"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left behind");
    }
}
