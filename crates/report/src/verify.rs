//! `gleaner.verify/1`: does the machine have what the daemon set?

use crate::show::{Document, Part, Shown, fact, line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kernel's files that the daemon has set, each as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    pub schema: String,
    /// Whether each file holds what was set.
    pub as_set: bool,
    /// Each file that the daemon has set.
    pub files: Vec<VerifiedFile>,
}

/// A file of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedFile {
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

    fn fact(&self) -> Part {
        if self.as_set {
            return fact("ok", format!("{}: {}", self.path, self.expected.join(" or ")));
        }
        fact("DIFFERS", self.difference())
    }
}

impl Shown for VerifyReport {
    fn document(&self) -> Document {
        let mut document = Document { indent: "  ", ..Document::new("What the daemon set") };
        document.both(self.files.iter().map(VerifiedFile::fact));
        document.both(line(match (self.files.is_empty(), self.as_set) {
            (true, _) => "nothing is set on this machine, so nothing can differ",
            (_, true) => "the machine has what the daemon set",
            (_, false) => {
                "somebody else changed something: that stays theirs, also when the daemon ends.\n\
                 For the daemon's own values again: see who writes these files, then restart the daemon."
            }
        }));
        document
    }
}
