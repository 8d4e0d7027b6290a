//! `gleaner-lab sim sweep`: a scenario over a grid of parameters and seeds, on all cores or shared out over machines.

mod axis;
mod columns;
mod folder;
mod grid;
mod table;

use super::limits::{MaxTime, StoppedBy, Watch, share};
use super::results::{self, Done};
use axis::Axis;
use clap::Args;
use columns::Columns;
use folder::{Folder, Manifest};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_lab_report::{SweepParameter, SweepReport};
use gleaner_scenario::Scenario;
use gleaner_sim::{Moment, Simulation};
use grid::{Base, Grid, Point, Shard};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Args)]
#[command(
    after_help = "KEY is where the value is in FILE: simulator.slice, simulator.cost_ns.ipi_ns, vm.0.vcpus or vm.NAME.vcpus, \
                  vm.NAME.workloads.PROGRAM.granularity. Every --set multiplies the points. A value may be a list or a table as in \
                  TOML: --set 'vm.app.policies=[\"off\"],[\"off\",\"full\"]'.\n\n\
                  Each point is a file of its own in DIR/points, there only when it is whole: the same command again does only \
                  what is missing. The same points by the same build are the same bytes, whoever simulates them.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab sim sweep my.toml -o slices --seeds 10 \\\n\
                  \x20     --set simulator.slice=30ms,6ms,1ms --set vm.app.vcpus=4,8\n\
                  \x20 gleaner-lab sim sweep my.toml -o slices ... --shard 3/16     # the third of sixteen parts\n\
                  \x20 duckdb -c \"from 'slices/points/*.parquet'\""
)]
pub struct SweepArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A parameter and its values (may be repeated)
    #[arg(long = "set", value_name = "KEY=V1,V2,...", value_parser = Axis::parse)]
    axes: Vec<Axis>,
    /// Where results go; a folder that another call began is gone on with
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// How many seeds each point's setting is simulated with [default: the scenario's rounds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// The first seed instead of the scenario's; each further one is the next
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: Option<u64>,
    /// Simulate only every N-th point, beginning with the I-th
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Simulations at a time; changes nothing but the time it takes [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// End each simulation after so many events; its row says that it is not complete (k, M and G are understood)
    #[arg(long, value_name = "N", value_parser = crate::count::at_least_one)]
    max_events: Option<u64>,
    #[command(flatten)]
    max_time: MaxTime,
    #[command(flatten)]
    json: JsonArg,
}

/// Parquet's integers have a sign.
const SEED_MAX: u64 = (i64::MAX / 2) as u64;

pub fn main(args: &SweepArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let watch = Watch::new("simulating", args.max_time)?;
    let text = Scenario::read_text(&args.file).map_err(Failure::input)?;
    let scenario = Scenario::parse(&text, &args.file).map_err(Failure::input)?;
    check_axes(&args.axes)?;
    let place = args.file.parent().unwrap_or(Path::new(".")).to_owned();
    let read_params =
        |file: &str| gleaner_command::params::read_params(&place.join(file)).map_err(|failure| failure.message);
    let table: toml::Table = toml::from_str(&text).map_err(|error| in_file(&args.file, error))?;
    let base = Base { path: &args.file, table, read_params: &read_params };
    let (seed, seeds) = (args.seed.unwrap_or(scenario.seed.min(SEED_MAX)), args.seeds.unwrap_or(scenario.rounds));
    let grid = Grid::new(&base, args.axes.clone(), seed, seeds).map_err(|error| in_file(&args.file, error))?;
    let folder = Folder::open(&args.output, &manifest(&grid, &base, &place, args.max_events)?)?;
    let columns = Columns::of(&grid.axes);
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let here: Vec<usize> = (0..grid.len()).filter(|number| shard.has(*number)).collect();
    let missing: Vec<usize> = here.iter().copied().filter(|number| !folder.has(*number)).collect();
    let work = Work {
        args,
        base: &base,
        grid: &grid,
        folder: &folder,
        columns: &columns,
        watch: &watch,
        before: here.len() - missing.len(),
        all: here.len(),
        finished: AtomicUsize::new(0),
    };
    // What is there is looked at first: whatever is wrong with it must not cost the work.
    let there: Vec<usize> = here.iter().copied().filter(|number| folder.has(*number)).collect();
    work.rows(&there)?;
    work.simulate(&here, &missing)?;
    let report = work.report(&scenario.name, &here)?;
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

fn in_file(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {error}", path.display()))
}

fn check_axes(axes: &[Axis]) -> Result<(), Failure> {
    for (n, axis) in axes.iter().enumerate() {
        if axes[..n].iter().any(|other| other.key == axis.key) {
            return Err(Failure::input(format!("--set {} is there twice; give all its values in one", axis.key)));
        }
    }
    Ok(())
}

/// What the results depend on.
fn manifest(grid: &Grid, base: &Base<'_>, place: &Path, max_events: Option<u64>) -> Result<Manifest, Failure> {
    let mut policy_files = BTreeMap::new();
    for file in grid.policy_files() {
        let text = std::fs::read_to_string(place.join(file)).map_err(|error| in_file(Path::new(file), error))?;
        policy_files.insert(file.to_owned(), text);
    }
    let values = |axis: &Axis| axis.values.iter().map(ToString::to_string).collect();
    Ok(Manifest {
        schema: Manifest::SCHEMA.to_owned(),
        build: folder::build().map_err(|error| Failure::work(format!("cannot read this program's file: {error}")))?,
        scenario: toml::to_string(&base.table).map_err(Failure::work)?,
        policy_files,
        parameters: grid.axes.iter().map(|axis| (axis.key.clone(), values(axis))).collect(),
        seed: grid.seed,
        seeds: grid.seeds,
        points: grid.len(),
        max_events,
    })
}

struct Work<'a> {
    args: &'a SweepArgs,
    base: &'a Base<'a>,
    grid: &'a Grid,
    folder: &'a Folder,
    columns: &'a Columns,
    watch: &'a Watch,
    /// Points of this part that were there.
    before: usize,
    all: usize,
    /// Points that this call has simulated.
    finished: AtomicUsize,
}

impl Work<'_> {
    fn simulate(&self, here: &[usize], missing: &[usize]) -> Result<(), Failure> {
        let pool = ThreadPoolBuilder::new().num_threads(self.args.jobs.map_or(0, usize::from)).build();
        let pool = pool.map_err(|error| Failure::work(format!("cannot start threads: {error}")))?;
        let done = pool.install(|| {
            missing.par_iter().try_for_each(|number| {
                if self.watch.look().is_none() {
                    self.point(*number)?;
                    let finished = self.finished.load(Ordering::Relaxed) + self.before;
                    self.watch.doing(format!("{finished} of {} points", self.all));
                }
                Ok(())
            })
        });
        self.watch.end();
        let stopped = |()| match self.watch.stopped() {
            Some(StoppedBy::Interrupt) => Err(Failure { status: 130, message: String::new() }),
            _ => Ok(()),
        };
        done.and_then(stopped).map_err(|failure| self.with_what_is_kept(&failure, here))
    }

    /// Whatever ends a sweep, its finished points stay.
    fn with_what_is_kept(&self, failure: &Failure, here: &[usize]) -> Failure {
        let kept = here.iter().filter(|number| self.folder.has(**number)).count();
        let what = if failure.status == 130 { "interrupted" } else { &failure.message };
        let message = format!(
            "{what}; {kept} of {} points are finished and kept in {}: the same command again goes on from there",
            here.len(),
            self.args.output.display()
        );
        Failure { message, status: failure.status }
    }

    /// One simulation and its file.
    fn point(&self, number: usize) -> Result<(), Failure> {
        let point = self.grid.point(number);
        let wrong = |error: String| in_file(&self.args.file, format!("{}: {error}", self.grid.told(point)));
        let Some(done) = self.run(point).map_err(wrong)? else { return Ok(()) };
        let run = results::run(&point.setting.scenario, &done);
        let columns = self.columns.of_point(point, &run);
        let bytes = table::to_parquet(&columns, self.folder.sweep()).map_err(Failure::work)?;
        self.folder.keep(number, &bytes).map_err(|error| {
            Failure::work(format!("cannot keep point {number} in {}: {error}", self.args.output.display()))
        })?;
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// `None` where all is to end: half a point is none.
    fn run(&self, point: Point<'_>) -> Result<Option<Done>, String> {
        let scenario = &point.setting.scenario;
        let config = self.base.config(scenario, point.combination, point.seed)?;
        let (host, costs) =
            (config.host.clone(), config.vms.first().map(|vm| vm.costs.described()).unwrap_or_default());
        let simulation = Simulation::new(config).map_err(|error| error.to_string())?;
        let mut full = false;
        let mut go_on = |at: Moment| {
            full = self.args.max_events.is_some_and(|most| at.events >= most);
            let points = (self.finished.load(Ordering::Relaxed) + self.before) as f64 + share(at);
            self.watch.go_on(points / self.all.max(1) as f64) && !full
        };
        let (result, _) = simulation.run_while(&mut go_on).map_err(|error| error.to_string())?;
        if result.stopped && !full {
            return Ok(None);
        }
        Ok(Some(Done { round: 0, seed: point.seed, combination: point.combination.clone(), host, costs, result }))
    }

    /// What these points' files say. A file that is not as it was written, or not this point's, is refused.
    fn rows(&self, points: &[usize]) -> Result<Vec<Map<String, Value>>, Failure> {
        let mut rows = Vec::new();
        for number in points {
            let bytes = self.folder.read_point(*number)?;
            let unreadable = |error: String| {
                let path = self.args.output.join("points");
                Failure::work(format!("{}/{number:06}.parquet: {error}; delete it and run this again", path.display()))
            };
            rows.extend(table::rows(bytes, *number, self.folder.sweep()).map_err(unreadable)?);
        }
        Ok(rows)
    }

    fn report(&self, scenario: &str, here: &[usize]) -> Result<SweepReport, Failure> {
        let there: Vec<usize> = here.iter().copied().filter(|number| self.folder.has(*number)).collect();
        let rows = self.rows(&there)?;
        let missing = (0..self.grid.len()).filter(|number| !self.folder.has(*number)).count();
        Ok(SweepReport {
            schema: SweepReport::SCHEMA.to_owned(),
            scenario: scenario.to_owned(),
            seed: self.grid.seed,
            seeds: self.grid.seeds,
            parameters: self
                .columns
                .described()
                .map(|(key, column, values)| SweepParameter { key, column, values })
                .collect(),
            folder: self.args.output.display().to_string(),
            shard: self.args.shard.map(|shard| format!("{}/{}", shard.i, shard.of)),
            points: self.grid.len() as u64,
            points_here: here.len() as u64,
            points_simulated: self.finished.load(Ordering::Relaxed) as u64,
            points_missing: missing as u64,
            stopped_by: self.watch.stopped().map(|by| by.word("max-events")),
            rows,
        })
    }
}
