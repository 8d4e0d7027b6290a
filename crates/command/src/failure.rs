//! How a command fails: what to say and with which status (design, section 5).

use std::fmt::Display;
use std::io;

/// A failure with its exit status.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub status: u8,
    /// What is wrong, in one line, with what would be right.
    pub message: String,
}

impl Failure {
    /// Bad usage or bad input: status 2.
    pub fn input(message: impl Display) -> Self {
        Self { status: 2, message: message.to_string() }
    }

    /// The work failed: status 1.
    pub fn work(message: impl Display) -> Self {
        Self { status: 1, message: message.to_string() }
    }

    /// A file could not be written: bad input where its name is wrong, failed work where the system let it down.
    pub fn unwritten(what: impl Display, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::InvalidInput
            | Kind::ReadOnlyFilesystem
            | Kind::InvalidFilename => {
                Self::input(format!("cannot write {what}: {error}; name a file in a folder you may write to"))
            }
            _ => Self::work(format!("cannot write {what}: {error}")),
        }
    }

    /// `run`'s own failure: status 125.
    pub fn run(message: impl Display) -> Self {
        Self { status: 125, message: message.to_string() }
    }
}
