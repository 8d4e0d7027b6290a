//! `gleaner.capture/1`: what `gleaner capture` has written.

use crate::show::{Document, Shown, line};
use crate::text::{count, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The file that `gleaner capture` wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
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

impl Shown for CaptureReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A capture");
        let of = self.recorded_ns.map(|ns| format!(" of {}", time(ns))).unwrap_or_default();
        let segments = if self.segments == 1 { "one segment".to_owned() } else { count(self.segments, "segment") };
        let kb = self.file_bytes.div_ceil(1024);
        let read = "`gleaner dump` and `gleaner replay` read it";
        document.both(line(format!("{}: {segments}{of}, {kb} KB; {read}", self.file)));
        document
    }
}
