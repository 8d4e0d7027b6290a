//! `gleaner.cache-record/1`: what `gleaner-lab cache record` wrote.

use crate::show::{Document, Shown, line, notes};
use crate::text::{bytes, count};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheRecordReport {
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where the recording is.
    pub file: String,
    pub file_bytes: u64,
    pub accesses: u64,
    /// Loads among them.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Instruction fetches that left the cache line of the one before.
    pub fetches: u64,
    /// Instructions executed meanwhile.
    pub instructions: u64,
    /// Accesses passed over before the first recorded one.
    pub skipped: u64,
    /// Why it ends: `exit` (the program ended), `limit` (`--max-accesses`; the program was ended) or `interrupt`.
    pub ended_by: String,
    /// The program's own status, 128 + n for signal n; null when it did not end by itself.
    pub exit_status: Option<i32>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

impl Shown for CacheRecordReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A recording of memory accesses");
        let Self { file, reads, writes, fetches, instructions, .. } = self;
        let (accesses, size) = (count(self.accesses, "access"), bytes(self.file_bytes));
        let program = self.command.first().map_or("?", String::as_str);
        document.both(line(format!(
            "{file}: {accesses} ({reads} loads, {writes} stores, {fetches} fetches) of {instructions} instructions of \
             {program}, {size}."
        )));
        document.both(notes(&self.notes));
        document
    }
}
