//! What runs in a VM, as a file says it.

use crate::format::{Other, Time, WordOr};
use crate::values::{Wrong, time, within, word_of};
use crate::{Better, CommandLine, Program, Workload};
use serde::Deserialize;
use serde::de::MapAccess;
use serde::de::value::MapAccessDeserializer;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawWorkload {
    label: Option<String>,
    program: Option<String>,
    threads: Option<Spanned<u32>>,
    items: Option<Spanned<u64>>,
    granularity: Option<Spanned<Time>>,
    seed: Option<u64>,
    args: Option<Vec<String>>,
    command: Option<Vec<String>>,
    metric: Option<String>,
    better: Option<Spanned<String>>,
}

impl Other for RawWorkload {
    const EXPECTED: &'static str = "\"nothing\", { program = \"pipeline\", ... } or { command = [\"sysbench\", ...] }";
    fn from_map<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

/// At least one, each with a label of its own.
pub(crate) fn check_workloads(raw: Spanned<Vec<Spanned<WordOr<RawWorkload>>>>) -> Result<Vec<Workload>, Wrong> {
    let span = raw.span();
    let mut workloads: Vec<Workload> = Vec::new();
    for raw in raw.into_inner() {
        let span = raw.span();
        let workload = check_workload(raw)?;
        if workloads.iter().any(|other| other.label() == workload.label()) {
            let what = format!("two workloads are called {:?}; give one of them a label", workload.label());
            return Err((span, what));
        }
        workloads.push(workload);
    }
    if workloads.is_empty() {
        return Err((span, format!("no workloads; give at least one of {}", RawWorkload::EXPECTED)));
    }
    Ok(workloads)
}

fn check_workload(raw: Spanned<WordOr<RawWorkload>>) -> Result<Workload, Wrong> {
    let span = raw.span();
    let raw = match raw.into_inner() {
        WordOr::Word(word) if word == "nothing" => return Ok(Workload::Nothing),
        WordOr::Word(word) => return Err((span, format!("workload {word:?}; must be {}", RawWorkload::EXPECTED))),
        WordOr::Other(raw) => raw,
    };
    let only_programs = raw.threads.is_some() || raw.items.is_some() || raw.granularity.is_some() || raw.seed.is_some();
    let label = |own: &str| raw.label.clone().unwrap_or_else(|| own.to_owned());
    let workload = match (raw.program, raw.command) {
        (Some(program), None) if raw.metric.is_none() && raw.better.is_none() => Workload::Program(Program {
            label: label(&program),
            program,
            threads: raw.threads.map(|threads| within("threads", &threads, 1..=1024)).transpose()?,
            items: raw.items.map(|items| within("items", &items, 1..=u64::MAX >> 1)).transpose()?,
            granularity: raw.granularity.map(granularity).transpose()?,
            seed: raw.seed,
            args: raw.args.unwrap_or_default(),
        }),
        (None, Some(command)) if !only_programs && raw.args.is_none() => {
            let Some(first) = command.first() else {
                return Err((span, "an empty command; write it like [\"sysbench\", ...]".to_owned()));
            };
            let own = Path::new(first).file_name().map_or_else(|| first.clone(), |name| name.to_string_lossy().into());
            let better = check_better(raw.better.as_ref(), raw.metric.is_some())?;
            Workload::Command(CommandLine { label: label(&own), command, metric: raw.metric, better })
        }
        (Some(_), None) => {
            return Err((span, "metric, and better with it, goes with a command, not with a program".to_owned()));
        }
        (None, Some(_)) => {
            let what = "threads, items, granularity, seed and args go with a program, not with a command";
            return Err((span, what.to_owned()));
        }
        _ => return Err((span, "a workload has either a program or a command".to_owned())),
    };
    if workload.label().is_empty() || workload.label() == "nothing" {
        return Err((span, format!("a label cannot be {:?}", workload.label())));
    }
    Ok(workload)
}

/// More than an hour is a mistake of unit.
fn granularity(found: Spanned<Time>) -> Result<Duration, Wrong> {
    time("granularity", Some(found), Duration::ZERO, Duration::ZERO..=Duration::from_secs(3_600))
}

fn check_better(better: Option<&Spanned<String>>, metric: bool) -> Result<Better, Wrong> {
    let Some(better) = better else { return Ok(Better::default()) };
    if !metric {
        return Err((
            better.span(),
            "better says which figures of a metric are better; give the metric too".to_owned(),
        ));
    }
    word_of("better", better)
}
