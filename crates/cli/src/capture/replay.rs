//! `gleaner replay`: the recorded windows decided again, as they were or with other parameters.

use super::open;
use clap::Args;
use gleaner_capture::{Damage, Difference, GroupOutcome, Record, Replay};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_command::params::read_params;
use gleaner_decide::ParamError;
use gleaner_decide::guest::GuestParams;
use gleaner_report::{
    DamageRecord, DecisionRecord, ReplayAction, ReplayChange, ReplayDifference, ReplayGroup, ReplayReport,
};
use std::cell::RefCell;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Without --config and --set each decision has to be the one recorded, to the last byte: the status is 1 \
                  where one is not, or the file is damaged. With them the status is 0, and what differs is shown. The \
                  windows stay those recorded: what the program would have done then is not known.\n\n\
                  Examples:\n\
                  \x20 gleaner replay redis.capture\n\
                  \x20 gleaner replay redis.capture --set load_factor=0.5 --set retention_trials=false\n\
                  \x20 gleaner replay redis.capture --config mine.toml --json"
)]
pub struct ReplayArgs {
    /// What `--capture` or `gleaner capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Other parameters: a TOML file with any of the keys that `gleaner params` prints; the rest stays as recorded
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Another parameter (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(args: &ReplayArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let changes = changes(args)?;
    let report = replay(args, &changes)?;
    output.text(&report);
    output.json(&report)?;
    let as_it_should_be = report.damage.is_none() && (report.identical || !changes.is_empty());
    Ok(u8::from(!as_it_should_be))
}

fn replay(args: &ReplayArgs, changes: &toml::Table) -> Result<ReplayReport, Failure> {
    let reader = open(&args.file)?;
    let differing: RefCell<Vec<ReplayChange>> = RefCell::default();
    let change = |recorded: &GuestParams| {
        let other = with(recorded, changes)?;
        let mut differing = differing.borrow_mut();
        if differing.is_empty() {
            *differing = difference(recorded, &other);
        }
        Ok(other)
    };
    let mut replay = Replay::new((!changes.is_empty()).then_some(&change));
    let (mut recorded_by, mut damage) = (None, None);
    for next in reader {
        match next {
            Ok(record) => {
                if let Record::Begins(machine) = &record {
                    recorded_by.get_or_insert_with(|| machine.gleaner.clone());
                }
                replay.feed(&record).map_err(|error| Failure::input(format!("{}: {error}", args.file.display())))?;
            }
            Err(Damage { offset, record, what }) => damage = Some(DamageRecord { offset, record, what }),
        }
    }
    let outcomes = replay.outcomes();
    Ok(ReplayReport {
        schema: ReplayReport::SCHEMA.to_owned(),
        file: args.file.display().to_string(),
        recorded_by,
        identical: damage.is_none() && outcomes.iter().all(GroupOutcome::is_identical),
        groups: outcomes.into_iter().map(group).collect(),
        damage,
        changed: differing.take(),
    })
}

fn group(outcome: GroupOutcome) -> ReplayGroup {
    let actions = outcome.actions.into_iter();
    let action = |(action, (recorded, replayed)): (&str, _)| ReplayAction { action: action.into(), recorded, replayed };
    ReplayGroup {
        name: outcome.name,
        windows: outcome.windows,
        skipped_windows: outcome.skipped,
        differing_windows: outcome.differing,
        actions: actions.map(action).collect(),
        differences: outcome.differences.iter().map(of_window).collect(),
    }
}

fn of_window(difference: &Difference) -> ReplayDifference {
    ReplayDifference {
        at_ns: difference.at.0,
        window: difference.window,
        recorded: difference.recorded.iter().map(DecisionRecord::from).collect(),
        replayed: difference.replayed.iter().map(DecisionRecord::from).collect(),
    }
}

/// What is to be other than recorded: the file, and over it what was set.
fn changes(args: &ReplayArgs) -> Result<toml::Table, Failure> {
    let mut changes = toml::Table::new();
    if let Some(path) = &args.config {
        read_params::<GuestParams>(path)?;
        let text = std::fs::read_to_string(path).map_err(Failure::input)?;
        changes = text.parse().map_err(Failure::input)?;
    }
    for set in &args.set {
        changes.extend(setting(set)?);
    }
    Ok(changes)
}

/// `KEY=VALUE` as a file would have it.
fn setting(set: &str) -> Result<toml::Table, Failure> {
    let wrong = |why: &str| Failure::input(format!("--set {set}: {why}; `gleaner params` lists the keys and values"));
    let (key, value) = set.split_once('=').ok_or_else(|| wrong("write KEY=VALUE"))?;
    let key = key.trim();
    if GuestParams::parameters().iter().all(|parameter| parameter.key != key) {
        return Err(wrong("there is no such key"));
    }
    let table: toml::Table =
        format!("{key} = {}", value.trim()).parse().map_err(|_| wrong("write a number, true or false"))?;
    // In itself, whatever the other parameters are.
    table.clone().try_into::<GuestParams>().map_err(|error| wrong(error.message()))?;
    Ok(table)
}

/// The recorded parameters with what is to be other.
fn with(recorded: &GuestParams, changes: &toml::Table) -> Result<GuestParams, ParamError> {
    let table = toml::Table::try_from(recorded).map(|mut table| {
        table.extend(changes.clone());
        table
    });
    // Each by itself is right, so all are; the recorded ones are numbers and truths.
    let other: GuestParams = table.ok().and_then(|table| table.try_into().ok()).unwrap_or_else(|| recorded.clone());
    other.validate()?;
    Ok(other)
}

fn difference(recorded: &GuestParams, other: &GuestParams) -> Vec<ReplayChange> {
    let (Ok(recorded), Ok(other)) = (toml::Table::try_from(recorded), toml::Table::try_from(other)) else {
        return Vec::new();
    };
    let differs = other.iter().filter_map(|(key, value)| {
        let was = recorded.get(key).filter(|was| *was != value)?;
        Some(ReplayChange { key: key.clone(), recorded: was.to_string(), replayed: value.to_string() })
    });
    differs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_a_file_would_say() {
        let table = setting("load_factor = 0.5").unwrap();
        assert_eq!(with(&GuestParams::default(), &table).unwrap().load_factor.to_bits(), 0.5_f64.to_bits());
        // An integer where a number is meant.
        let one = setting("load_factor=1").unwrap();
        let recorded = GuestParams { load_factor: 0.25, turns_cpus_max: 0.1 + 0.2, ..GuestParams::default() };
        let other = with(&recorded, &one).unwrap();
        assert_eq!(other, GuestParams { load_factor: 1.0, ..recorded.clone() }, "and to the last bit");
        assert_eq!(difference(&recorded, &other).len(), 1);
        for (bad, told) in [
            ("load_factor", "write KEY=VALUE"),
            ("lod_factor=1", "no such key"),
            ("load_factor=much", "write a number"),
        ] {
            let failure = setting(bad).unwrap_err();
            assert!(failure.status == 2 && failure.message.contains(told), "{}", failure.message);
        }
        assert!(with(&recorded, &setting("load_factor=7").unwrap()).is_err());
    }
}
