//! Groups of a capture by their numbers, as far as it was read.

use gleaner_capture::{Machine, Record};
use std::collections::BTreeMap;

/// Names that are kept at a time, and bytes of one: a small file may have more than memory holds.
const NAMES_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 4_096;

/// What groups are called.
#[derive(Debug, Default)]
pub struct Names {
    session: String,
    names: BTreeMap<u64, String>,
}

impl Names {
    /// Takes the next record.
    pub fn follow(&mut self, record: &Record) {
        match record {
            // Another recorder's numbers are other groups'.
            Record::Begins(Machine { session, .. }) if *session != self.session => {
                *self = Self { session: session.clone(), names: BTreeMap::new() };
            }
            Record::Group(group) => {
                let has_room = self.names.len() < NAMES_MAX || self.names.contains_key(&group.group);
                if has_room && group.name.len() <= NAME_BYTES_MAX {
                    self.names.insert(group.group, group.name.clone());
                }
            }
            Record::Gone { group } => drop(self.names.remove(group)),
            _ => {}
        }
    }

    /// The group's name, or its number where the file does not tell.
    pub fn of(&self, group: u64) -> String {
        self.names.get(&group).cloned().unwrap_or_else(|| format!("group {group}"))
    }
}
