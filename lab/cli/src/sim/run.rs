//! `gleaner-lab sim run`: every combination of a scenario, with every value that is to be set and every seed,
//! simulated.

use super::lines::{self, Lines, SimLine};
use super::results::{self, Common, Ran};
use super::set::Axis;
use super::settings::{Base, Setting};
use clap::Args;
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::files::Destination;
use gleaner_command::output::Output;
use gleaner_lab_report::{SimReport, SimRun};
use gleaner_scenario::{Combination, Scenario};
use gleaner_sim::{Simulation, Timeline};
use indicatif::ProgressBar;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Debug, Args)]
#[command(
    after_help = "The file is a test bed's scenario (docs/research/testbed.md), with a [simulator] table for the host \
                  (docs/research/simulator.md). The same file, seed and version give the same result to the last byte, whatever --jobs.\n\n\
                  KEY is where the value is in the file: simulator.slice, simulator.cost_ns.ipi_ns, vm.0.vcpus or vm.NAME.vcpus. Every \
                  --set multiplies the simulations.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab sim run experiments/simulator/testbed.toml\n\
                  \x20 gleaner-lab sim run my.toml --set simulator.slice=30ms,6ms,1ms --seeds 10 --jsonl slices.jsonl\n\
                  \x20 gleaner-lab sim run my.toml --probe probe.json   (costs of the VM where probe ran)\n\
                  \x20 gleaner-lab sim run my.toml --seeds 1 --trace timeline.json   (open it in ui.perfetto.dev)"
)]
pub struct RunArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A key of the scenario and the values that it takes (may be repeated)
    #[arg(long = "set", value_name = "KEY=V1,V2,...", value_parser = Axis::parse)]
    axes: Vec<Axis>,
    /// The first seed instead of the scenario's; each further one is the next
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds each combination is simulated with, instead of the scenario's rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// Simulations at a time; changes nothing but the time it takes [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Write each simulation to FILE when it is done, a line each; what is there already is not simulated again
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Costs of wake-ups as `gleaner probe --json` measured them, instead of the scenario's; what the file's cost_ns
    /// names stays
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// Write every vCPU's timeline of the first simulation, as a Chrome trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

/// One simulation.
struct Point<'a> {
    setting: &'a Setting,
    combination: &'a Combination,
    round: u32,
    seed: u64,
    /// Whether its timeline is wanted.
    traced: bool,
}

pub fn main(args: &RunArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let text = Scenario::read_text(&args.file).map_err(Failure::input)?;
    let scenario = Scenario::parse(&text, &args.file).map_err(Failure::input)?;
    let costs = args.probe.as_deref().map(super::probe::costs).transpose()?.unwrap_or_default();
    let base = Base::new(&args.file, &text, costs);
    let (seed, seeds) = (args.seed.unwrap_or(scenario.seed), args.seeds.unwrap_or(scenario.rounds));
    let settings = base.settings(&args.axes, seeds)?;
    let lines = args.jsonl.as_deref().map(Lines::open).transpose()?;
    let trace = args.trace.as_deref().map(|path| create(path).map(|file| (path, file))).transpose()?;
    let mut points = Vec::new();
    for setting in &settings {
        for round in 0..seeds {
            let seed = seed.wrapping_add(u64::from(round));
            let point = |combination| Point { setting, combination, round, seed, traced: false };
            points.extend(setting.combinations.iter().map(point));
        }
    }
    if let Some(first) = points.first_mut() {
        first.traced = trace.is_some();
    }
    let work =
        Work { base: &base, lines: lines.as_ref(), timeline: Mutex::default(), bar: super::progress(points.len()) };
    let pool = ThreadPoolBuilder::new().num_threads(args.jobs.map_or(0, usize::from)).build();
    let pool = pool.map_err(|error| Failure::work(format!("cannot start threads: {error}; try --jobs 1")))?;
    let runs: Vec<SimRun> =
        pool.install(|| points.par_iter().map(|point| work.simulate(point)).collect::<Result<_, _>>())?;
    work.bar.finish_and_clear();
    let timeline = work.timeline.into_inner().ok().flatten();
    if let (Some((path, (place, file))), Some((names, timeline))) = (trace, timeline) {
        write_trace(file, &names, &timeline)
            .and_then(|()| place.whole())
            .map_err(|error| Failure::work(format!("cannot write the trace to {}: {error}", path.display())))?;
    }
    let reports = reports(&base, &settings, &points, runs, seed)?;
    match &reports[..] {
        [report] => output.json(report)?,
        reports => output.json(&reports)?,
    }
    for report in &reports {
        output.text(report);
    }
    Ok(0)
}

/// A result for each setting.
fn reports(
    base: &Base<'_>,
    settings: &[Setting],
    points: &[Point<'_>],
    runs: Vec<SimRun>,
    seed: u64,
) -> Result<Vec<SimReport>, Failure> {
    let mut ran = points.iter().zip(runs).peekable();
    let mut reports = Vec::new();
    for setting in settings {
        let first = base.config(&setting.scenario, &setting.combinations[0], seed).map_err(Failure::input)?;
        let costs = first.vms.first().map(|vm| vm.costs.described()).unwrap_or_default();
        let (host, set) = (&first.host, setting.set.clone());
        let common = Common { scenario: &setting.scenario, set, seed, host, costs: &costs };
        let mut own = Vec::new();
        while let Some((point, run)) = ran.next_if(|(point, _)| std::ptr::eq(point.setting, setting)) {
            own.push(Ran { combination: point.combination, run });
        }
        reports.push(results::report(common, own));
    }
    Ok(reports)
}

/// The timeline of a run, with the VMs' names and numbers of vCPUs.
type Traced = (Vec<(String, u32)>, Timeline);

struct Work<'a> {
    base: &'a Base<'a>,
    lines: Option<&'a Lines>,
    timeline: Mutex<Option<Traced>>,
    bar: ProgressBar,
}

impl Work<'_> {
    fn simulate(&self, point: &Point<'_>) -> Result<SimRun, Failure> {
        let scenario = &point.setting.scenario;
        let wrong = |error: String| Failure::input(format!("{}: {error}", self.base.path.display()));
        let mut config = self.base.config(scenario, point.combination, point.seed).map_err(wrong)?;
        let number = self.lines.map(|lines| lines.point(&config));
        let known = self.lines.zip(number.as_deref()).and_then(|(lines, number)| lines.done(number));
        if let Some(known) = known.filter(|_| !point.traced) {
            self.bar.inc(1);
            return Ok(SimRun { round: point.round, ..known.clone() });
        }
        config.trace = point.traced;
        let names = config.vms.iter().map(|vm| (vm.name.clone(), vm.vcpus)).collect();
        let simulation = Simulation::new(config).map_err(|error| wrong(error.to_string()))?;
        let (result, spans) = simulation.run().map_err(|error| wrong(error.to_string()))?;
        if let Some(spans) = spans {
            *self.timeline.lock().expect("nobody panics while it is held") = Some((names, spans));
        }
        let run = results::run(scenario, point.combination, point.round, point.seed, &result);
        if let (Some(lines), Some(number), None) = (self.lines, number, known) {
            lines.add(&SimLine {
                schema: lines::SCHEMA.to_owned(),
                point: number,
                scenario: scenario.name.clone(),
                set: point.setting.set.clone(),
                beside: results::beside_label(scenario, point.combination),
                slice: point.combination.slice.map(|slice| slice.to_string()),
                run: run.clone(),
            })?;
        }
        self.bar.inc(1);
        Ok(run)
    }
}

/// A place for the trace: what is there stays until the new one is whole.
fn create(path: &Path) -> Result<(Destination, File), Failure> {
    Destination::open(path).map_err(|error| Failure::unwritten(format_args!("--trace file {}", path.display()), &error))
}

fn write_trace(file: File, names: &[(String, u32)], timeline: &Timeline) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    write!(file, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (n, event) in timeline.chrome(names).enumerate() {
        write!(file, "{}", if n == 0 { "\n" } else { ",\n" })?;
        serde_json::to_writer(&mut file, &event)?;
    }
    writeln!(file, "\n]}}")?;
    file.flush()
}
