//! `gleaner.sweep/1`: a scenario simulated over a grid of parameters and seeds.

use gleaner_report::show::{Document, Row, Shown, line, table};
use gleaner_report::text::{self, count};
use gleaner_stats::median;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What `gleaner-lab sim sweep` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    pub schema: String,
    pub scenario: String,
    /// The first seed; each further one is the next.
    pub seed: u64,
    /// How many seeds each setting and combination was simulated with.
    pub seeds: u32,
    /// What was swept over.
    pub parameters: Vec<SweepParameter>,
    /// Where the points' files are.
    pub folder: String,
    /// Which part of the points this is, as `2/4`; null: all.
    pub shard: Option<String>,
    /// Points of the whole sweep.
    pub points: u64,
    /// Points of this part.
    pub points_here: u64,
    /// Of these, simulated by this call; the others were there.
    pub points_simulated: u64,
    /// Points of the whole sweep that nobody has simulated yet.
    pub points_missing: u64,
    /// Why there is less than was asked for: `interrupt` or `max-time`; null: there is all of it.
    pub stopped_by: Option<String>,
    /// A row for each point of this part and VM, with the columns of its Parquet file.
    pub rows: Vec<Map<String, Value>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepParameter {
    /// Where it is in the scenario.
    pub key: String,
    /// Its column; durations are in nanoseconds there.
    pub column: String,
    /// Its values, as columns have them.
    pub values: Vec<Value>,
}

/// Lines that the text prints; Parquet and JSON have them all.
const PRINTED: usize = 40;

/// Rows that differ in their point and seed only.
struct Group {
    /// Values of the parameters; VM, workload, what runs beside it, policy.
    names: Vec<String>,
    items_per_s: Vec<f64>,
    /// Whether a run of them was cut off.
    cut: bool,
}

fn word(row: &Map<String, Value>, column: &str) -> String {
    match row.get(column) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(Value::Number(ns)) if column.ends_with("_ns") => text::time(ns.as_u64()),
        Some(other) => other.to_string(),
    }
}

impl SweepReport {
    /// Measured VMs' rows, those of all seeds together.
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut places = std::collections::BTreeMap::new();
        let columns = self.parameters.iter().map(|parameter| parameter.column.as_str());
        let columns: Vec<&str> = columns.chain(["vm", "workload", "beside", "policy", "slice"]).collect();
        for row in self.rows.iter().filter(|row| row.get("role").is_some_and(|role| role == "measured")) {
            let names: Vec<String> = columns.iter().map(|column| word(row, column)).collect();
            let place = *places.entry(names.clone()).or_insert_with(|| {
                groups.push(Group { names, items_per_s: Vec::new(), cut: false });
                groups.len() - 1
            });
            groups[place].items_per_s.extend(row.get("items_per_s").and_then(Value::as_f64));
            groups[place].cut |= row.get("complete") == Some(&Value::Bool(false));
        }
        groups
    }
}

impl Shown for SweepReport {
    fn document(&self) -> Document {
        let mut document = Document::new("A simulation over a grid of parameters");
        document.both(self.stopped_by.as_deref().map(|by| line(text::partial(by))));
        let part = self.shard.as_ref().map_or_else(String::new, |shard| format!(" (part {shard})"));
        document.both(line(format!(
            "{}{part}: {} of {} here, {} simulated now; results are in {}/points/*.parquet.",
            self.scenario,
            self.points_here,
            count(self.points, "point"),
            self.points_simulated,
            self.folder
        )));
        let groups = self.groups();
        document.both(table("", groups.iter().take(PRINTED).map(|group| self.cells(group))));
        if groups.len() > PRINTED {
            let more = count((groups.len() - PRINTED) as u64, "row");
            document.both(line(format!("... and {more} more: all are in --json FILE, and in the Parquet files.")));
        }
        if self.points_missing > 0 {
            let missing = count(self.points_missing, "point");
            document.both(line(format!("{missing} of the whole sweep still to simulate.")));
        }
        document
    }
}

impl SweepReport {
    fn cells(&self, group: &Group) -> Row {
        let parameters = self.parameters.iter().map(|parameter| parameter.key.as_str());
        let columns = parameters.chain(["VM", "workload", "beside", "policy", "host slice"]);
        let row = columns.zip(&group.names).fold(Row::default(), |row, (column, name)| row.text(column, name));
        let rates = &group.items_per_s;
        row.fixed("items/s", median(rates).unwrap_or(0.0), 0)
            .fixed("least", rates.first().copied(), 0)
            .fixed("greatest", rates.last().copied(), 0)
            .number("seeds", rates.len())
            .text("cut off", if group.cut { "yes" } else { "" })
    }
}
