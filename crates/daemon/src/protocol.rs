//! What is said over the control socket: one request, a line of JSON; one answer, a line of JSON.

use gleaner_report::{StatusReport, VerifyReport};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Bytes of a request, at most.
pub(crate) const REQUEST_BYTES_MAX: usize = 4096;
/// Bytes of an answer that a client reads, at most: a thousand groups with twenty decisions each.
pub(crate) const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// How everything stands.
    Status,
    /// Whether the machine has what was set.
    Verify,
    /// Read the configuration anew. For root and the daemon's own user.
    Reload,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How everything stands.
    Status(Box<StatusReport>),
    /// Whether the machine has what was set.
    Verify(VerifyReport),
    /// The configuration counts, with so many groups.
    Reloaded(u64),
    /// What is wrong.
    Error(String),
}

/// Where the socket is, in the state folder.
pub(crate) fn socket_in(state_dir: &Path) -> PathBuf {
    state_dir.join("gleaner.sock")
}
