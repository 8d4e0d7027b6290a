//! What can go wrong, with the file it went wrong in.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An act that failed.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// A file or folder could not be read, written, made or removed.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A system call on a thread was refused.
    #[error("{call} on thread {tid}: {source}")]
    Thread {
        call: &'static str,
        /// On which thread.
        tid: i32,
        /// Why not.
        source: io::Error,
    },
    /// A journal that is not one.
    #[error("{}:{line}: not a journal entry of this version ({reason}); nothing was undone from it, and it was kept", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Xen's own tool refused.
    #[error("`{command}`: {reason}")]
    Xl {
        /// What was run.
        command: String,
        /// Xen's own words.
        reason: String,
    },
    /// Not all of a journal could be undone.
    #[error("{first}; {undone} of its {of} entries need nothing more{hint}")]
    NotAll {
        /// What failed first.
        first: Box<ActError>,
        /// How many are undone.
        undone: usize,
        /// How many there are.
        of: usize,
        /// Who can undo the rest.
        hint: &'static str,
    },
    /// A file of the kernel's holds what somebody else has set since we did.
    #[error("somebody else has set {} to {value}, and so it stays", path.display())]
    Theirs {
        path: PathBuf,
        /// What it holds.
        value: String,
    },
    /// A means that was asked for by name and is not to be had.
    #[error("{what} cannot be used here: {why}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why not.
        why: String,
    },
}

impl ActError {
    /// Whether somebody else has set it.
    pub fn is_theirs(&self) -> bool {
        matches!(self, Self::Theirs { .. })
    }

    /// Whether it takes more privilege.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::File { source, .. } | Self::Thread { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether a file is no longer there.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// For `map_err` on a file operation.
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { verb, path, source }
    }

    /// For `map_err` on a call about a thread.
    pub(crate) fn thread(call: &'static str, tid: i32) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Thread { call, tid, source: errno.into() }
    }
}

/// A weaker means took the place of a better one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What would have been better.
    pub wanted: &'static str,
    pub used: &'static str,
    pub why: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instead of {}: {}", self.used, self.wanted, self.why)
    }
}
