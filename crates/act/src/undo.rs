//! Every kind of change that there is, and the ways to undo a journal of them.

use crate::ActError;
use crate::affinity::{AffinityStep, GroupAffinity, ThreadAffinity};
use crate::cgroup::{DisableController, RemoveCgroup};
use crate::journal::{self, Journal, Kind, UndoOutcome};
use crate::resctrl::{RemoveResctrlGroup, UnmountResctrl};
use crate::retain::{FileValue, ResetHaltpoll};
use crate::slice::SliceChange;
use crate::timer_slack::TimerSlackChange;
use crate::xen::XenSet;
use std::fs::File;
use std::path::Path;

/// What a journal may hold.
pub(crate) static KINDS: [Kind; 12] = [
    Kind::of::<RemoveCgroup>(),
    Kind::of::<DisableController>(),
    Kind::of::<GroupAffinity>(),
    Kind::of::<AffinityStep>(),
    Kind::of::<ThreadAffinity>(),
    Kind::of::<TimerSlackChange>(),
    Kind::of::<RemoveResctrlGroup>(),
    Kind::of::<UnmountResctrl>(),
    Kind::of::<SliceChange>(),
    Kind::of::<FileValue>(),
    Kind::of::<ResetHaltpoll>(),
    Kind::of::<XenSet>(),
];

impl Journal {
    /// Begins a journal for this process in `dir`, which is made if need be (mode 0700).
    ///
    /// # Errors
    /// When the folder belongs to somebody else, or it or the file cannot be written.
    pub fn create(dir: &Path, run_id: &str) -> Result<Self, ActError> {
        Self::begin(dir, run_id, &KINDS)
    }
}

/// Undoes the journal at `path` unless its run goes on; with `own`, although it does (main undoing its own).
///
/// # Errors
/// The first thing that could not be undone; the rest is still tried, and the journal stays for another try.
pub fn undo_journal(path: &Path, own: bool) -> Result<UndoOutcome, ActError> {
    journal::undo_journal(path, own, &KINDS)
}

/// Undoes the journal at `path` once its run is over, also when somebody has removed that name meanwhile: `held` is the
/// same file.
///
/// # Errors
/// As [`undo_journal`].
pub fn undo_held(path: &Path, held: Option<&File>) -> Result<UndoOutcome, ActError> {
    journal::undo_held(path, held, &KINDS)
}

/// Undoes the journal of this process's own run, also when somebody has removed its file meanwhile.
///
/// # Errors
/// As [`undo_journal`].
pub fn undo_own(journal: &Journal) -> Result<UndoOutcome, ActError> {
    journal::undo_own(journal)
}

/// Gives files of the kernel's the values that they had, for as long as the run that set them is silent. Its journal
/// stays, and all else. `held` as for [`undo_held`].
///
/// # Errors
/// The first that could not be given back; the others are.
pub fn take_values_back(path: &Path, held: Option<&File>) -> Result<(), ActError> {
    journal::take_values_back(path, held, &KINDS)
}

/// Whether the journal at `path` is that of a run that is over without having been undone. A journal that cannot be
/// read counts.
pub fn is_abandoned(path: &Path) -> bool {
    journal::read(path, &KINDS).map_or(true, |state| state.alive.is_none())
}

#[cfg(test)]
mod tests;
