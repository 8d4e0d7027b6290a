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
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A system call on a thread was refused.
    #[error("{call} on thread {tid}: {source}")]
    Thread {
        /// Which call.
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
    /// What is used.
    pub used: &'static str,
    /// Why.
    pub why: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instead of {}: {}", self.used, self.wanted, self.why)
    }
}
