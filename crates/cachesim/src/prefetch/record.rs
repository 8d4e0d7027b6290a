//! What each context has lost: one bounded table for both kinds of record. A list of lines is a table of regions of one line.

use super::{PrefetchParams, RecordKind};
use crate::hierarchy::LlcWatch;
use crate::line::{ContextId, Line};
use std::collections::HashMap;

/// One region of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    /// Line number divided by the lines in a region.
    number: u64,
    /// A bit for each of its lines.
    present: u64,
    /// Whether one of them was hit since it was filled.
    hit: bool,
}

/// A context's record: regions in the order in which they were first lost from. A ring, with an index into it.
#[derive(Clone, Debug, Default)]
struct Record {
    regions: Vec<Region>,
    /// The oldest, once the ring is full.
    oldest: usize,
    place: HashMap<u64, usize>,
    /// Lines that went with a region there was no room for.
    dropped_lines: u64,
}

impl Record {
    fn lost(&mut self, number: u64, used: bool, params: &PrefetchParams) {
        let region_bits = params.region_lines().trailing_zeros();
        let (region, bit) = (number >> region_bits, 1 << (number & ((1 << region_bits) - 1)));
        if let Some(place) = self.place.get(&region) {
            let region = &mut self.regions[*place];
            region.present |= bit;
            region.hit |= used;
            return;
        }
        let new = Region { number: region, present: bit, hit: used };
        let place = if self.regions.len() < params.entries_max.max(1) {
            self.regions.push(new);
            self.regions.len() - 1
        } else {
            let place = self.oldest;
            let goes = std::mem::replace(&mut self.regions[place], new);
            self.place.remove(&goes.number);
            self.dropped_lines += u64::from(goes.present.count_ones());
            self.oldest = (place + 1) % self.regions.len();
            place
        };
        self.place.insert(region, place);
    }

    fn take(&mut self, params: &PrefetchParams) -> Recorded {
        let region_lines = u64::from(params.region_lines());
        let filter = matches!(params.kind, RecordKind::Regions { hit_filter: true, .. });
        let mut recorded =
            Recorded { entries: self.regions.len() as u64, dropped_lines: self.dropped_lines, ..Recorded::default() };
        let (newer, older) = self.regions.split_at(self.oldest);
        for region in older.iter().chain(newer) {
            if filter && !region.hit {
                recorded.filtered_lines += u64::from(region.present.count_ones());
                continue;
            }
            let lines = (0..region_lines).filter(|line| region.present >> line & 1 == 1);
            recorded.lines.extend(lines.map(|line| region.number * region_lines + line));
        }
        *self = Self::default();
        recorded
    }
}

/// A record that is read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Line numbers to restore, longest lost first.
    pub lines: Vec<u64>,
    /// Entries that the record had.
    pub entries: u64,
    /// Lines that the hit filter left out.
    pub filtered_lines: u64,
    /// Lines that there was no room for.
    pub dropped_lines: u64,
}

/// Watches the last level and keeps every waiting context's record.
#[derive(Clone, Debug)]
pub struct LostLines {
    params: PrefetchParams,
    records: Vec<Record>,
    running: Vec<bool>,
}

impl LostLines {
    /// Nothing lost yet, nobody running.
    pub fn new(params: PrefetchParams) -> Self {
        Self { params, records: vec![Record::default(); 256], running: vec![false; 256] }
    }

    /// Its parameters.
    pub fn params(&self) -> &PrefetchParams {
        &self.params
    }

    /// `context` gets a core: hands out what it has lost since it last had one, and forgets it.
    pub fn switched_in(&mut self, context: ContextId) -> Recorded {
        self.running[usize::from(context.0)] = true;
        self.records[usize::from(context.0)].take(&self.params)
    }

    /// `context` gives its core back: from now on what it loses is recorded.
    pub fn switched_out(&mut self, context: ContextId) {
        self.running[usize::from(context.0)] = false;
    }

    /// Entries that a context's record has now.
    pub fn entries(&self, context: ContextId) -> usize {
        self.records[usize::from(context.0)].regions.len()
    }
}

impl LlcWatch for LostLines {
    fn evicted(&mut self, line: Line, by: ContextId) {
        let owner = line.context();
        if owner != by && !self.running[usize::from(owner.0)] {
            self.records[usize::from(owner.0)].lost(line.number(), line.is_used(), &self.params);
        }
    }
}
