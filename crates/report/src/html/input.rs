//! Result files: what a JSON text is, by its `schema`, or what is wrong with it and where.

use crate::show::{Document, Shown};
use crate::{
    AbReport, DoctorReport, HostListReport, HostProbeReport, HostRunReport, ProbeReport, ReproductionReport, RunReport,
    ScenarioReport, SimReport, SweepReport, WorkloadReport, XenSliceReport,
};
use crate::{ab, run, workload};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Clone, Debug)]
pub struct ResultFile {
    /// Where it came from, as the user named it.
    pub name: String,
    content: Content,
}

/// What was read. Some kinds stand together on the page.
#[derive(Clone, Debug)]
enum Content {
    Ab(Box<AbReport>),
    Run(Box<RunReport>),
    Workload(Box<WorkloadReport>),
    /// Its place among the kinds, and what it shows.
    Alone(u8, Box<Document>),
}

/// Makes a page's content out of one schema's JSON; the command is the one that wrote it.
type Reader = fn(&str, &'static str) -> Result<Content, serde_json::Error>;

fn together<T: DeserializeOwned>(json: &str, wrap: fn(Box<T>) -> Content) -> Result<Content, serde_json::Error> {
    serde_json::from_str(json).map(|report| wrap(Box::new(report)))
}

fn alone<T: DeserializeOwned + Shown>(place: u8, json: &str) -> Result<Content, serde_json::Error> {
    serde_json::from_str(json).map(|report: T| Content::Alone(place, Box::new(report.document())))
}

/// Without figures: all is shown as the command prints it.
fn printed<T: DeserializeOwned + Shown>(json: &str, command: &'static str) -> Result<Content, serde_json::Error> {
    let document = |report: T| Document { printed_by: Some(command), ..report.document() };
    serde_json::from_str(json).map(|report| Content::Alone(9, Box::new(document(report))))
}

/// Every schema that can be shown, with the command that writes it.
const KNOWN: [(&str, &str, Reader); 13] = [
    (DoctorReport::SCHEMA, "gleaner doctor --json FILE", |json, _| alone::<DoctorReport>(8, json)),
    (ProbeReport::SCHEMA, "gleaner probe --json FILE", |json, _| alone::<ProbeReport>(7, json)),
    (RunReport::SCHEMA, "gleaner run --json FILE -- CMD", |json, _| together(json, Content::Run)),
    (AbReport::SCHEMA, "gleaner ab --json FILE -- CMD", |json, _| together(json, Content::Ab)),
    (WorkloadReport::SCHEMA, "gleaner workload NAME --json FILE", |json, _| together(json, Content::Workload)),
    (ScenarioReport::SCHEMA, "the test bed's runner", |json, _| alone::<ScenarioReport>(1, json)),
    (SimReport::SCHEMA, "gleaner-lab sim run --json FILE", |json, _| alone::<SimReport>(4, json)),
    (ReproductionReport::SCHEMA, "gleaner-lab sim (or cache) reproduce --json FILE", |json, _| {
        alone::<ReproductionReport>(5, json)
    }),
    (HostRunReport::SCHEMA, "gleaner host run", printed::<HostRunReport>),
    (HostListReport::SCHEMA, "gleaner host list", printed::<HostListReport>),
    (HostProbeReport::SCHEMA, "gleaner host probe", printed::<HostProbeReport>),
    (XenSliceReport::SCHEMA, "gleaner host run", printed::<XenSliceReport>),
    (SweepReport::SCHEMA, "gleaner-lab sim sweep", printed::<SweepReport>),
];

/// What these results show, in the order of their kinds.
pub(super) fn documents(results: &[ResultFile]) -> Vec<Document> {
    let (mut comparisons, mut runs, mut workloads, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for file in results {
        match &file.content {
            Content::Ab(report) => comparisons.push((file.name.as_str(), &**report)),
            Content::Run(report) => runs.push(&**report),
            Content::Workload(report) => workloads.push(&**report),
            Content::Alone(place, document) => all.push((*place, (**document).clone())),
        }
    }
    let compared: Vec<&Vec<String>> = comparisons.iter().map(|(_, report)| &report.command).collect();
    all.extend(ab::documents(&comparisons).into_iter().map(|document| (0, document)));
    all.extend(run::documents(&runs, &compared).into_iter().map(|document| (2, document)));
    all.extend(workload::document(&workloads).map(|document| (3, document)));
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, document)| document).collect()
}

/// Why a text is no result. The name of the file is the caller's to add.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing in it.
    #[error("it is empty; a result is the JSON object that `gleaner run --json FILE` and its like write")]
    Empty,
    /// A list, a number, or no JSON at all.
    #[error("it does not begin with {{; a result is one JSON object, as `gleaner run --json FILE` writes it")]
    NoObject,
    /// Not JSON, or not one object.
    #[error("{0}; a result is one JSON object, as `gleaner run --json FILE` writes it")]
    NotJson(String),
    /// JSON without a `schema`.
    #[error("it has no \"schema\"; a result of Gleaner begins with one, such as \"schema\": \"gleaner.run/1\"")]
    NoSchema,
    /// Another program's, or a type that cannot be shown.
    #[error("its schema is {0:?}, which cannot be shown; one of these can: {all}", all = known())]
    Unknown(String),
    /// A known type of another version: what it says, what would be right.
    #[error("its schema is {0:?}, and this gleaner reads {1:?}: make the page with the gleaner that wrote the file")]
    OtherVersion(String, &'static str),
    /// The schema's name is right, its fields are not: where and what, the schema, what writes such files.
    #[error("{0}; this is no whole {1}, as {2} writes it")]
    Broken(String, &'static str, &'static str),
}

fn known() -> String {
    KNOWN.map(|(schema, ..)| schema).join(", ")
}

/// The place and the parser's words, without its own "at line 1 column 2", which would say it twice.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("line {}, column {}: {what}", error.line(), error.column())
}

/// Reads one result.
pub fn read(name: &str, text: &str) -> Result<ResultFile, ReadError> {
    /// Every result has this, whatever else.
    #[derive(Deserialize)]
    struct Head {
        schema: Option<serde_json::Value>,
    }
    // Windows' editors put a byte-order mark in front.
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(ReadError::Empty);
    }
    // serde would take an array for an object without names.
    if !text.trim_start().starts_with('{') {
        return Err(ReadError::NoObject);
    }
    let head: Head = serde_json::from_str(text).map_err(|error| ReadError::NotJson(words(&error)))?;
    let found = match head.schema {
        None => return Err(ReadError::NoSchema),
        Some(serde_json::Value::String(found)) => found,
        Some(other) => other.to_string(),
    };
    let Some((schema, command, reader)) = KNOWN.into_iter().find(|(schema, ..)| *schema == found) else {
        let stem = |schema: &str| schema.rsplit_once('/').map(|(stem, _)| stem.to_owned());
        let relative = KNOWN.into_iter().find(|(schema, ..)| stem(schema) == stem(&found));
        return Err(match relative {
            Some((known, ..)) => ReadError::OtherVersion(found, known),
            None => ReadError::Unknown(found),
        });
    };
    let content = reader(text, command).map_err(|error| ReadError::Broken(words(&error), schema, command))?;
    Ok(ResultFile { name: name.to_owned(), content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(text: &str, wanted: &[&str]) {
        let error = read("x", text).unwrap_err().to_string();
        for word in wanted {
            assert!(error.contains(word), "nothing about {word:?} in: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        says("", &["empty", "gleaner run --json"]);
        says(" \n", &["empty"]);
        says("{\n  \"schema\": }", &["line 2, column 13", "expected value"]);
        says("{\"schema\": \"gleaner.run/1\"", &["line 1", "EOF"]);
        says("{\"schema\": \"gleaner.run/1\"} {}", &["line 1, column 29", "one JSON object"]);
        says("[]", &["one JSON object"]);
        says("[{\"schema\": \"gleaner.run/1\"}]", &["does not begin with {", "one JSON object"]);
        says("{}", &["no \"schema\""]);
        says("{\"schema\": 7}", &["\"7\"", "gleaner.run/1"]);
        says("{\"schema\": \"other/1\"}", &["other/1", "gleaner.doctor/1, gleaner.probe/1, gleaner.run/1"]);
        says("{\"schema\": \"gleaner.run/2\"}", &["gleaner.run/2", "\"gleaner.run/1\"", "that wrote the file"]);
        says(
            "{\"schema\": \"gleaner.run/1\",\n\"command\": 3}",
            &["line 2, column 12", "gleaner run --json FILE -- CMD"],
        );
        says("{\"schema\": \"gleaner.probe/1\"}", &["missing field", "gleaner probe"]);
        says(&"{\"schema\":".repeat(100_000), &["line 1", "recursion"]);
    }
}
