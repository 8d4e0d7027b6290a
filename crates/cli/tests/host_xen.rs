//! `gleaner host` as in a Xen host's dom0 (`--xen`), with an `xl` of our own that answers in the real one's words. The
//! real one: xen.rs.

mod common;

use common::{Said, finish, gleaner};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const FAKE: &str = r#"#!/bin/sh
state=$(dirname "$0")/state
case "$*" in
cpupool-list) printf 'Name               CPUs   Sched     Active   Domain count\nPool-0               2    credit       y          3\n' ;;
"sched-credit -s -p Pool-0") echo "Cpupool Pool-0: $(cat "$state") migration-delay=0us" ;;
"sched-credit -s -p Pool-0 -t "*) echo "$*" >>"$state.log"; echo "tslice=$6ms ratelimit=$8us" >"$state" ;;
*) echo "$* is not known" >&2; exit 1 ;;
esac
"#;

/// `gleaner host WORDS` with that `xl`; what it said, and how `xl` was told to set something.
#[track_caller]
fn on_xen(words: &[&str]) -> (Said, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("xl");
    fs::write(&program, FAKE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("state"), "tslice=30ms ratelimit=1000us\n").unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let said = finish(gleaner(["host"]).args(words).arg("--xen").env("PATH", path));
    (said, fs::read_to_string(folder.path().join("state.log")).unwrap_or_default())
}

#[test]
fn host_run_holds_one_slice_for_all_through_xl() {
    let (said, log) = on_xen(&["run", "--slice", "1ms", "--for", "100ms", "--json"]);
    let report: Value = serde_json::from_str(&said.with_status(0).stdout).unwrap();
    assert_eq!((&report["schema"], &report["restored"]), (&"gleaner.xen-slice/1".into(), &true.into()));
    assert_eq!(report["set"]["slice_ns"], 1_000_000);
    assert_eq!(log, "sched-credit -s -p Pool-0 -t 1 -r 1000\nsched-credit -s -p Pool-0 -t 30 -r 1000\n");
}

#[test]
fn what_takes_threads_is_refused_with_the_reason() {
    for (words, reasons) in [
        (&["run"][..], &["adaptive", "--slice 1ms"][..]),
        (&["run", "--slice", "adaptive"], &["adaptive", "--slice 1ms"]),
        (&["run", "--slice", "1ms", "--pause-exits"], &["--pause-exits"]),
        (&["run", "--slice", "1ms", "--no-enforce"], &["--no-enforce"]),
        (&["run", "--slice", "1ms", "--vm", "web"], &["--vm", "whole cpupool"]),
        (&["run", "--slice", "100us"], &["least slice is 1 ms"]),
    ] {
        let (said, log) = on_xen(words);
        said.with_status(2).naming(reasons);
        assert_eq!(log, "", "{words:?}");
    }
}
