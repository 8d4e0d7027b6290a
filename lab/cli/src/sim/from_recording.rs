//! `gleaner-lab sim from-recording`: a real program's threads, played back on hosts and guests that you do not have.
//!
//! The recording becomes a scenario of one measured VM, and a neighbour if wanted; `--scenario` writes it down, for
//! `sim run`. Before the question, the recording is played back as it was recorded: how far that is from the recording
//! is what the simulator gets wrong.

use super::limits::{MaxTime, StoppedBy, Watch, nothing_done, share};
use clap::{Args, ValueEnum};
use gleaner_command::args::{JsonArg, PolicyArg, duration_within};
use gleaner_command::failure::Failure;
use gleaner_command::files::Place;
use gleaner_command::output::Output;
use gleaner_model::Policy;
use gleaner_report::{Recorded, Replayed, SimRecordingReport, WhatIf, WhatIfRow};
use gleaner_scenario::{
    Machine, Plan, PolicyChoice, Program, Recording, Role, Scenario, SimCosts, SimScheduler, Simulator, Vm, Workload,
};
use gleaner_sim::program::catalogue;
use gleaner_sim::recording::Replay;
use gleaner_sim::scenario::{self, Files};
use gleaner_sim::{Moment, SimResult, Simulation};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "What is simulated and what a recording cannot say: docs/research/recording.md. The same recording, options and version give \
                  the same result to the last byte.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab sim from-recording pigz.glthreads    # as recorded, Gleaner off and on\n\
                  \x20 gleaner-lab sim from-recording pigz.glthreads --vcpus 16 --pcpus 8 --slice 1ms\n\
                  \x20 gleaner-lab sim from-recording pigz.glthreads --neighbour matmul --scenario what-if.toml"
)]
pub struct FromRecordingArgs {
    /// The recording, by `gleaner record --threads`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// vCPUs instead of the recorded number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    vcpus: Option<u32>,
    /// Physical CPUs, for all VMs together [default: as many as --vcpus]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pcpus: Option<u32>,
    /// The host's slice, enforced, instead of its scheduler's own (e.g. 1ms)
    #[arg(long, value_name = "DURATION", value_parser = slice)]
    slice: Option<Duration>,
    /// What Gleaner may do in the guest: policies to be compared
    #[arg(long, value_name = "POLICY,...", value_enum, value_delimiter = ',', default_values_t = [PolicyArg::Off, PolicyArg::Full])]
    policy: Vec<PolicyArg>,
    /// Another VM of as many vCPUs runs this program on the same pCPUs (`gleaner-lab sim list`)
    #[arg(long, value_name = "PROGRAM")]
    neighbour: Option<String>,
    /// What wake-ups cost
    #[arg(long, value_enum, default_value_t = CostsArg::Recorded)]
    costs: CostsArg,
    /// Of everything that is drawn: the neighbour's work
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the scenario too, for `gleaner-lab sim run`
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// End after so many events, of all simulations together, with what is done by then (k, M and G are understood)
    #[arg(long, value_name = "N", value_parser = crate::count::at_least_one)]
    max_events: Option<u64>,
    #[command(flatten)]
    max_time: MaxTime,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CostsArg {
    /// What they took while recording; `kvm-2014` where there were too few to tell
    Recorded,
    /// Table 2 of the Gleaner paper
    #[value(name = "kvm-2014")]
    Kvm2014,
    /// The micro-sliced paper's Xen machine
    #[value(name = "xen-2014")]
    Xen2014,
    /// Table 2 without virtualization
    #[value(name = "native-2014")]
    Native2014,
    /// Nothing
    Free,
}

/// A replay may take so many times the recording's time; then it has failed to end.
const TIMES_AS_LONG_MAX: u32 = 1_000;

fn slice(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_micros(10)..=Duration::from_secs(10))
}

pub fn main(args: &FromRecordingArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let replay = scenario::read_recording(&args.file).map_err(Failure::input)?;
    let asked = what_if(args, &replay)?;
    let no_file = |path: &Path, error| Failure::unwritten(format_args!("--scenario file {}", path.display()), &error);
    let place =
        args.scenario.as_deref().map(|path| Place::open(path).map(|place| (path, place)).map_err(|e| no_file(path, e)));
    let place = place.transpose()?;
    let mut work =
        Work { args, replay: &replay, watch: Watch::new("playing back", args.max_time)?, done: 0, events: 0 };
    let as_recorded = work.simulate(&as_recorded(&asked, &replay))?;
    let answers = work.simulate(&asked)?;
    work.watch.end();
    let stopped = work.watch.stopped();
    let Some(as_recorded) = as_recorded.first().filter(|result| !result.stopped) else {
        return Err(nothing_done(stopped));
    };
    let report = report(args, &replay, &asked, as_recorded, &answers, stopped)?;
    if let Some((path, mut place)) = place {
        let text = readable(&asked).to_toml().map_err(Failure::work)?;
        place.write(text.as_bytes()).map_err(|error| no_file(path, error))?;
    }
    output.json(&report)?;
    output.text(&report);
    Ok(StoppedBy::status(stopped))
}

/// The question as a scenario.
fn what_if(args: &FromRecordingArgs, replay: &Replay) -> Result<Scenario, Failure> {
    let vcpus = args.vcpus.unwrap_or_else(|| replay.header.vcpus.clamp(1, 64));
    let pcpus = args.pcpus.unwrap_or(vcpus);
    let mut vms = vec![vm("app", Role::Measured, vcpus, recording(&args.file)?)];
    vms[0].policies = policies(&args.policy)?;
    if let Some(program) = &args.neighbour {
        if catalogue::by_name(program).is_none() {
            let names: Vec<&str> = catalogue::ALL.iter().map(|program| program.name).collect();
            let what = format!("--neighbour {program:?}: there is no such program; there are {}", names.join(", "));
            return Err(Failure::input(what));
        }
        let program = Program { label: program.clone(), program: program.clone(), ..Program::default() };
        vms.push(vm("neighbour", Role::Background, vcpus, Workload::Program(program)));
    }
    let dedicated = vms.len() == 1 && pcpus >= vcpus && args.slice.is_none();
    let longest = Duration::from_nanos(replay.facts.wall_ns.max(1_000_000)).saturating_mul(TIMES_AS_LONG_MAX);
    let mut simulator = Simulator {
        pcpus: Some(pcpus),
        scheduler: if dedicated { SimScheduler::Dedicated } else { SimScheduler::Eevdf },
        slice: args.slice,
        enforced: args.slice.is_some(),
        ..Simulator::default()
    };
    costs(args.costs, replay, &mut simulator);
    let seconds = Duration::from_secs;
    Ok(Scenario {
        name: "what-if".to_owned(),
        description: format!("{} elsewhere", replay.header.command.first().map_or("A recording", String::as_str)),
        rounds: 1,
        warmup_rounds: 0,
        seed: args.seed,
        together: true,
        settle: Duration::from_millis(300),
        solo: Duration::ZERO,
        run_timeout: longest.clamp(seconds(1), seconds(86_400)),
        boot_timeout: seconds(120),
        total_timeout: seconds(7_200),
        machine: Machine { kernel: "6.1".to_owned(), ..Machine::default() },
        simulator: Some(simulator),
        vms,
    })
}

/// Costs of wake-ups. Recorded ones contain what the host polls for a halted vCPU.
fn costs(asked: CostsArg, replay: &Replay, simulator: &mut Simulator) {
    simulator.costs = match asked {
        CostsArg::Recorded | CostsArg::Kvm2014 => SimCosts::Kvm2014,
        CostsArg::Xen2014 => SimCosts::Xen2014,
        CostsArg::Native2014 => SimCosts::Native2014,
        CostsArg::Free => SimCosts::Free,
    };
    if let (CostsArg::Recorded, Some(latency)) = (asked, replay.facts.latency) {
        simulator.cost_ns = latency.costs();
        simulator.halt_poll = Duration::ZERO;
    }
}

fn vm(name: &str, role: Role, vcpus: u32, workload: Workload) -> Vm {
    Vm {
        name: name.to_owned(),
        role,
        vcpus,
        memory_mib: 512,
        policies: vec![policy(PolicyArg::Off)],
        workloads: vec![workload],
        ..Vm::default()
    }
}

fn recording(file: &Path) -> Result<Workload, Failure> {
    // The scenario may lie in another folder.
    let whole = std::fs::canonicalize(file).map_err(Failure::input)?;
    let label = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).filter(|label| label != "nothing");
    let label = label.unwrap_or_else(|| "recording".to_owned());
    Ok(Workload::Recording(Recording { label, recording: whole.to_string_lossy().into_owned() }))
}

fn policy(asked: PolicyArg) -> PolicyChoice {
    let policy = Policy::from(asked);
    PolicyChoice { label: policy.name().to_owned(), policy, ..PolicyChoice::default() }
}

fn policies(asked: &[PolicyArg]) -> Result<Vec<PolicyChoice>, Failure> {
    let choices: Vec<PolicyChoice> = asked.iter().map(|asked| policy(*asked)).collect();
    let twice = choices.iter().enumerate().find(|(n, one)| choices[..*n].iter().any(|other| other == *one));
    match twice {
        Some((_, one)) => Err(Failure::input(format!("--policy has {:?} twice; give each once", one.label))),
        None => Ok(choices),
    }
}

/// As a file: where policies are compared there, one of them has to be off.
fn readable(asked: &Scenario) -> Scenario {
    let mut scenario = asked.clone();
    let policies = &mut scenario.vms[0].policies;
    if policies.len() > 1 && !policies.iter().any(|choice| choice.policy == Policy::Off) {
        policies.insert(0, policy(PolicyArg::Off));
    }
    scenario
}

/// As many vCPUs as recorded, each with a pCPU for itself, nobody beside, nobody managing.
fn as_recorded(asked: &Scenario, replay: &Replay) -> Scenario {
    let mut scenario = asked.clone();
    scenario.vms.truncate(1);
    let vcpus = replay.header.vcpus.clamp(1, 64);
    scenario.vms[0].vcpus = vcpus;
    scenario.vms[0].policies = vec![policy(PolicyArg::Off)];
    if let Some(simulator) = &mut scenario.simulator {
        (simulator.pcpus, simulator.scheduler, simulator.slice) = (Some(vcpus), SimScheduler::Dedicated, None);
        simulator.enforced = false;
    }
    scenario
}

/// Simulations one after the other.
struct Work<'a> {
    args: &'a FromRecordingArgs,
    replay: &'a Replay,
    watch: Watch,
    /// Simulations that are over.
    done: usize,
    /// Their events.
    events: u64,
}

impl Work<'_> {
    /// One result for each policy, or for the first ones where it is ended; the last one says so.
    fn simulate(&mut self, asked: &Scenario) -> Result<Vec<SimResult>, Failure> {
        let wrong = |error| Failure::input(format!("{}: {error}", self.args.file.display()));
        let recording = |_: &str| Ok(self.replay.workload.clone());
        let files = Files { params: &|file| Err(format!("there is no {file}")), recording: &recording };
        let all = 1.0 + self.args.policy.len() as f64;
        let mut results = Vec::new();
        for combination in Plan::of(asked).combinations() {
            if self.watch.look().is_some() {
                break;
            }
            let config = scenario::config_with(asked, combination, asked.seed, files).map_err(wrong)?;
            let mut go_on = |at: Moment| {
                if self.args.max_events.is_some_and(|most| self.events + at.events >= most) {
                    self.watch.stop(StoppedBy::MaxCount);
                }
                self.watch.go_on((self.done as f64 + share(at)) / all)
            };
            let (result, _) = Simulation::new(config).map_err(wrong)?.run_while(&mut go_on).map_err(wrong)?;
            self.done += 1;
            self.events += result.events;
            results.push(result);
        }
        Ok(results)
    }
}

fn report(
    args: &FromRecordingArgs,
    replay: &Replay,
    asked: &Scenario,
    as_recorded: &SimResult,
    answers: &[SimResult],
    stopped: Option<StoppedBy>,
) -> Result<SimRecordingReport, Failure> {
    let Some(again) = as_recorded.vms[0].totals.ended_at.filter(|ns| *ns > 0) else {
        return Err(Failure::work(format!("{}: played back, its threads do not end", args.file.display())));
    };
    let wall = |result: &SimResult| result.vms[0].totals.ended_at;
    let over = |base: Option<u64>, result: &SimResult| Some(base? as f64 / wall(result)?.max(1) as f64);
    let first = answers.first().and_then(wall);
    let rows = asked.vms[0].policies.iter().zip(answers).map(|(policy, result)| WhatIfRow {
        policy: policy.label.clone(),
        wall_ns: wall(result),
        speedup: over(Some(again), result),
        policy_speedup: over(first, result),
        stolen_ns: result.vms[0].sum(|vcpu| vcpu.ready),
        halts: result.vms[0].sum(|vcpu| vcpu.halts),
        active_vcpus_mean: result.vms[0].active_vcpus_mean,
        neighbour_items_per_s: result.vms.get(1).map(|vm| vm.totals.items as f64 * 1e9 / result.end_ns.max(1) as f64),
    });
    let simulator = asked.simulator.clone().unwrap_or_default();
    Ok(SimRecordingReport {
        schema: SimRecordingReport::SCHEMA.to_owned(),
        file: args.file.display().to_string(),
        command: replay.header.command.clone(),
        kernel: replay.header.kernel.clone(),
        recorded: recorded(replay),
        replay: Replayed { wall_ns: again, wall_ratio: again as f64 / replay.facts.wall_ns.max(1) as f64 },
        what_if: WhatIf {
            vcpus: asked.vms[0].vcpus,
            pcpus: simulator.pcpus.unwrap_or(asked.vms[0].vcpus),
            scheduler: if simulator.scheduler == SimScheduler::Dedicated { "dedicated" } else { "eevdf" }.to_owned(),
            slice_ns: args.slice.map(|slice| u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX)),
            neighbour: args.neighbour.clone(),
            costs: costs_word(args.costs, replay),
        },
        stopped_by: stopped.map(|by| by.word("max-events")),
        rows: rows.collect(),
        notes: notes(args, replay, asked, answers),
    })
}

fn costs_word(asked: CostsArg, replay: &Replay) -> String {
    let taken = if asked == CostsArg::Recorded && replay.facts.latency.is_none() { CostsArg::Kvm2014 } else { asked };
    taken.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn recorded(replay: &Replay) -> Recorded {
    let (facts, summary) = (&replay.facts, &replay.summary);
    Recorded {
        vcpus: replay.header.vcpus,
        wall_ns: facts.wall_ns,
        cpu_ns: facts.cpu_ns,
        displaced_ns: facts.displaced_ns,
        threads: facts.threads,
        unfinished_threads: facts.unfinished,
        waits: facts.waits,
        delays: facts.delays,
        delays_ns: facts.delays_ns,
        events: summary.events,
        lost_events: summary.lost,
        ended_by: summary.ended_by.word().to_owned(),
        wake_p10_ns: facts.latency.map(|latency| latency.p10),
        wake_p50_ns: facts.latency.map(|latency| latency.p50),
    }
}

fn notes(args: &FromRecordingArgs, replay: &Replay, asked: &Scenario, answers: &[SimResult]) -> Vec<String> {
    let mut notes = replay.summary.losses();
    if answers.last().is_some_and(|last| last.stopped)
        && let Some(policy) = asked.vms[0].policies.get(answers.len() - 1)
    {
        notes.push(format!("the simulation with policy {} was ended before its end", policy.label));
    }
    if args.costs == CostsArg::Recorded && replay.facts.latency.is_none() {
        notes.push("too few wake-ups of idle vCPUs were recorded to tell what they cost: kvm-2014's costs".to_owned());
    }
    if replay.facts.unfinished > 0 {
        let unfinished = replay.facts.unfinished;
        notes.push(format!("{unfinished} threads had not ended when recording did: their rest is not simulated"));
    }
    notes
}
