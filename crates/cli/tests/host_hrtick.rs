//! Slices that the kernel ends by itself: the scheduler's HRTICK, in a guest where it can be switched on.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn guest_with_hrtick_ends_slices_without_a_ticker() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let fetched = Command::new(root.join("testbed/fetch-kernel.sh")).arg("6.12").output().unwrap();
    let line = String::from_utf8_lossy(&fetched.stdout).into_owned();
    let Some((_, kernel)) = line.trim_end().split_once(' ') else {
        gleaner_testing::skip!("needs Linux 6.12 for a guest: {}", String::from_utf8_lossy(&fetched.stderr));
    };
    let mut guest = Command::new(root.join("testbed/guest.sh"));
    guest.args(["--timeout", "480", "--binary", env!("CARGO_BIN_EXE_gleaner"), kernel]);
    let output = guest.arg(root.join("testbed/hrtick.sh")).arg("2").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let result = |name: &str| -> Value {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("json {name} "))).expect("a result");
        serde_json::from_str(line).unwrap()
    };
    let (tick, hrtick) = (result("tick"), result("hrtick"));
    let method = |result: &Value| result["enforcement"]["method"].clone();
    assert_eq!((method(&tick), method(&hrtick)), ("none".into(), "hrtick".into()), "{tick}\n{hrtick}");
    // No ticker, and yet nearer to what was asked for than the tick, four milliseconds apart.
    assert_eq!(hrtick["enforcement"]["pcpus"], 0, "{hrtick}");
    let off = |result: &Value| {
        let delivered = result["vms"][0]["after"]["delivered_p50_ns"].as_f64().unwrap();
        (delivered / result["static_slice_ns"].as_f64().unwrap()).ln().abs()
    };
    assert!(off(&hrtick) < off(&tick), "{tick}\n{hrtick}");
}
