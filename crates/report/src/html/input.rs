//! Result files: what a JSON text is, by its `schema`, or what is wrong with it and where.

use crate::show::{Document, Shown};
use crate::{AbReport, DoctorReport, ProbeReport, RunReport, WorkloadReport};
use crate::{ab, run, workload};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Clone, Debug)]
pub struct ResultFile {
    /// Where it came from, as the user named it.
    pub name: String,
    /// Its kind's place on the page.
    place: usize,
    content: Content,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Content(Kind);

/// Some kinds stand together on the page.
#[derive(Clone, Debug)]
enum Kind {
    Ab(Box<AbReport>),
    Run(Box<RunReport>),
    Workload(Box<WorkloadReport>),
    Alone(Box<Document>),
}

/// A schema that a page can show, the command that writes it, and what makes a page's content of its JSON.
pub type Known = (&'static str, &'static str, fn(&str) -> Result<Content, serde_json::Error>);

fn together<T: DeserializeOwned>(json: &str, wrap: fn(Box<T>) -> Kind) -> Result<Content, serde_json::Error> {
    serde_json::from_str(json).map(|report| Content(wrap(Box::new(report))))
}

/// Content of a result that stands alone on the page.
pub fn alone<T: DeserializeOwned + Shown>(json: &str) -> Result<Content, serde_json::Error> {
    serde_json::from_str(json).map(|report: T| Content(Kind::Alone(Box::new(report.document()))))
}

/// What this program's results are, in the order in which a page shows them.
pub const KNOWN: &[Known] = &[
    (AbReport::SCHEMA, "gleaner ab --json FILE -- CMD", |json| together(json, Kind::Ab)),
    (RunReport::SCHEMA, "gleaner run --json FILE -- CMD", |json| together(json, Kind::Run)),
    (WorkloadReport::SCHEMA, "gleaner workload NAME --json FILE", |json| together(json, Kind::Workload)),
    (ProbeReport::SCHEMA, "gleaner probe --json FILE", alone::<ProbeReport>),
    (DoctorReport::SCHEMA, "gleaner doctor --json FILE", alone::<DoctorReport>),
];

/// What these results show, in the order of their kinds.
pub(super) fn documents(results: &[ResultFile]) -> Vec<Document> {
    let (mut comparisons, mut runs, mut workloads, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for file in results {
        match &file.content.0 {
            Kind::Ab(report) => comparisons.push((file.name.as_str(), &**report)),
            Kind::Run(report) => runs.push(&**report),
            Kind::Workload(report) => workloads.push(&**report),
            Kind::Alone(document) => all.push((file.place, (**document).clone())),
        }
    }
    all.sort_by_key(|(place, _)| *place);
    let compared: Vec<&Vec<String>> = comparisons.iter().map(|(_, report)| &report.command).collect();
    let mut documents = ab::documents(&comparisons);
    documents.extend(run::documents(&runs, &compared));
    documents.extend(workload::document(&workloads));
    documents.extend(all.into_iter().map(|(_, document)| document));
    documents
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
    #[error("its schema is {0:?}, which cannot be shown; one of these can: {1}")]
    Unknown(String, String),
    /// A known type of another version: what it says, what would be right.
    #[error("its schema is {0:?}, and this gleaner reads {1:?}: make the page with the gleaner that wrote the file")]
    OtherVersion(String, &'static str),
    /// The schema's name is right, its fields are not: where and what, the schema, what writes such files.
    #[error("{0}; this is no whole {1}, as {2} writes it")]
    Broken(String, &'static str, &'static str),
}

/// The place and the parser's words, without its own "at line 1 column 2", which would say it twice.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("line {}, column {}: {what}", error.line(), error.column())
}

/// Reads one result.
pub fn read(name: &str, text: &str, known: &[Known]) -> Result<ResultFile, ReadError> {
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
    let Some(place) = known.iter().position(|(schema, ..)| *schema == found) else {
        let stem = |schema: &str| schema.rsplit_once('/').map(|(stem, _)| stem.to_owned());
        let relative = known.iter().find(|(schema, ..)| stem(schema) == stem(&found));
        let Some((known, ..)) = relative else {
            let all: Vec<&str> = known.iter().map(|(schema, ..)| *schema).collect();
            return Err(ReadError::Unknown(found, all.join(", ")));
        };
        return Err(ReadError::OtherVersion(found, known));
    };
    let (schema, command, reader) = known[place];
    let content = reader(text).map_err(|error| ReadError::Broken(words(&error), schema, command))?;
    Ok(ResultFile { name: name.to_owned(), place, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(text: &str, wanted: &[&str]) {
        let error = read("x", text, KNOWN).unwrap_err().to_string();
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
        says("{\"schema\": \"other/1\"}", &["other/1", "gleaner.ab/1, gleaner.run/1"]);
        says("{\"schema\": \"gleaner.run/2\"}", &["gleaner.run/2", "\"gleaner.run/1\"", "that wrote the file"]);
        says(
            "{\"schema\": \"gleaner.run/1\",\n\"command\": 3}",
            &["line 2, column 12", "gleaner run --json FILE -- CMD"],
        );
        says("{\"schema\": \"gleaner.probe/1\"}", &["missing field", "gleaner probe"]);
        says(&"{\"schema\":".repeat(100_000), &["line 1", "recursion"]);
    }
}
