//! What each context may want back: one bounded table for both kinds of record. A list of lines is a table of regions
//! of one line.

use super::{PrefetchParams, RecordKind};
use crate::cache::Fill;
use crate::hierarchy::LlcWatch;
use crate::line::{ContextId, Line};
use rustc_hash::FxHashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    /// Line number divided by the lines in a region.
    number: u64,
    /// A bit for each of its lines.
    present: u64,
    /// Whether one of them was hit.
    hit: bool,
}

/// A context's record: regions in the order in which they came in. A ring, with an index into it.
#[derive(Clone, Debug, Default)]
struct Record {
    regions: Vec<Region>,
    /// The oldest, once the ring is full.
    oldest: usize,
    place: FxHashMap<u64, usize>,
    /// Lines that went with a region there was no room for.
    dropped_lines: u64,
}

impl Record {
    fn add(&mut self, number: u64, hit: bool, params: &PrefetchParams) {
        let (region, bit) = place_of(number, params);
        if let Some(place) = self.place.get(&region) {
            let region = &mut self.regions[*place];
            region.present |= bit;
            region.hit |= hit;
            return;
        }
        let new = Region { number: region, present: bit, hit };
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

    fn remove(&mut self, number: u64, params: &PrefetchParams) {
        let (region, bit) = place_of(number, params);
        if let Some(place) = self.place.get(&region) {
            self.regions[*place].present &= !bit;
        }
    }

    fn take(&mut self, params: &PrefetchParams) -> Recorded {
        let region_lines = u64::from(params.region_lines());
        let filter = matches!(params.kind, RecordKind::Accessed { hit_filter: true, .. });
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

/// A line's region and its bit there.
fn place_of(number: u64, params: &PrefetchParams) -> (u64, u64) {
    let region_bits = params.region_lines().trailing_zeros();
    (number >> region_bits, 1 << (number & ((1 << region_bits) - 1)))
}

/// A record that is read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Line numbers to ask for, in the order in which they, or their regions, came in.
    pub lines: Vec<u64>,
    /// Entries that the record had.
    pub entries: u64,
    /// Lines that the hit filter left out.
    pub filtered_lines: u64,
    /// Lines that there was no room for.
    pub dropped_lines: u64,
}

/// Watches the last level and keeps every context's record.
#[derive(Clone, Debug)]
pub struct Records {
    params: PrefetchParams,
    by_context: Vec<Record>,
    running: Vec<bool>,
}

impl Records {
    /// Nothing recorded yet, nobody running.
    pub fn new(params: PrefetchParams) -> Self {
        Self { params, by_context: vec![Record::default(); 256], running: vec![false; 256] }
    }

    pub fn params(&self) -> &PrefetchParams {
        &self.params
    }

    /// `context` gets a core: hands out its record and begins a new one.
    pub fn switched_in(&mut self, context: ContextId) -> Recorded {
        self.running[usize::from(context.0)] = true;
        self.by_context[usize::from(context.0)].take(&self.params)
    }

    /// `context` gives its core back.
    pub fn switched_out(&mut self, context: ContextId) {
        self.running[usize::from(context.0)] = false;
    }

    /// Entries that a context's record has now.
    pub fn entries(&self, context: ContextId) -> usize {
        self.by_context[usize::from(context.0)].regions.len()
    }

    fn accessed(&mut self, number: u64, by: ContextId, hit: bool) {
        if matches!(self.params.kind, RecordKind::Accessed { .. }) {
            self.by_context[usize::from(by.0)].add(number, hit, &self.params);
        }
    }
}

impl LlcWatch for Records {
    fn hit(&mut self, number: u64, by: ContextId) {
        self.accessed(number, by, true);
    }

    fn filled(&mut self, number: u64, by: ContextId, why: Fill) {
        // A restored line has to be used to be restored again, and a write-back is no use.
        if why == Fill::Clean {
            self.accessed(number, by, false);
        }
    }

    fn evicted(&mut self, line: Line, by: ContextId) {
        let owner = usize::from(line.context().0);
        match self.params.kind {
            RecordKind::Lost if line.context() != by && !self.running[owner] => {
                self.by_context[owner].add(line.number(), line.is_used(), &self.params);
            }
            RecordKind::Accessed { .. } if line.context() == by => {
                self.by_context[owner].remove(line.number(), &self.params);
            }
            _ => {}
        }
    }
}
