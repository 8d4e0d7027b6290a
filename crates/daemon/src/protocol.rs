//! What is said over the control socket: one request, a line of JSON; one answer, a line of JSON.

use crate::joins::Join;
use gleaner_report::{RunReport, StatusReport, VerifyReport};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Bytes of a request, at most: each of the policy's numbers, and a path.
pub(crate) const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Bytes of an answer that a client reads, at most: a thousand groups with twenty decisions each.
pub(crate) const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What may be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// How everything stands.
    Status,
    /// Whether the machine has what was set.
    Verify,
    /// Read the configuration anew. For root and the daemon's own user.
    Reload,
    /// What has been recorded. `for_ns`: record from now on, for so long; ask again afterwards. For the same.
    Capture {
        /// How long.
        for_ns: Option<u64>,
    },
    /// Leave a group alone, or all that a wildcard of this name stands for, until it is released. For the same.
    Hold {
        /// Its name.
        group: String,
    },
    /// Manage it again. For the same.
    Release {
        /// Its name.
        group: String,
    },
    /// Manage these processes as one more group, as long as who asks lives. For everybody who may ask, of their own
    /// processes.
    Join(Box<Join>),
    /// ... and no longer. For who asked for it, and the same.
    Leave {
        /// Its number.
        group: u64,
    },
}

impl Request {
    /// Whether not everybody may ask for it who may ask.
    pub(crate) fn is_for_the_trusted(&self) -> bool {
        matches!(self, Self::Reload | Self::Capture { .. } | Self::Hold { .. } | Self::Release { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How everything stands.
    Status(Box<StatusReport>),
    /// Whether the machine has what was set.
    Verify(VerifyReport),
    /// The configuration counts, with so many groups.
    Reloaded(u64),
    /// The recorder's files, oldest first. With `for_ns`: the last one begins now.
    Capture(Vec<PathBuf>),
    /// These groups are held, or released.
    Done(Vec<String>),
    /// It would be taken.
    Welcome,
    /// It is managed.
    Joined {
        /// By this number.
        group: u64,
        name: String,
        /// By this process.
        pid: i32,
    },
    /// What there is to tell of it, which is managed no more.
    Left(Box<RunReport>),
    /// What is wrong.
    Error(String),
}

/// Where the socket is, in the state folder.
pub fn socket_in(state_dir: &Path) -> PathBuf {
    state_dir.join("gleaner.sock")
}
