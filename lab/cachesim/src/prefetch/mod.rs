//! Context prefetching: what a context loses from the last level while it waits, it gets back when it runs again
//! (MICRO'14, section IV-B).
//!
//! ```text
//! A runs, or waits and loses lines ──▶ A's record             (Records watches the last level)
//! A gets a core: record from memory, then lines from memory   (Restorer, a little at a time,
//!                                                              no faster than the memory bus has room)
//! ```
//!
//! Two kinds of record:
//!
//! - [`PrefetchParams::daly_cain`], after "Cache restoration for highly partitioned virtualized systems" (HPCA'12) and
//!   as the MICRO'14 paper describes context prefetchers: a list of the lines that *others* evicted while the context
//!   waited. All of them are restored.
//! - [`PrefetchParams::recap`], after "RECAP: a region-based cure for the common cold (cache)" (HPCA'13): a table of
//!   the regions that the context accessed in its quantum, each with a bit for every line and a bit that says whether
//!   one of them was hit. Regions without a hit are left out, so a stream of data is not brought back for nobody. Of
//!   the others every line is asked for: one that is still there moves up as at a hit, so that the restored ones do not
//!   push it out; one that is not is fetched.
//!
//! What a context evicts itself it had no room for, and is never restored. Records live in memory: writing and reading
//! them is traffic like any other, and is counted as [`Transfer::Metadata`](crate::dram::Transfer::Metadata).
//! Sizes of records and entries are not public; they are parameters, and ours are said to be ours.

mod record;
mod restorer;

pub use record::{Recorded, Records};
pub use restorer::{RestoreCounters, Restorer};

/// What a context's record consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// One entry for each line lost to others, in the order in which they were lost (Daly and Cain).
    Lost,
    /// One entry for each region accessed in the last quantum (RECAP).
    Accessed {
        /// Lines in a region, a power of two from 1 to 64.
        region_lines: u32,
        /// Leave out regions of which no line was hit (RECAP's hit filter; the MICRO'14 paper's "reuse-bit
        /// optimization").
        hit_filter: bool,
    },
}

/// The parameters of context prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchParams {
    pub kind: RecordKind,
    /// Entries a context's record has room for, 1 or more. When it is full the oldest goes. Ours.
    pub entries_max: usize,
    /// Bytes an entry takes in memory. Ours.
    pub entry_bytes: u64,
    /// Nothing is asked of memory while a request would wait longer than this, cycles. So a demand miss waits for
    /// prefetches no longer than this and one line more. Ours.
    pub backlog_cycles_max: u64,
}

impl PrefetchParams {
    /// Cache restoration: as many lines as 2 MB hold, 8 bytes each.
    pub fn daly_cain() -> Self {
        Self { kind: RecordKind::Lost, entries_max: 32_768, entry_bytes: 8, backlog_cycles_max: 68 }
    }

    /// RECAP: regions of a page's 64 lines, so that a bit vector is one word, with tag and hit bit 16 bytes; 2,048 of
    /// them, 32 KiB a context.
    pub fn recap() -> Self {
        Self {
            kind: RecordKind::Accessed { region_lines: 64, hit_filter: true },
            entries_max: 2_048,
            entry_bytes: 16,
            ..Self::daly_cain()
        }
    }

    fn region_lines(self) -> u32 {
        match self.kind {
            RecordKind::Lost => 1,
            RecordKind::Accessed { region_lines, .. } => {
                // Out of range counts as the nearest that is in it.
                let below = region_lines.clamp(1, 64);
                if below.is_power_of_two() { below } else { below.next_power_of_two() / 2 }
            }
        }
    }
}
