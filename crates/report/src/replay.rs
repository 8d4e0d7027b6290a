//! `gleaner.replay/1`: recorded windows decided again.

use crate::run::DecisionRecord;
use crate::show::{Document, Row, Shown, line, table};
use crate::text::{count, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner replay` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayReport {
    pub schema: String,
    pub file: String,
    /// The gleaner that recorded it; null where the file does not get so far.
    pub recorded_by: Option<String>,
    /// The parameters that are others than those recorded.
    pub changed: Vec<ReplayChange>,
    /// Whether all could be read and replayed, and each decision is the one recorded, to the last byte.
    pub identical: bool,
    pub groups: Vec<ReplayGroup>,
    /// Where the file cannot be read any further; null: it was read to its end.
    pub damage: Option<DamageRecord>,
}

/// A parameter that is another than the one recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayChange {
    pub key: String,
    /// As it was, in the first group.
    pub recorded: String,
    pub replayed: String,
}

/// What came of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayGroup {
    pub name: String,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayAction {
    /// `retain`, `release`, `deactivate`, `activate` or `activate-all`.
    pub action: String,
    /// Times then.
    pub recorded: u64,
    /// Times now.
    pub replayed: u64,
}

/// A window by which something else is decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamageRecord {
    /// Byte of the file, from 0.
    pub offset: u64,
    /// The number of the record, from 1.
    pub record: u64,
    pub what: String,
}

impl fmt::Display for DamageRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}, record {}: {}", self.offset, self.record, self.what)
    }
}

/// Differences printed of a group; the JSON has more.
const PRINTED: usize = 5;

impl Shown for ReplayReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A capture, decided again");
        let by = self.recorded_by.as_ref().map(|by| format!(", recorded by gleaner {by}")).unwrap_or_default();
        document.both(line(format!("{}{by}", self.file)));
        document.both(self.changed.iter().map(|ReplayChange { key, recorded, replayed }| {
            line(format!("  with {key} = {replayed} instead of {recorded}"))
        }));
        document.both(self.damage.iter().map(|damage| line(format!("  {damage}"))));
        if self.groups.is_empty() {
            document.both(line("no group is in it"));
            return document;
        }
        document.both(line(""));
        document.both(table("", self.groups.iter().map(ReplayGroup::cells)));
        document.both(self.groups.iter().flat_map(ReplayGroup::explain).map(line));
        document.both(line(match (self.identical, self.changed.is_empty()) {
            (true, true) => "every decision is the one recorded",
            (true, false) => "every decision is the one recorded all the same",
            (false, true) => "not every decision is the one recorded, or not all could be replayed",
            (false, false) => {
                "what differs is what would have been decided by the same windows; the program's would have been others"
            }
        }));
        document
    }
}

impl ReplayGroup {
    fn cells(&self) -> Row {
        let sum = |of: fn(&ReplayAction) -> u64| self.actions.iter().map(of).fold(0_u64, u64::saturating_add);
        Row::default()
            .text("group", &self.name)
            .number("windows", self.windows)
            .number("others decided", self.differing_windows)
            .number("decisions then", sum(|action| action.recorded))
            .number("now", sum(|action| action.replayed))
    }

    fn explain(&self) -> Vec<String> {
        let skipped = (self.skipped_windows > 0).then(|| {
            let skipped = count(self.skipped_windows, "window");
            format!("{}: {skipped} could not be replayed: what was before is not in the file", self.name)
        });
        let mut lines: Vec<String> = skipped.into_iter().collect();
        if self.differences.is_empty() {
            return lines;
        }
        let actions = self.actions.iter().filter(|action| action.recorded != action.replayed);
        let actions: Vec<String> = actions
            .map(|action| format!("{} {} times, was {}", action.action, action.replayed, action.recorded))
            .collect();
        let actions = if actions.is_empty() { "at other times".to_owned() } else { actions.join("; ") };
        lines.push(format!("{}: {actions}", self.name));
        lines.extend(self.differences.iter().take(PRINTED).flat_map(|difference| {
            let at = time(difference.at_ns);
            let sides = [("then", &difference.recorded), ("now", &difference.replayed)];
            sides.map(|(word, decisions)| format!("  {at:>7}  {word:4}  {}", first_of(decisions)))
        }));
        lines
    }
}

fn first_of(decisions: &[DecisionRecord]) -> String {
    let Some((first, rest)) = decisions.split_first() else { return "nothing".to_owned() };
    let vcpu = first.vcpu.map(|vcpu| format!(" vCPU {vcpu}")).unwrap_or_default();
    let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
    format!("{}{vcpu}: {}{more}", first.action, first.reason)
}
