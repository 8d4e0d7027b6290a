//! `gleaner.replay/1`: recorded windows decided again.

use crate::run::DecisionRecord;
use crate::text::{count, duration, table};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner replay` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayReport {
    /// `gleaner.replay/1`.
    pub schema: String,
    /// The capture.
    pub file: String,
    /// The gleaner that recorded it; null where the file does not get so far.
    pub recorded_by: Option<String>,
    /// The parameters that are others than those recorded.
    pub changed: Vec<ReplayChange>,
    /// Whether all could be read and replayed, and each decision is the one recorded, to the last byte.
    pub identical: bool,
    /// Each group.
    pub groups: Vec<ReplayGroup>,
    /// Where the file cannot be read.
    pub damages: Vec<DamageRecord>,
}

/// A parameter that is another than the one recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayChange {
    /// Which.
    pub key: String,
    /// As it was, in the first group.
    pub recorded: String,
    /// As it was for the replay.
    pub replayed: String,
}

/// What came of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayGroup {
    /// Its name.
    pub name: String,
    /// Windows replayed.
    pub windows: u64,
    /// Windows that could not be, because what was before them is not in the file.
    pub skipped_windows: u64,
    /// Windows by which something else is decided.
    pub differing_windows: u64,
    /// How often each action was recorded, and how often it is decided now.
    pub actions: Vec<ReplayAction>,
    /// The first differences, at most twenty.
    pub differences: Vec<ReplayDifference>,
}

/// How often an action was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayAction {
    /// `retain`, `release`, `deactivate`, `activate`, `activate-all`.
    pub action: String,
    /// Times then.
    pub recorded: u64,
    /// Times now.
    pub replayed: u64,
}

/// A window by which something else is decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayDifference {
    /// When it ended.
    pub at_ns: u64,
    /// Its number, from 1; 0: at the group's beginning.
    pub window: u64,
    /// What was decided.
    pub recorded: Vec<DecisionRecord>,
    /// What is decided now.
    pub replayed: Vec<DecisionRecord>,
}

/// A place of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DamageRecord {
    /// Byte of the file, from 0.
    pub offset: u64,
    /// The number of the record, from 1.
    pub record: u64,
    /// In words.
    pub what: String,
}

impl ReplayReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.replay/1";
    /// Differences printed of a group; the JSON has more.
    const PRINTED: usize = 5;
}

impl fmt::Display for DamageRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}, record {}: {}", self.offset, self.record, self.what)
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.recorded_by.as_ref().map(|by| format!(", recorded by gleaner {by}")).unwrap_or_default();
        writeln!(f, "{}{by}", self.file)?;
        for ReplayChange { key, recorded, replayed } in &self.changed {
            writeln!(f, "  with {key} = {replayed} instead of {recorded}")?;
        }
        for damage in &self.damages {
            writeln!(f, "  {damage}")?;
        }
        if self.groups.is_empty() {
            return writeln!(f, "no group is in it");
        }
        writeln!(f)?;
        let mut rows = table(&["group", "windows", "others decided", "decisions then", "now"]);
        let sum = |group: &ReplayGroup, of: fn(&ReplayAction) -> u64| {
            group.actions.iter().map(of).fold(0_u64, u64::saturating_add)
        };
        for group in &self.groups {
            rows.add_row([
                group.name.clone(),
                group.windows.to_string(),
                group.differing_windows.to_string(),
                sum(group, |action| action.recorded).to_string(),
                sum(group, |action| action.replayed).to_string(),
            ]);
        }
        writeln!(f, "{rows}")?;
        self.groups.iter().try_for_each(|group| group.explain(f))?;
        let verdict = match (self.identical, self.changed.is_empty()) {
            (true, true) => "every decision is the one recorded",
            (true, false) => "every decision is the one recorded all the same",
            (false, true) => "not every decision is the one recorded, or not all could be replayed",
            (false, false) => {
                "what differs is what would have been decided by the same windows; the program's would have been others"
            }
        };
        writeln!(f, "{verdict}")
    }
}

impl ReplayGroup {
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skipped_windows > 0 {
            let skipped = count(self.skipped_windows, "window");
            writeln!(f, "{}: {skipped} could not be replayed: what was before is not in the file", self.name)?;
        }
        if self.differences.is_empty() {
            return Ok(());
        }
        let actions = self.actions.iter().filter(|action| action.recorded != action.replayed);
        let actions: Vec<String> = actions
            .map(|action| format!("{} {} times, was {}", action.action, action.replayed, action.recorded))
            .collect();
        let actions = if actions.is_empty() { "at other times".to_owned() } else { actions.join("; ") };
        writeln!(f, "{}: {actions}", self.name)?;
        for difference in self.differences.iter().take(ReplayReport::PRINTED) {
            let at = duration(Some(difference.at_ns));
            for (word, decisions) in [("then", &difference.recorded), ("now", &difference.replayed)] {
                match decisions.split_first() {
                    None => writeln!(f, "  {at:>7}  {word:4}  nothing")?,
                    Some((first, rest)) => {
                        let vcpu = first.vcpu.map(|vcpu| format!(" vCPU {vcpu}")).unwrap_or_default();
                        let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                        writeln!(f, "  {at:>7}  {word:4}  {}{vcpu}: {}{more}", first.action, first.reason)?;
                    }
                }
            }
        }
        Ok(())
    }
}
