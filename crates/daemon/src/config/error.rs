//! What is wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// In which file.
    pub file: PathBuf,
    /// In which line, from 1.
    pub line: Option<usize>,
    /// What, and what would be right.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}
