//! `gleaner.capture/1`.

use super::{check, units_are_named};
use gleaner_report::CaptureReport;

fn capture() -> CaptureReport {
    CaptureReport {
        schema: CaptureReport::SCHEMA.into(),
        file: "/tmp/now.capture".into(),
        recorded_ns: Some(10_000_000_000),
        segments: 1,
        file_bytes: 40_961,
    }
}

#[test]
fn a_capture() {
    let json = check("capture_whole", &capture());
    units_are_named(&json, &["segments"]);
    check("capture_unknown", &CaptureReport { recorded_ns: None, segments: 3, ..capture() });
}
