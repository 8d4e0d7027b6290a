//! `gleaner-lab sim run`: every combination of a scenario, round after round, simulated.

use super::limits::{MaxTime, StoppedBy, Watch, nothing_done, share};
use super::results::{self, Done};
use clap::Args;
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::files::Destination;
use gleaner_command::output::Output;
use gleaner_scenario::{Plan, Scenario};
use gleaner_sim::{Moment, Simulation, Timeline, scenario};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    after_help = "The file is a test bed's scenario (docs/research/testbed.md), with a [simulator] table for the host (docs/research/simulator.md). The \
                  same file, seed and version give the same result to the last byte.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab sim run experiments/simulator/testbed.toml\n\
                  \x20 gleaner-lab sim run my.toml --probe probe.json   (costs of the VM where probe ran)\n\
                  \x20 gleaner-lab sim run my.toml --rounds 1 --trace timeline.json   (open it in ui.perfetto.dev)"
)]
pub struct RunArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Seed of the first round instead of the scenario's; each further round has the next
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Rounds instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Costs of wake-ups as `gleaner probe --json` measured them, instead of the scenario's; what the file's cost_ns
    /// names stays
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// Write every vCPU's timeline of the first combination's first round, as a Chrome trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End after so many events, of all simulations together, with what is done by then (k, M and G are understood)
    #[arg(long, value_name = "N", value_parser = crate::count::at_least_one)]
    max_events: Option<u64>,
    #[command(flatten)]
    max_time: MaxTime,
    #[command(flatten)]
    json: JsonArg,
}

pub fn main(args: &RunArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let mut scenario = Scenario::read(&args.file).map_err(Failure::input)?;
    if let Some(file) = &args.probe {
        let costs = &mut scenario.simulator.get_or_insert_default().cost_ns;
        for (name, ns) in super::probe::costs(file)? {
            costs.entry(name).or_insert(ns);
        }
    }
    let trace = args.trace.as_deref().map(|path| create(path).map(|file| (path, file))).transpose()?;
    let (done, timeline, stopped) = simulate(args, &scenario, trace.is_some())?;
    if let (Some((path, (place, file))), Some((names, timeline))) = (trace, timeline) {
        write_trace(file, &names, &timeline)
            .and_then(|()| place.whole())
            .map_err(|error| Failure::work(format!("cannot write the trace to {}: {error}", path.display())))?;
    }
    let stopped_by = stopped.map(|by| by.word("max-events"));
    let report = results::report(&scenario, args.seed.unwrap_or(scenario.seed), &done, stopped_by);
    output.json(&report)?;
    output.text(&report);
    Ok(StoppedBy::status(stopped))
}

/// The timeline of a run, with the VMs' names and numbers of vCPUs.
type Traced = (Vec<(String, u32)>, Timeline);

/// What was done, and what ended it if it was not all.
type Simulated = (Vec<Done>, Option<Traced>, Option<StoppedBy>);

fn simulate(args: &RunArgs, scenario: &Scenario, trace: bool) -> Result<Simulated, Failure> {
    let watch = Watch::new("simulating", args.max_time)?;
    let plan = Plan::of(scenario);
    let rounds = args.rounds.unwrap_or(scenario.rounds);
    let folder = args.file.parent().unwrap_or(Path::new("."));
    let read_params =
        |file: &str| gleaner_command::params::read_params(&folder.join(file)).map_err(|failure| failure.message);
    let all = f64::from(rounds) * plan.combinations().len() as f64;
    let (mut done, mut timeline, mut events) = (Vec::new(), None, 0);
    'all: for round in 0..rounds {
        let seed = args.seed.unwrap_or(scenario.seed).wrapping_add(u64::from(round));
        for combination in plan.combinations() {
            if watch.look().is_some() {
                break 'all;
            }
            watch.doing(format!("run {} of {all}", done.len() + 1));
            let wrong = |error| Failure::input(format!("{}: {error}", args.file.display()));
            let mut config = scenario::config(scenario, combination, seed, &read_params).map_err(wrong)?;
            config.trace = trace && done.is_empty();
            let names = config.vms.iter().map(|vm| (vm.name.clone(), vm.vcpus)).collect();
            let host = config.host.clone();
            let costs = config.vms.first().map(|vm| vm.costs.described()).unwrap_or_default();
            let mut go_on = |at: Moment| {
                if args.max_events.is_some_and(|most| events + at.events >= most) {
                    watch.stop(StoppedBy::MaxCount);
                }
                watch.go_on((done.len() as f64 + share(at)) / all)
            };
            let (result, spans) = Simulation::new(config).map_err(wrong)?.run_while(&mut go_on).map_err(wrong)?;
            events += result.events;
            timeline = timeline.or(spans.map(|spans| (names, spans)));
            done.push(Done { round, seed, combination: combination.clone(), host, costs, result });
        }
    }
    watch.end();
    if done.is_empty() {
        return Err(nothing_done(watch.stopped()));
    }
    Ok((done, timeline, watch.stopped()))
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
