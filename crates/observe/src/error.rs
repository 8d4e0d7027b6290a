//! What can go wrong while observing, with the file it went wrong in.

use std::io;
use std::path::{Path, PathBuf};

/// An observation that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A file of `/proc` or `/sys` that every Linux has could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file was read and is not what its format promises.
    #[error("{}:{line}: {what}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// Gleaner was told to observe with BPF only.
    #[error(transparent)]
    Bpf(#[from] crate::BpfRefusal),
}

impl ObserveError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn parse(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Self::Parse { path: path.to_owned(), line, what: what.into() }
    }
}

/// Whether an error only says that the thread, process or file is gone: no error, the world moved on.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR))
}
