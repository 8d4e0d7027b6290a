//! Results without figures: shown in the words in which their command prints them.

use super::section::{Section, prose, sentence};
use crate::{
    CacheRecordReport, CacheReport, HostListReport, HostProbeReport, HostRunReport, LlcReport, RecordReport,
    SimRecordingReport, SliceReport, SweepReport, XenListReport, XenSliceReport,
};
use maud::html;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// A result that was read and put into words again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// What it is about.
    heading: &'static str,
    /// The command that prints this.
    command: &'static str,
    /// What it prints.
    text: String,
}

/// A schema that is shown so.
pub(super) struct Kind {
    pub schema: &'static str,
    /// How a file of it is made.
    pub command: &'static str,
    pub heading: &'static str,
    words: fn(&str) -> Result<String, serde_json::Error>,
}

fn words<T: DeserializeOwned + Display>(json: &str) -> Result<String, serde_json::Error> {
    serde_json::from_str::<T>(json).map(|report| report.to_string())
}

const fn kind<T: DeserializeOwned + Display>(
    schema: &'static str,
    command: &'static str,
    heading: &'static str,
) -> Kind {
    Kind { schema, command, heading, words: words::<T> }
}

/// All of them.
pub(super) const KINDS: [Kind; 12] = [
    kind::<HostRunReport>(HostRunReport::SCHEMA, "gleaner host run", "What the host agent did"),
    kind::<SliceReport>(SliceReport::SCHEMA, "gleaner host slice", "Slices asked for and delivered"),
    kind::<LlcReport>(LlcReport::SCHEMA, "gleaner host llc", "Who was given which part of the last-level cache"),
    kind::<HostListReport>(HostListReport::SCHEMA, "gleaner host list", "The host's VMs"),
    kind::<HostProbeReport>(HostProbeReport::SCHEMA, "gleaner host probe", "What the host can do"),
    kind::<XenListReport>(XenListReport::SCHEMA, "gleaner host list", "The Xen host's domains"),
    kind::<XenSliceReport>(XenSliceReport::SCHEMA, "gleaner host slice", "The Xen host's slices"),
    kind::<SweepReport>(SweepReport::SCHEMA, "gleaner-lab sim sweep", "A simulation over a grid of parameters"),
    kind::<SimRecordingReport>(
        SimRecordingReport::SCHEMA,
        "gleaner-lab sim from-recording",
        "A recorded program, simulated elsewhere",
    ),
    kind::<RecordReport>(RecordReport::SCHEMA, "gleaner record", "A recording of a program's threads"),
    kind::<CacheReport>(CacheReport::SCHEMA, "gleaner-lab cache run", "Simulated caches"),
    kind::<CacheRecordReport>(CacheRecordReport::SCHEMA, "gleaner-lab cache record", "A recording of memory accesses"),
];

impl Kind {
    pub fn read(&self, json: &str) -> Result<Plain, serde_json::Error> {
        (self.words)(json).map(|text| Plain { heading: self.heading, command: self.command, text })
    }
}

pub(super) fn section(plain: &Plain) -> Section {
    let mut section = Section::new(plain.heading);
    for line in plain.text.lines() {
        if let Some(verdict) = line.strip_prefix("verdict ") {
            section.summary.push(html! { span.verdict { (prose(&sentence(verdict.trim()))) } });
        } else if line.starts_with("UNFAIR: ") {
            section.summary.push(html! { span.hurts { (line) } });
        }
    }
    section.summary.push(html! { "There is no figure of it: what " code { (plain.command) } " says stands below." });
    section.texts.push(plain.text.trim_end().to_owned());
    section
}
