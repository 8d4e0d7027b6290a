//! A real Xen 4.17 with Debian's kernel as dom0, emulated: `testbed/xen.sh` boots it, `testbed/xen-check.sh` checks
//! inside. Skipped aloud where Debian's packages cannot be had.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// xen.sh's word for "cannot be had".
const SKIPPED: i32 = 77;

/// The JSON object that the script printed after `json NAME`.
fn json(output: &str, name: &str) -> Value {
    let prefix = format!("json {name} ");
    let line = output.lines().find_map(|line| line.strip_prefix(&prefix));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no {name} in:\n{output}"))).unwrap()
}

#[test]
fn guest_xen_gets_a_slice_of_a_millisecond_and_its_own_back() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/xen.sh");
    let Output { status, stdout, stderr } =
        Command::new(script).args(["--binary", env!("CARGO_BIN_EXE_gleaner")]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.code() == Some(SKIPPED) {
        gleaner_testing::skip!("needs Xen for a guest: {errors}");
    }
    assert!(status.success(), "{status}\n{text}\n{errors}");
    let slice = json(&text, "slice");
    assert_eq!(slice["schema"], "gleaner.xen-slice/1");
    assert_eq!(slice["scheduler"], "credit");
    assert_eq!((&slice["was"]["slice_ns"], &slice["set"]["slice_ns"]), (&30_000_000.into(), &1_000_000.into()));
    assert_eq!(slice["restored"], true);
}
