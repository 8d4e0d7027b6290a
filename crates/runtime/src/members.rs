//! Which threads a group is.

use std::path::PathBuf;

/// Which threads a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// A process with all that it starts: a command's. Orphans of it are children of this process.
    ProcessTree {
        /// The first process.
        root: i32,
    },
    /// All that is in a cgroup and below it: a service's. No observer finds those yet.
    Cgroup {
        /// Its folder.
        folder: PathBuf,
    },
}
