//! Imbalanced scheduling: confining the managed group to the active vCPUs, by each thread's mask.
//!
//! Masks cost nothing until the group is confined, need no privilege, and leave a thread that pinned itself where it
//! wants to be. The program sees every vCPU at exec, so it sizes its pools as it always does.

use crate::ActError;
use crate::affinity::{Affinities, AffinityStep, GroupAffinity, ThreadAffinity, needed};
use crate::journal::Journal;
use crate::procs::{process_start_time, thread_start_time};
use gleaner_model::CpuSet;

/// Confines one group of threads. Nothing is confined until [`Placement::confine`] is called.
#[derive(Debug)]
pub struct Placement {
    affinities: Affinities,
    base: CpuSet,
    active: CpuSet,
    /// Where an undo begins to look for its threads: the program, and processes that joined it.
    roots: Vec<i32>,
    /// Of how many of them the journal knows that masks are changed.
    roots_journalled: usize,
    /// Passes over the threads still to be made after the group was given everything back.
    passes_left: u32,
}

/// Processes besides the program whose descendants an undo looks for.
const ROOTS_MAX: usize = 64;

/// A thread born while its creator is being widened inherits the narrow mask, and was on nobody's list.
const PASSES_AFTER_WIDENING: u32 = 3;

impl Placement {
    /// Of a program that may use `base`.
    pub fn new(base: &CpuSet) -> Self {
        let (affinities, active) = (Affinities::new(base.clone()), base.clone());
        Self { affinities, base: base.clone(), active, roots: vec![0], roots_journalled: 0, passes_left: 0 }
    }

    /// The program runs as `root_pid`: where an undo begins to look for its threads.
    pub fn program_started(&mut self, root_pid: i32) {
        self.roots = vec![root_pid];
    }

    /// This process belongs to the group, and descends from none that is known. To be journalled when the group is
    /// confined next.
    pub fn another_joined(&mut self, pid: i32) {
        if self.roots.len() < ROOTS_MAX && !self.roots.contains(&pid) {
            self.roots.push(pid);
        }
    }

    fn before_masks(&mut self, journal: &mut Journal) -> Result<(), ActError> {
        while let Some(&root_pid) = self.roots.get(self.roots_journalled) {
            let root_start_time = process_start_time(root_pid).unwrap_or(0);
            journal.before(&GroupAffinity { root_pid, root_start_time, base: self.base.to_string() })?;
            self.roots_journalled += 1;
        }
        Ok(())
    }

    /// Confines the group, whose threads are `tids`, to `active`. This has to be repeated for new threads while
    /// [`Placement::follows_threads`] says so; repeating it is cheap.
    ///
    /// # Errors
    /// When the journal cannot be written; then nothing was changed.
    pub fn confine(&mut self, active: &CpuSet, tids: &[i32], journal: &mut Journal) -> Result<(), ActError> {
        if *active == self.base && self.roots_journalled == 0 {
            // No mask was ever changed.
            return Ok(());
        }
        self.before_masks(journal)?;
        if !self.affinities.knows_step(active) {
            journal.before(&AffinityStep { active: active.to_string() })?;
        }
        // Before the step: a thread that the program pinned to just what is to be active is told from one that
        // we confined.
        for (choice, current) in self.affinities.new_choices(tids) {
            journal.before(&ThreadAffinity::from(&choice))?;
            self.affinities.remember(choice, current);
        }
        if let Err(error) = journal.compact_if_long(needed(|tid, start| thread_start_time(tid) == Some(start))) {
            tracing::warn!("{error}");
        }
        // A wider mask spreads nobody: who wakes the other keeps it near. Some are to be on what is given until
        // the next pass, and then they stay there by themselves.
        let given = active.difference(&self.active);
        let elsewhere = Affinities::to_move(tids, given.len(), active.len());
        if !elsewhere.is_empty() {
            if !self.affinities.knows_step(&given) {
                journal.before(&AffinityStep { active: given.to_string() })?;
            }
            self.affinities.begin_step(&given);
            self.affinities.confine(&elsewhere, &given);
        }
        self.affinities.begin_step(active);
        let others: Vec<i32> = tids.iter().copied().filter(|tid| !elsewhere.contains(tid)).collect();
        self.affinities.confine(&others, active);
        let as_before = *active == self.active;
        self.passes_left = if as_before { self.passes_left.saturating_sub(1) } else { PASSES_AFTER_WIDENING };
        self.active = active.clone();
        Ok(())
    }

    /// Gives everything back to the group while it can still be seen: its threads, as `threads` tells them each time it
    /// is asked. An undo from the journal finds processes by ancestry and mark, and some have neither.
    ///
    /// # Errors
    /// As [`Placement::confine`].
    pub fn release(&mut self, mut threads: impl FnMut() -> Vec<i32>, journal: &mut Journal) -> Result<(), ActError> {
        let base = self.base.clone();
        self.confine(&base, &threads(), journal)?;
        while self.follows_threads() {
            self.confine(&base, &threads(), journal)?;
        }
        Ok(())
    }

    /// Whether new threads have to be looked for and confined one by one: while the group is confined, and for a few
    /// passes after.
    pub fn follows_threads(&self) -> bool {
        self.active != self.base || self.passes_left > 0
    }
}

#[cfg(test)]
mod tests;
