//! What can go wrong with the kernel's files, with the file it went wrong in.

use std::io;
use std::path::{Path, PathBuf};

/// A file of the kernel's that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SysError {
    /// It could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It was read and is not what its format promises.
    #[error("{}:{line}: {what}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl SysError {
    /// For a file that cannot be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    /// For a line that is not the format.
    pub fn parse(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Self::Parse { path: path.to_owned(), line, what: what.into() }
    }
}

/// Whether an error only says that the thread, process or file is gone: no error, the world moved on.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR))
}

/// Why the kernel refused a thread, a process or a file, and where the limit is.
pub fn why_refused(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => format!(
            "{error}; no more processes and threads are allowed here: see `ulimit -u`, pids.max of the cgroup (a container's \
             or service's limit) and kernel.threads-max"
        ),
        Some(libc::EMFILE) => format!("{error}; raise `ulimit -n`"),
        Some(libc::ENOMEM) => format!("{error}; see `ulimit -v` and the cgroup's memory limit"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_where_the_limit_is() {
        for (code, word) in [(libc::EAGAIN, "pids.max"), (libc::EMFILE, "ulimit -n"), (libc::ENOMEM, "ulimit -v")] {
            let why = why_refused(&io::Error::from_raw_os_error(code));
            assert!(why.contains(word) && why.contains("os error"), "{why}");
        }
    }
}
