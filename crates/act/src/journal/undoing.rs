//! Undoing a journal, newest change first.

use super::Journal;
use super::change::{Entry, Kind, When};
use super::lock::{lock, lock_folder_of, remove, was_undone};
use super::read::{JournalState, others_with, read, read_open};
use crate::ActError;
use gleaner_sys::{OwnProc, ProcRoot, own_proc};
use std::fs::File;
use std::path::Path;

/// What became of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Everything in it is undone, and it is removed.
    Undone {
        /// How many entries it had.
        entries: usize,
    },
    /// The run that wrote it is still going on.
    InUse {
        /// Its process.
        pid: i32,
    },
    /// Somebody else undid it first.
    Gone,
}

/// Undoes the journal at `path` unless its run goes on; with `own`, although it does (main undoing its own).
///
/// # Errors
/// The first thing that could not be undone; the rest is still tried, and the journal stays for another try.
pub(crate) fn undo_journal(path: &Path, own: bool, kinds: &[Kind]) -> Result<UndoOutcome, ActError> {
    let root = ProcRoot::default();
    if own_proc(&root) == OwnProc::Foreign {
        let why = format!("{} is another PID namespace's, so nobody could be found", root.proc.display());
        return Err(ActError::Unavailable { what: "an undo".into(), why });
    }
    let Some(_lock) = lock(path)? else { return Ok(UndoOutcome::Gone) };
    let state = read(path, kinds)?;
    if let Some(pid) = state.alive.filter(|_| !own) {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_unshared(&state, own, kinds)?;
    // Until it is removed: of two that end together each would see the other's, and neither take anything away.
    let _folder = lock_folder_of(path);
    undo_shared(&state, own, kinds)?;
    remove(path)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal at `path` once its run is over, also when somebody has removed that name meanwhile: `held` is the
/// same file.
///
/// # Errors
/// As [`undo_journal`].
pub(crate) fn undo_held(path: &Path, held: Option<&File>, kinds: &[Kind]) -> Result<UndoOutcome, ActError> {
    let outcome = undo_journal(path, false, kinds)?;
    let is_lost = |held: &&File| outcome == UndoOutcome::Gone && !was_undone(held);
    let Some(held) = held.filter(is_lost) else { return Ok(outcome) };
    let state = read_open(path, held, kinds)?;
    if let Some(pid) = state.alive {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_unshared(&state, false, kinds)?;
    undo_shared(&state, false, kinds)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal of this process's own run, also when somebody has removed its file meanwhile.
///
/// # Errors
/// As [`undo_journal`].
pub(crate) fn undo_own(journal: &Journal) -> Result<UndoOutcome, ActError> {
    let kinds = journal.kinds();
    match undo_journal(journal.path(), true, kinds)? {
        UndoOutcome::Gone => {
            let state = read_open(journal.path(), journal.file(), kinds)?;
            undo_unshared(&state, true, kinds)?;
            undo_shared(&state, true, kinds)?;
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
pub(crate) fn take_values_back(path: &Path, held: Option<&File>, kinds: &[Kind]) -> Result<(), ActError> {
    let state = match (read(path, kinds), held) {
        (Err(error), Some(held)) if error.is_gone() => read_open(path, held, kinds)?,
        (state, _) => state?,
    };
    first_error(&state, false, kinds, |_, when| when == When::WhileSilent)
}

/// All but what runs share.
fn undo_unshared(state: &JournalState, own: bool, kinds: &[Kind]) -> Result<(), ActError> {
    first_error(state, own, kinds, |_, when| when != When::Last)
}

/// What no other run needs of what runs share: controllers, mounts.
fn undo_shared(state: &JournalState, own: bool, kinds: &[Kind]) -> Result<(), ActError> {
    let others_have = |entry: &Entry| !others_with(&state.path, kinds, |other| other == entry).is_empty();
    first_error(state, own, kinds, |entry, when| when == When::Last && !others_have(entry))
}

/// Undoes one after the other, newest first; a failure does not keep the others from being tried. All failures are one
/// error, which says how much was undone. `own`: this process has written them itself.
fn first_error(
    state: &JournalState,
    own: bool,
    kinds: &[Kind],
    due: impl Fn(&Entry, When) -> bool,
) -> Result<(), ActError> {
    let run = state.run(own);
    let tried = state.undos.iter().rev().map(|entry| entry.undo(kinds, &run, |when| due(entry, when)));
    let failed: Vec<ActError> = tried.filter_map(Result::err).inspect(|error| tracing::warn!("{error}")).collect();
    let failures = failed.len();
    failed.into_iter().next().map_or(Ok(()), |first| {
        let hint =
            if first.is_refused() { "; root of the machine itself, with all capabilities, can undo it" } else { "" };
        let (undone, of) = (state.undos.len() - failures, state.undos.len());
        Err(ActError::NotAll { first: Box::new(first), undone, of, hint })
    })
}
