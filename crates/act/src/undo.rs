//! Every kind of change that there is, and undoing a journal of them, newest first.

use crate::ActError;
use crate::affinity::{AffinityStep, GroupAffinity, ThreadAffinity};
use crate::cgroup::{DisableController, RemoveCgroup};
use crate::journal::{self, Entry, Journal, JournalState, Kind, When};
use crate::retain::{FileValue, ResetHaltpoll};
use crate::slice::SliceChange;
use crate::xen::XenSet;
use gleaner_sys::{OwnProc, ProcRoot, own_proc};
use std::fs::File;
use std::path::Path;

/// What a journal may hold.
pub(crate) static KINDS: [Kind; 9] = [
    Kind::of::<RemoveCgroup>(),
    Kind::of::<DisableController>(),
    Kind::of::<GroupAffinity>(),
    Kind::of::<AffinityStep>(),
    Kind::of::<ThreadAffinity>(),
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
        Self::begin(dir, run_id, &KINDS, |other| undo_journal(other, false).map(drop))
    }
}

/// What became of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Everything in it is undone, and it is removed.
    Undone {
        /// How many entries it had.
        entries: usize,
    },
    /// The run that wrote it is still going on.
    InUse { pid: i32 },
    /// Somebody else undid it first.
    Gone,
}

/// Undoes the journal at `path` unless its run goes on; with `own`, although it does (main undoing its own).
///
/// # Errors
/// The first thing that could not be undone; the rest is still tried, and the journal stays for another try.
pub fn undo_journal(path: &Path, own: bool) -> Result<UndoOutcome, ActError> {
    let root = ProcRoot::default();
    if own_proc(&root) == OwnProc::Foreign {
        let why = format!("{} is another PID namespace's, so nobody could be found", root.proc.display());
        return Err(ActError::Unavailable { what: "an undo".into(), why });
    }
    let Some(_lock) = journal::lock(path)? else { return Ok(UndoOutcome::Gone) };
    let state = journal::read(path, &KINDS)?;
    if let Some(pid) = state.alive.filter(|_| !own) {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_unshared(&state, own)?;
    // Until it is removed: of two that end together each would see the other's, and neither take anything away.
    let _folder = journal::lock_folder_of(path);
    undo_shared(&state, own)?;
    journal::remove(path)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal at `path` once its run is over, also when somebody has removed that name meanwhile: `held` is the
/// same file.
pub fn undo_held(path: &Path, held: Option<&File>) -> Result<UndoOutcome, ActError> {
    let outcome = undo_journal(path, false)?;
    let is_lost = |held: &&File| outcome == UndoOutcome::Gone && !journal::was_undone(held);
    let Some(held) = held.filter(is_lost) else { return Ok(outcome) };
    let state = journal::read_open(path, held, &KINDS)?;
    if let Some(pid) = state.alive {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_unshared(&state, false)?;
    undo_shared(&state, false)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal of this process's own run, also when somebody has removed its file meanwhile.
pub fn undo_own(journal: &Journal) -> Result<UndoOutcome, ActError> {
    match undo_journal(journal.path(), true)? {
        UndoOutcome::Gone => {
            let state = journal::read_open(journal.path(), journal.file(), &KINDS)?;
            undo_unshared(&state, true)?;
            undo_shared(&state, true)?;
            journal.is_undone();
            Ok(UndoOutcome::Undone { entries: state.undos.len() })
        }
        outcome => Ok(outcome),
    }
}

/// Gives files of the kernel's the values that they had, for as long as the run that set them is silent. Its journal
/// stays, and all else. `held` as for [`undo_held`].
///
/// # Errors
/// The first that could not be given back; the others are.
pub fn take_values_back(path: &Path, held: Option<&File>) -> Result<(), ActError> {
    let state = match (journal::read(path, &KINDS), held) {
        (Err(error), Some(held)) if error.is_gone() => journal::read_open(path, held, &KINDS)?,
        (state, _) => state?,
    };
    first_error(&state, false, |_, when| when == When::WhileSilent)
}

/// All but what runs share.
fn undo_unshared(state: &JournalState, own: bool) -> Result<(), ActError> {
    first_error(state, own, |_, when| when != When::Last)
}

/// What no other run needs of what runs share: controllers.
fn undo_shared(state: &JournalState, own: bool) -> Result<(), ActError> {
    let others_have = |entry: &Entry| !journal::others_with(&state.path, &KINDS, |other| other == entry).is_empty();
    first_error(state, own, |entry, when| when == When::Last && !others_have(entry))
}

/// Undoes one after the other, newest first; a failure does not keep the others from being tried. All failures are one
/// error, which says how much was undone. `own`: this process has written them itself.
fn first_error(state: &JournalState, own: bool, due: impl Fn(&Entry, When) -> bool) -> Result<(), ActError> {
    let run = state.run(own);
    let tried = state.undos.iter().rev().map(|entry| entry.undo(&KINDS, &run, |when| due(entry, when)));
    let failed: Vec<ActError> = tried.filter_map(Result::err).inspect(|error| tracing::warn!("{error}")).collect();
    let failures = failed.len();
    failed.into_iter().next().map_or(Ok(()), |first| {
        let hint =
            if first.is_refused() { "; root of the machine itself, with all capabilities, can undo it" } else { "" };
        let (undone, of) = (state.undos.len() - failures, state.undos.len());
        Err(ActError::NotAll { first: Box::new(first), undone, of, hint })
    })
}

/// Whether the journal at `path` is that of a run that is over without having been undone. A journal that cannot be
/// read counts.
pub fn is_abandoned(path: &Path) -> bool {
    journal::read(path, &KINDS).map_or(true, |state| state.alive.is_none())
}

#[cfg(test)]
mod tests;
