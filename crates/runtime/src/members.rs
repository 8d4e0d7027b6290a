//! Which threads a group is.

use std::path::{Path, PathBuf};

/// Which threads a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// A process with all that it starts: a command's. Orphans of it are children of this process.
    ProcessTree {
        /// The first process.
        root: i32,
    },
    /// All that is in a cgroup and below it: a service's.
    Cgroup { folder: PathBuf },
    /// All processes of a program, with all that they start.
    Program {
        /// The program's name.
        name: String,
    },
}

impl Members {
    /// Its cgroup, where it is all that is in one.
    pub(crate) fn cgroup(&self) -> Option<&Path> {
        match self {
            Self::Cgroup { folder } => Some(folder),
            Self::ProcessTree { .. } | Self::Program { .. } => None,
        }
    }
}
