//! `gleaner.capture/1`: what `gleaner capture` has written.

use crate::text::{count, duration};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CaptureReport {
    /// `gleaner.capture/1`.
    pub schema: String,
    /// As it was named.
    pub file: String,
    /// For how long it was recorded for this file (`--for`); null: it has what there was.
    pub recorded_ns: Option<u64>,
    /// The recorder's files that are in it; each can be read by itself.
    pub segments: u64,
    /// How long it is.
    pub file_bytes: u64,
}

impl CaptureReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.capture/1";
}

impl fmt::Display for CaptureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.recorded_ns.map(|ns| format!(" of {}", duration(Some(ns)))).unwrap_or_default();
        let segments = if self.segments == 1 { "one segment".to_owned() } else { count(self.segments, "segment") };
        let kb = self.file_bytes.div_ceil(1024);
        write!(f, "{}: {segments}{of}, {kb} KB; `gleaner dump` and `gleaner replay` read it", self.file)
    }
}
