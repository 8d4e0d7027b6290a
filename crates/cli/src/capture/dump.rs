//! `gleaner dump`: what is in a capture, record by record.

use super::names::Names;
use super::open;
use clap::{Args, ValueEnum};
use gleaner_capture::{Damage, Ended, Record};
use gleaner_command::failure::Failure;
use gleaner_command::output::say;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Burst, printable_text};
use gleaner_report::{DamageRecord, DumpDecision, DumpGroup, DumpLine, DumpMachine, DumpWindow};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "With --json each line is one object: `what` says which kind. A damaged file is printed up to the damage, \
                  which is told with its place, and the status is 1.\n\n\
                  Examples:\n\
                  \x20 gleaner dump redis.capture\n\
                  \x20 gleaner dump redis.capture --what decisions\n\
                  \x20 gleaner dump redis.capture --json | jq 'select(.what == \"window\").threads'"
)]
pub struct DumpArgs {
    /// What `--capture` or `gleaner capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
    /// Print only these
    #[arg(long, value_enum)]
    pub what: Option<What>,
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// What was observed
    Windows,
    /// What was decided, and why
    Decisions,
    /// What else was told
    Events,
}

pub fn main(args: &DumpArgs) -> Result<u8, Failure> {
    let mut reader = open(&args.file)?;
    let mut printer = Printer { args, to: BufWriter::new(io::stdout().lock()), names: Names::default() };
    let mut is_damaged = false;
    let result = reader.try_for_each(|next| match next {
        Ok(record) => printer.record(&record),
        Err(damage) => {
            is_damaged = true;
            printer.damage(damage)
        }
    });
    match result.and_then(|()| printer.to.flush()) {
        // Whoever reads has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
        Err(error) => return Err(Failure::work(format!("cannot write the result to stdout: {error}"))),
        Ok(()) => {}
    }
    drop(printer);
    if !reader.is_finished() && !is_damaged {
        say(&"gleaner: it was not finished: the recorder goes on, or was killed");
    }
    Ok(u8::from(is_damaged))
}

struct Printer<'a, W> {
    args: &'a DumpArgs,
    to: W,
    names: Names,
}

impl<W: Write> Printer<'_, W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.names.follow(record);
        lines(record, &self.names).iter().try_for_each(|line| self.line(line))
    }

    fn damage(&mut self, Damage { offset, record, what }: Damage) -> io::Result<()> {
        let damage = DumpLine::Damage(DamageRecord { offset, record, what });
        if !self.args.json {
            self.to.flush()?;
            say(&format!("gleaner: {}: {damage}", self.args.file.display()));
        }
        self.line(&damage)
    }

    fn line(&mut self, line: &DumpLine) -> io::Result<()> {
        let of = match line {
            DumpLine::Window(_) => Some(What::Windows),
            DumpLine::Decision(_) => Some(What::Decisions),
            DumpLine::Event { .. } => Some(What::Events),
            _ => None,
        };
        // What is no kind by itself frames the others.
        if of.is_some() && self.args.what.is_some_and(|what| of != Some(what)) {
            return Ok(());
        }
        if self.args.json {
            return writeln!(self.to, "{}", serde_json::to_string(line).map_err(io::Error::other)?);
        }
        if matches!(line, DumpLine::Damage(_)) {
            return Ok(());
        }
        writeln!(self.to, "{}", printable_text(&line.to_string()))
    }
}

fn lines(record: &Record, names: &Names) -> Vec<DumpLine> {
    let decided = |group: &str, decisions: &[gleaner_model::Decision]| -> Vec<DumpLine> {
        decisions.iter().map(|decision| DumpLine::Decision(DumpDecision::of(group, decision))).collect()
    };
    match record {
        Record::Begins(machine) => vec![DumpLine::Machine(DumpMachine {
            schema: DumpMachine::SCHEMA.to_owned(),
            gleaner: machine.gleaner.clone(),
            kernel: machine.kernel.clone(),
            vcpus: machine.vcpus.to_string(),
            began_unix_s: machine.began_unix_s,
        })],
        Record::Group(group) => {
            let setup = group.decode_setup();
            let line = DumpLine::Group(DumpGroup {
                group: group.name.clone(),
                at_ns: group.at.0,
                policy: group.policy.name().to_owned(),
                profile: group.profile.name().to_owned(),
                params: setup.map(|setup| others_than_the_defaults(&setup.params)).unwrap_or_default(),
            });
            [line].into_iter().chain(decided(&group.name, &group.decisions)).collect()
        }
        Record::Window(of) => {
            let name = names.of(of.group);
            let line = DumpLine::Window(DumpWindow::of(&name, of.decided, &of.window));
            [line].into_iter().chain(decided(&name, &of.decisions)).collect()
        }
        Record::Burst(of) => {
            let name = names.of(of.group);
            let line = DumpLine::Event { at_ns: of.burst.at.0, text: told_at_once(&name, &of.burst) };
            [line].into_iter().chain(decided(&name, &of.decisions)).collect()
        }
        Record::Event { at, text } => vec![DumpLine::Event { at_ns: at.0, text: text.clone() }],
        Record::Ends(why) => {
            let why = if *why == Ended::Full { "full" } else { "stopped" };
            vec![DumpLine::End { why: why.to_owned() }]
        }
        Record::Gone { .. } => Vec::new(),
    }
}

fn told_at_once(group: &str, burst: &Burst) -> String {
    let Burst { runnable, lasted, delay, .. } = burst;
    format!("{group}: burst, {runnable} runnable, too many for {lasted}, a wake-up delayed by {delay}")
}

fn others_than_the_defaults(params: &GuestParams) -> Vec<String> {
    let (Ok(own), Ok(defaults)) = (toml::Table::try_from(params), toml::Table::try_from(GuestParams::default())) else {
        return Vec::new();
    };
    let others = own.iter().filter(|(key, value)| defaults.get(*key) != Some(value));
    others.map(|(key, value)| format!("{key} = {value}")).collect()
}
