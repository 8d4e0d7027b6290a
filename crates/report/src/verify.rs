//! `gleaner.verify/1`: does the machine have what the daemon set?

use serde::{Deserialize, Serialize};
use std::fmt;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyReport {
    /// `gleaner.verify/1`.
    pub schema: String,
    /// Whether each file holds what was set.
    pub as_set: bool,
    /// Each file that the daemon has set.
    pub files: Vec<VerifiedFile>,
}

/// A file of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifiedFile {
    /// Which.
    pub path: String,
    /// What it should hold: one of these.
    pub expected: Vec<String>,
    /// What it holds; null where it cannot be read.
    pub found: Option<String>,
    /// Whether that is as it should be.
    pub as_set: bool,
    /// Who changed it, as far as that can be told; null where nobody did.
    pub changed_by: Option<String>,
}

impl VerifyReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.verify/1";
}

impl VerifiedFile {
    /// What of it is not as it was set, in words.
    pub fn difference(&self) -> String {
        let expected = self.expected.join(" or ");
        let found = self.found.as_ref().map_or_else(
            || format!("{}: cannot be read, and was {expected}", self.path),
            |found| format!("{}: {found}, and not {expected}", self.path),
        );
        self.changed_by.as_ref().map_or(found.clone(), |who| format!("{found}; changed by {who}"))
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            return writeln!(f, "nothing is set on this machine, so nothing can differ");
        }
        for file in &self.files {
            let expected = file.expected.join(" or ");
            match (&file.found, file.as_set) {
                (_, true) => writeln!(f, "  ok         {}: {expected}", file.path)?,
                (Some(found), false) => writeln!(f, "  DIFFERS    {}: {found}, and not {expected}", file.path)?,
                (None, false) => writeln!(f, "  DIFFERS    {}: cannot be read", file.path)?,
            }
            if let Some(who) = &file.changed_by {
                writeln!(f, "             changed by {who}")?;
            }
        }
        if self.as_set {
            return writeln!(f, "the machine has what the daemon set");
        }
        writeln!(f, "somebody else changed something: that stays theirs, also when the daemon ends.")?;
        writeln!(f, "For the daemon's own values again: see who writes these files, then restart the daemon.")
    }
}
