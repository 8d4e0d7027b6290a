//! Brings back what was lost, a little at a time.
//!
//! At switch-in the record is read, then its lines are asked for, then the writing of the record, which happened
//! before, is paid for. Each transfer is made only while memory's backlog is within the bound, so demand misses go
//! nearly first; what is not restored when the quantum ends is left out for good.

use super::record::{Recorded, Records};
use crate::dram::Transfer;
use crate::hierarchy::Hierarchy;
use crate::line::ContextId;
use crate::machine::SwitchHook;

/// What became of a context's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreCounters {
    /// Lines fetched.
    pub restored_lines: u64,
    /// Lines that were there when their turn came: never lost, or missed and fetched meanwhile.
    pub already_there_lines: u64,
    /// Lines that the hit filter left out.
    pub filtered_lines: u64,
    /// Lines that the record had no room for.
    pub dropped_lines: u64,
    /// Lines whose turn had not come when the quantum ended.
    pub unfinished_lines: u64,
    /// Entries read back; each was written once, too.
    pub entries: u64,
}

impl RestoreCounters {
    /// Bytes that were written and read as records.
    pub fn metadata_bytes(&self, entry_bytes: u64) -> u64 {
        2 * self.entries * entry_bytes
    }
}

/// What is still to be done for the context on one core.
#[derive(Clone, Debug, Default)]
struct Plan {
    record_reads: u64,
    lines: Vec<u64>,
    next_line: usize,
    record_writes: u64,
    due_cycle: u64,
}

impl Plan {
    fn is_done(&self) -> bool {
        self.record_reads == 0 && self.next_line == self.lines.len() && self.record_writes == 0
    }
}

/// Runs one plan for each core.
#[derive(Clone, Debug)]
pub struct Restorer {
    plans: Vec<Plan>,
    counters: Vec<RestoreCounters>,
}

impl Restorer {
    /// Nothing to do yet on any of so many cores.
    pub fn new(cores: usize) -> Self {
        Self { plans: vec![Plan::default(); cores], counters: vec![RestoreCounters::default(); 256] }
    }

    /// What has been done for a context since the start.
    pub fn counters(&self, context: ContextId) -> RestoreCounters {
        self.counters[usize::from(context.0)]
    }

    /// One transfer, or one line that needs none.
    fn step(&mut self, hierarchy: &mut Hierarchy<Records>, core: usize, context: ContextId, cycle: u64) {
        let plan = &mut self.plans[core];
        if plan.record_reads == 0 && plan.next_line < plan.lines.len() {
            let line = plan.lines[plan.next_line];
            plan.next_line += 1;
            // They have been used before. The papers do not say where they are put.
            let fetched = hierarchy.prefetch(context, line, cycle);
            let counters = &mut self.counters[usize::from(context.0)];
            counters.restored_lines += u64::from(fetched);
            counters.already_there_lines += u64::from(!fetched);
            return;
        }
        let left = if plan.record_reads > 0 { &mut plan.record_reads } else { &mut plan.record_writes };
        *left = left.saturating_sub(1);
        hierarchy.dram_mut().transfer(cycle, Transfer::Metadata);
    }
}

impl SwitchHook<Records> for Restorer {
    fn switched_in(&mut self, hierarchy: &mut Hierarchy<Records>, core: usize, context: ContextId, cycle: u64) {
        let Recorded { lines, entries, filtered_lines, dropped_lines } = hierarchy.watch_mut().switched_in(context);
        let line_bytes = u64::from(hierarchy.l3().geometry().line_bytes());
        let record_lines = (entries * hierarchy.watch().params().entry_bytes).div_ceil(line_bytes);
        let counters = &mut self.counters[usize::from(context.0)];
        counters.entries += entries;
        counters.filtered_lines += filtered_lines;
        counters.dropped_lines += dropped_lines;
        self.plans[core] =
            Plan { record_reads: record_lines, lines, next_line: 0, record_writes: record_lines, due_cycle: cycle };
    }

    fn switched_out(&mut self, hierarchy: &mut Hierarchy<Records>, core: usize, context: ContextId, cycle: u64) {
        hierarchy.watch_mut().switched_out(context);
        let mut plan = std::mem::take(&mut self.plans[core]);
        self.counters[usize::from(context.0)].unfinished_lines += (plan.lines.len() - plan.next_line) as u64;
        // The record was written and is read whether or not there was time to use it.
        while plan.record_reads + plan.record_writes > 0 {
            hierarchy.dram_mut().transfer(cycle, Transfer::Metadata);
            if plan.record_reads > 0 {
                plan.record_reads -= 1;
            } else {
                plan.record_writes -= 1;
            }
        }
    }

    fn due_cycle(&self, core: usize) -> u64 {
        let plan = &self.plans[core];
        if plan.is_done() { u64::MAX } else { plan.due_cycle }
    }

    fn running(&mut self, hierarchy: &mut Hierarchy<Records>, core: usize, context: ContextId, cycle: u64) {
        let backlog_cycles_max = hierarchy.watch().params().backlog_cycles_max;
        while !self.plans[core].is_done() && hierarchy.dram().backlog_cycles(cycle) <= backlog_cycles_max {
            self.step(hierarchy, core, context, cycle);
        }
        self.plans[core].due_cycle = cycle.saturating_add(backlog_cycles_max.max(1));
    }
}
