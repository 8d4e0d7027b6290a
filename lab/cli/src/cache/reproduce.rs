//! `gleaner-lab cache reproduce`: figures of the micro-sliced paper, simulated.

use crate::sim::progress;
use crate::sim::reproduce::row;
use clap::Args;
use clap::builder::PossibleValuesParser;
use gleaner_cachesim::prefetch::PrefetchParams;
use gleaner_cachesim::reproduce::{
    Extent, Figure, Progress, QUANTA_FULL, ReproduceError, Reproduction, Source, reproduce,
};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_lab_report::{ReproductionParameter, ReproductionReport};
use indicatif::ProgressBar;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "The figures are those of section IV and V of the paper (MICRO'14):\n\
                        \x20 micro:fig7   runtime with page colouring, beside libquantum\n\
                        \x20 micro:fig8   CPI at 30 ms and 1 ms, and what of it is waiting for memory\n\
                        \x20 micro:fig10  CPI by technique, two contexts on a core\n\
                        \x20 micro:fig11  memory requests by technique, two contexts on a core\n\
                        \x20 micro:fig12  CPI by technique, four contexts on a core\n\n\
                        Takes some minutes; with --quanta 10, below which the result is called a smoke run, three times as long. \
                        docs/research/cachesim.md states the model and what the programs are.\n\n\
                        Examples:\n\
                        \x20 gleaner-lab cache reproduce micro:fig10 --mix 9 --mix 13\n\
                        \x20 gleaner-lab cache reproduce micro:fig11 --quanta 10 --json fig11.json")]
pub struct ReproduceArgs {
    /// Which figure
    #[arg(value_name = "FIGURE", value_parser = PossibleValuesParser::new(Figure::ALL.map(Figure::id)))]
    figure: String,
    /// Quanta of 30 ms counted for each context; at 1 ms, thirty times as many
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    quanta: u64,
    /// The least that runs at all: one quantum
    #[arg(long, conflicts_with = "quanta")]
    smoke: bool,
    /// Only this mix of the paper's Table VI, 1 to 17 (may be repeated); statements about types need all
    #[arg(long = "mix", value_name = "N")]
    mixes: Vec<u32>,
    /// Use recordings of real programs in DIR instead of made-up ones: sjeng, x264, bzip2, cc1, xalan, libquantum, each
    /// with .lackey.zst (docs/research/cachesim.md says how they are made)
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Simulations at a time; changes nothing but the time it takes [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(args: &ReproduceArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let figure = Figure::ALL.into_iter().find(|figure| figure.id() == args.figure);
    let figure = figure.ok_or_else(|| Failure::input(format!("{} is none of the figures", args.figure)))?;
    if let Some(folder) = args.traces.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::input(format!(
            "--traces {}: no such folder; give one with recordings (docs/research/cachesim.md says how they are made)",
            folder.display()
        )));
    }
    let extent = Extent { quanta: if args.smoke { 1 } else { args.quanta }, mixes: args.mixes.clone() };
    let source = Source::new(args.traces.clone());
    let jobs = args.jobs.map_or(0, usize::from);
    let bar = Bar(progress(0));
    let reproduction = reproduce(figure, &extent, &source, jobs, &bar).map_err(failure)?;
    bar.0.finish_and_clear();
    let report = report(reproduction, &extent, args);
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

/// What the user gave is at fault, unless the machine is.
fn failure(error: ReproduceError) -> Failure {
    match error {
        ReproduceError::Trace(_) | ReproduceError::NoMix(_) => Failure::input(error),
        other => Failure::work(other),
    }
}

/// How far it is.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn planned(&self, simulations: u64) {
        self.0.inc_length(simulations);
    }

    fn done(&self) {
        self.0.inc(1);
    }
}

fn report(reproduction: Reproduction, extent: &Extent, args: &ReproduceArgs) -> ReproductionReport {
    let smoke = extent.is_smoke();
    let rows = reproduction.rows.into_iter().map(|one| row(one, smoke, false));
    ReproductionReport {
        schema: ReproductionReport::SCHEMA.to_owned(),
        id: reproduction.figure.id().to_owned(),
        title: reproduction.title,
        smoke,
        parameters: parameters(extent, args),
        rows: rows.collect(),
        notes: reproduction.notes,
    }
}

fn parameters(extent: &Extent, args: &ReproduceArgs) -> Vec<ReproductionParameter> {
    let recap = PrefetchParams::recap();
    let programs = args
        .traces
        .as_ref()
        .map_or_else(|| "made up by profile".to_owned(), |folder| format!("recorded, from {}", folder.display()));
    [
        ("machine", "Table V: 3.4 GHz, L1 32 KB 4-way, L2 256 KB 8-way, L3 2 MB 16-way, DDR3-1600".to_owned()),
        ("slices", "30 ms and 1 ms; a switch takes 1 us".to_owned()),
        ("quanta of 30 ms", format!("{} for each context (a result: {QUANTA_FULL} or more)", extent.quanta)),
        ("programs", programs),
        (
            "prefetch",
            format!(
                "after RECAP: regions of 64 lines, {} entries of {} bytes, hit filter",
                recap.entries_max, recap.entry_bytes
            ),
        ),
        ("DIP", "MRU or LRU insertion by time sampling, 2 of 10 quanta, similar within 5 %".to_owned()),
    ]
    .map(|(name, value)| ReproductionParameter { name: name.to_owned(), value })
    .to_vec()
}
