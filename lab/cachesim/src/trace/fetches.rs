//! What traces of whole instructions share: fetches only where they leave the cache line of the one before, accesses
//! cut at cache lines, instructions counted between records.

use super::{Kind, Record};

/// Line length that fetches and straddling accesses are cut to.
pub(super) const LINE_BYTES: u64 = 64;

/// Turns instructions and their operands into records.
#[derive(Default)]
pub(super) struct Fetches {
    fetched_line: Option<u64>,
    /// Instructions since the last record.
    instructions: u32,
}

impl Fetches {
    /// An access of so many bytes, at least one: one record for each line it touches.
    pub(super) fn push(&mut self, batch: &mut Vec<Record>, kind: Kind, address: u64, size_bytes: u64) {
        let mut address = address;
        // The end of the address space is no place for an access; it must not become an endless one.
        let last = address.saturating_add(size_bytes - 1);
        loop {
            batch.push(Record { address, instructions: self.instructions, kind });
            self.instructions = 0;
            match (address | (LINE_BYTES - 1)).checked_add(1) {
                Some(next) if next <= last => address = next,
                _ => return,
            }
        }
    }

    /// An instruction of which nothing is known.
    pub(super) fn executed(&mut self) {
        self.instructions = self.instructions.saturating_add(1);
    }

    /// An instruction of so many bytes, at least one.
    pub(super) fn instruction(&mut self, batch: &mut Vec<Record>, address: u64, size_bytes: u64) {
        self.executed();
        let last_line = address.saturating_add(size_bytes - 1) / LINE_BYTES;
        if self.fetched_line != Some(address / LINE_BYTES) {
            self.push(batch, Kind::Fetch, address, size_bytes);
        } else if last_line != address / LINE_BYTES {
            self.push(batch, Kind::Fetch, last_line * LINE_BYTES, 1);
        }
        self.fetched_line = Some(last_line);
    }
}
