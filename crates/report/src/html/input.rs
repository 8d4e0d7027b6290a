//! Result files: what a JSON text is, by its `schema`, or what is wrong with it and where.

use super::plain::{self, Plain};
use crate::{
    AbReport, CacheClassReport, DoctorReport, ProbeReport, ReproductionReport, RunReport, ScenarioReport, SimReport,
    WorkloadReport,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A result that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultFile {
    /// Where it came from, as the user named it.
    pub name: String,
    /// What it says.
    pub content: Content,
}

/// One result of any schema that the page knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// `gleaner.doctor/1`.
    Doctor(Box<DoctorReport>),
    /// `gleaner.probe/1`.
    Probe(Box<ProbeReport>),
    /// `gleaner.run/1`.
    Run(Box<RunReport>),
    /// `gleaner.ab/1`.
    Ab(Box<AbReport>),
    /// `gleaner.workload/1`.
    Workload(Box<WorkloadReport>),
    /// `gleaner.scenario/1`.
    Scenario(Box<ScenarioReport>),
    /// `gleaner.cache-class/1`.
    CacheClass(Box<CacheClassReport>),
    /// `gleaner.sim/1`.
    Sim(Box<SimReport>),
    /// `gleaner.reproduction/1`.
    Reproduction(Box<ReproductionReport>),
    /// One of those that have no figures.
    Plain(Plain),
}

/// Makes a page's content out of one schema's JSON.
type Reader = fn(&str) -> Result<Content, serde_json::Error>;

fn reader<T: DeserializeOwned>(text: &str, wrap: fn(Box<T>) -> Content) -> Result<Content, serde_json::Error> {
    serde_json::from_str(text).map(|report| wrap(Box::new(report)))
}

/// Every schema that has figures, with the command that writes it.
const READERS: &[(&str, &str, Reader)] = &[
    (DoctorReport::SCHEMA, "gleaner doctor --json FILE", |text| reader(text, Content::Doctor)),
    (ProbeReport::SCHEMA, "gleaner probe --json FILE", |text| reader(text, Content::Probe)),
    (RunReport::SCHEMA, "gleaner run --json FILE -- CMD", |text| reader(text, Content::Run)),
    (AbReport::SCHEMA, "gleaner ab --json FILE -- CMD", |text| reader(text, Content::Ab)),
    (WorkloadReport::SCHEMA, "gleaner workload NAME --json FILE", |text| reader(text, Content::Workload)),
    (ScenarioReport::SCHEMA, "the test bed's runner", |text| reader(text, Content::Scenario)),
    (CacheClassReport::SCHEMA, "gleaner-lab cache classify --json FILE", |text| reader(text, Content::CacheClass)),
    (SimReport::SCHEMA, "gleaner-lab sim run --json FILE", |text| reader(text, Content::Sim)),
    (ReproductionReport::SCHEMA, "gleaner-lab sim (or cache) reproduce --json FILE", |text| {
        reader(text, Content::Reproduction)
    }),
];

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
    #[error(
        "line {line}, column {column}: {what}; a result is one JSON object, as `gleaner run --json FILE` writes it"
    )]
    NotJson {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What the parser stumbled over.
        what: String,
    },
    /// JSON without a `schema`.
    #[error("it has no \"schema\"; a result of Gleaner begins with one, such as \"schema\": \"gleaner.run/1\"")]
    NoSchema,
    /// Another program's, or a type that cannot be shown.
    #[error("its schema is {found:?}, which cannot be shown; one of these can: {}", known())]
    Unknown {
        /// What it says.
        found: String,
    },
    /// A known type of another version.
    #[error(
        "its schema is {found:?}, and this gleaner reads {known:?}: make the page with the gleaner that wrote the file"
    )]
    OtherVersion {
        /// What it says.
        found: String,
        /// What would be right.
        known: &'static str,
    },
    /// The schema's name is right, its fields are not.
    #[error("line {line}, column {column}: {what}; this is no whole {schema}, as {command} writes it")]
    Broken {
        /// Its schema.
        schema: &'static str,
        /// What writes such files.
        command: &'static str,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong there.
        what: String,
    },
}

/// Every schema that can be shown, with the command that writes it and what reads it.
fn schemas() -> impl Iterator<Item = (&'static str, &'static str, Way)> {
    let figures = READERS.iter().map(|(schema, command, reader)| (*schema, *command, Way::Figures(*reader)));
    figures.chain(plain::KINDS.iter().map(|kind| (kind.schema, kind.command, Way::Words(kind))))
}

/// How a schema is read.
enum Way {
    Figures(Reader),
    Words(&'static plain::Kind),
}

fn known() -> String {
    schemas().map(|(schema, ..)| schema).collect::<Vec<_>>().join(", ")
}

/// The parser's words without its own "at line 1 column 2", which would say it twice.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
}

/// Reads one result.
///
/// # Errors
///
/// When it is no result of a schema that can be shown.
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
    let head: Head = serde_json::from_str(text).map_err(|error| ReadError::NotJson {
        line: error.line(),
        column: error.column(),
        what: words(&error),
    })?;
    let found = match head.schema {
        None => return Err(ReadError::NoSchema),
        Some(serde_json::Value::String(found)) => found,
        Some(other) => other.to_string(),
    };
    let Some((schema, command, way)) = schemas().find(|(schema, ..)| *schema == found) else {
        let stem = |schema: &str| schema.rsplit_once('/').map(|(stem, _)| stem.to_owned());
        let relative = schemas().find(|(schema, ..)| stem(schema) == stem(&found));
        return Err(match relative {
            Some((known, ..)) => ReadError::OtherVersion { found, known },
            None => ReadError::Unknown { found },
        });
    };
    let content = match way {
        Way::Figures(read) => read(text),
        Way::Words(kind) => kind.read(text).map(Content::Plain),
    };
    let content = content.map_err(|error| ReadError::Broken {
        schema,
        command,
        line: error.line(),
        column: error.column(),
        what: words(&error),
    })?;
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
