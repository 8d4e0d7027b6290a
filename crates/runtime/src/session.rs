//! One stretch of acting on the machine: a journal, its guardian, and what was changed. Undone when it ends.

use crate::event::{Event, Listener, Warning};
use crate::guardian::Guardian;
use crate::heartbeat::Heartbeat;
use gleaner_act::{
    ActError, Journal, UndoOutcome, default_state_dir, own_journals, own_start_time, undo_journal, undo_own,
};
use gleaner_sys::{OwnProc, ProcRoot, own_proc, why_refused};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Acts under a journal and a guardian until [`Session::end`] (or drop).
pub struct Session {
    /// Where every change is noted before it is made.
    pub journal: Journal,
    guardian: Option<Guardian>,
    /// For the guardian to watch.
    heartbeat: Option<Heartbeat>,
    /// How often the guardian had taken values back when it was last asked; `None`: it was not told to watch.
    taken: Option<u64>,
    /// What the guardian is to close last.
    closing: Vec<OwnedFd>,
    /// Why there is no guardian, if there is none.
    unguarded: Option<String>,
    path: PathBuf,
    listener: Listener,
    ended: bool,
}

/// A name for this process's acts that no other process of this boot has.
pub fn run_id() -> String {
    format!("{}-{}", rustix::process::getpid().as_raw_nonzero(), own_start_time().unwrap_or(0))
}

impl Session {
    /// Begins one in the default state folder. A guardian that cannot be started is a weakness to be told, not an
    /// error.
    /// What runs before it left behind is cleaned up first: their guardians are dead, or they would have done it.
    /// `listener` is told what cannot be undone, of theirs now and of this one's if it is dropped.
    ///
    /// # Errors
    /// When nothing could be undone: `/proc` is not this process's, or the journal cannot be written.
    pub fn begin(listener: Listener) -> Result<Self, ActError> {
        // Whoever undoes knows processes by their ids in /proc.
        let root = ProcRoot::default();
        let why = match own_proc(&root) {
            OwnProc::Ours => None,
            OwnProc::Foreign => Some("is another PID namespace's"),
            OwnProc::Missing => Some("does not show this process"),
        };
        if let Some(why) = why {
            let why = format!("{} {why}, so nothing could be undone", root.proc.display());
            return Err(ActError::Unavailable { what: "a journal".into(), why });
        }
        for abandoned in own_journals()? {
            if let Err(error) = undo_journal(&abandoned, false) {
                listener(&Event::JournalKept { journal: abandoned, why: error.to_string() });
            }
        }
        // The guardian first: from the journal's first byte on there is somebody to remove it.
        let path = Journal::path_in(&default_state_dir(), &run_id());
        let heartbeat = Heartbeat::new().inspect_err(|error| tracing::debug!("no heartbeat: {error}")).ok();
        let (guardian, unguarded) = match Guardian::start(&path, heartbeat.as_ref()) {
            Ok(guardian) => (Some(guardian), None),
            Err(error) => (None, Some(why_refused(&error))),
        };
        let journal = match Journal::create(&default_state_dir(), &run_id()) {
            Ok(journal) => journal,
            Err(error) => {
                guardian.into_iter().for_each(Guardian::dismiss);
                return Err(error);
            }
        };
        let closing = Vec::new();
        let mut session =
            Self { journal, guardian, heartbeat, taken: None, closing, unguarded, path, listener, ended: false };
        session.have_journal_held();
        Ok(session)
    }

    /// Hands the journal's file to the guardian, where it is another since the last call.
    pub fn have_journal_held(&mut self) {
        if let Some(guardian) = &self.guardian
            && let Some(file) = self.journal.take_new()
        {
            guardian.hold(&file);
        }
    }

    /// The guardian closes these last, for whom nobody waits.
    pub(crate) fn leave_closing(&mut self, files: Vec<OwnedFd>) {
        self.guardian.iter_mut().for_each(|guardian| guardian.is_to_close(&files));
        self.closing = files;
    }

    /// The guardian's process.
    pub fn guardian_pid(&self) -> Option<i32> {
        self.guardian.as_ref().map(Guardian::pid)
    }

    /// Why there is no guardian, where there is none.
    pub fn unguarded(&self) -> Option<&str> {
        self.unguarded.as_deref()
    }

    /// What to warn of from the start.
    pub fn warning(&self) -> Option<Warning> {
        self.unguarded.clone().map(|why| Warning::Unguarded { why })
    }

    /// Somebody may have killed the guardian, and there has to be one: what to warn of, where it was gone. To be asked
    /// at every tick, or when a child process ended.
    pub fn look_after_guardian(&mut self) -> Option<Warning> {
        if !self.guardian.as_mut()?.is_gone() {
            return None;
        }
        // It may have died while it took values back.
        self.heartbeat.iter().filter(|heartbeat| heartbeat.taken() % 2 == 1).for_each(Heartbeat::took_back);
        match Guardian::start(&self.path, self.heartbeat.as_ref()) {
            Ok(mut guardian) => {
                if self.taken.is_some() {
                    guardian.watch();
                }
                guardian.is_to_close(&self.closing);
                self.guardian = Some(guardian);
                self.journal.hand_over_again();
                self.have_journal_held();
                Some(Warning::GuardianReplaced)
            }
            Err(error) => {
                self.guardian = None;
                self.unguarded = Some(why_refused(&error));
                Some(Warning::GuardianLost)
            }
        }
    }

    /// This process is alive; to be called at least once a second. Where it is silent for longer, the guardian takes
    /// back values that keep vCPUs awake. Whether it did since the last call.
    pub fn beat(&mut self) -> bool {
        let (Some(heartbeat), Some(guardian)) = (&self.heartbeat, &mut self.guardian) else { return false };
        heartbeat.beat();
        let now = heartbeat.taken();
        if now % 2 == 1 {
            return false;
        }
        let before = self.taken.replace(now);
        if before.is_none() {
            guardian.watch();
        }
        before.is_some_and(|before| before != now)
    }

    /// Whether the guardian takes values back at this moment, or did since the last [`Self::beat`].
    pub fn is_taken_back(&self) -> bool {
        self.heartbeat.as_ref().zip(self.taken).is_some_and(|(heartbeat, taken)| heartbeat.taken() != taken)
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// What could not be undone: the guardian will try again once this process is gone.
    pub fn end(mut self) -> Result<UndoOutcome, ActError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<UndoOutcome, ActError> {
        self.ended = true;
        let outcome = undo_own(&self.journal);
        self.closing.clear();
        // What could not be undone (no descriptor left, say) the guardian tries again once this process is gone.
        if let Some(guardian) = self.guardian.take().filter(|_| outcome.is_ok()) {
            guardian.dismiss();
        }
        outcome
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.undo()
        {
            (self.listener)(&Event::NotUndone { why: error.to_string() });
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("journal", &self.journal)
            .field("guardian", &self.guardian)
            .finish_non_exhaustive()
    }
}
