//! Runs a scenario (docs/research/testbed.md) in real virtual machines and writes what was measured, raw, as JSON.
//!
//! `gleaner-lab bed` is its command. The parts: [`bench`] a whole scenario, [`step`] one combination of it, [`in_turn`]
//! one in which slices take turns, [`guest`] one VM, which is a [`qemu`] process with an [`agent`] inside; [`outcome`]
//! what its answer comes to; [`progress`] what neighbours get done, [`host`] what is done to the host, [`error`]
//! errors and waiting.

mod agent;
mod bench;
mod error;
mod guest;
mod host;
mod in_turn;
mod outcome;
mod progress;
mod qemu;
mod slices;
mod step;

use clap::{Args, Subcommand};
use error::{Patience, RunnerError};
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_scenario::{Role, Scenario, Workload};
use guest::Sources;
use std::fs;
use std::path::{Path, PathBuf};

/// Runs scenarios in real virtual machines.
#[derive(Debug, Args)]
#[command(after_help = "The format is described in docs/research/testbed.md.\n\n\
                  Exit status: 0 done, 1 the work failed (what was measured is written, marked incomplete), 2 bad usage or input, \
                  130 interrupted (likewise).")]
pub struct BedArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Boot a scenario's VMs, measure every combination in every round, print a table
    Run(RunArgs),
    /// Say whether a file is a scenario, and how much there is to measure
    Check {
        /// The scenario
        file: PathBuf,
    },
    /// List the scenarios in experiments/
    List,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The scenario
    file: PathBuf,
    /// Write the result as JSON to FILE; without FILE to stdout, with the table on stderr
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Leave consoles and QEMU's messages in DIR
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Rounds that count, instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// This many times the measured programs' items, 0.01 to 1000: on a machine on which they are over too soon, or
    /// take for ever
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = work_factor)]
    work: f64,
    /// Only these workloads and policies of the measured VMs, by label (may be repeated)
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    only: Vec<String>,
    /// Gleaner's binary for the guests
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Does what was asked for.
///
/// # Errors
/// Bad input, an interruption, or that the work failed.
pub fn main(args: &BedArgs) -> Result<u8, Failure> {
    let result = match &args.command {
        Command::Run(args) => run(args, &mut Output::open(args.json.as_deref())?),
        Command::Check { file } => check(file).map(|text| Output::Text.text(&text)),
        Command::List => {
            Output::Text.text(&list());
            Ok(())
        }
    };
    result.map(|()| 0).map_err(|error| Failure {
        status: match error {
            RunnerError::Input(_) => 2,
            RunnerError::Interrupted => 130,
            _ => 1,
        },
        message: error.to_string(),
    })
}

fn run(args: &RunArgs, output: &mut Output) -> Result<(), RunnerError> {
    let mut scenario = read(&args.file)?;
    scenario.rounds = args.rounds.unwrap_or(scenario.rounds);
    keep_only(&mut scenario, &args.only)?;
    multiply_work(&mut scenario, args.work)?;
    let sources = sources(&scenario, args)?;
    let patience = Patience::new(scenario.total_timeout)?;
    let folder = tempfile::Builder::new().prefix("gleaner-testbed.").tempdir();
    let folder = folder.map_err(|error| RunnerError::work("a temporary folder", error))?;
    // Dropped before the folder is, which is then removed as usual.
    let _cleanup = host::CleanupProcess::start(folder.path())?;
    let experiment =
        bench::Experiment { scenario: &scenario, sources: &sources, patience: &patience, folder: folder.path() };
    let outcome = experiment.run();
    if let Some(keep) = &args.keep {
        keep_logs(&scenario, folder.path(), keep)?;
    }
    let (report, error) = outcome?;
    let written = output.json(&report).map_err(|failure| RunnerError::Work(failure.message));
    output.text(&report);
    written?;
    error.map_or(Ok(()), Err)
}

fn read(file: &Path) -> Result<Scenario, RunnerError> {
    let scenario = Scenario::read(file).map_err(|error| RunnerError::Input(error.to_string()))?;
    for vm in &scenario.vms {
        for workload in &vm.workloads {
            if let gleaner_scenario::Workload::Command(command) = workload
                && let Some(metric) = &command.metric
                && let Err(error) = regex::Regex::new(metric)
            {
                let label = workload.label();
                return Err(RunnerError::Input(format!("{}: the metric of {label:?}: {error}", file.display())));
            }
        }
    }
    Ok(scenario)
}

/// Leaves out what is not named; a kind of which nothing is named stays whole.
fn keep_only(scenario: &mut Scenario, only: &[String]) -> Result<(), RunnerError> {
    let named = |label: &str| only.iter().any(|word| word == label);
    let mut known: Vec<String> = Vec::new();
    for vm in scenario.vms.iter_mut().filter(|vm| vm.role == Role::Measured) {
        known.extend(vm.workloads.iter().map(|workload| workload.label().to_owned()));
        known.extend(vm.policies.iter().map(|policy| policy.label.clone()));
        if vm.workloads.iter().any(|workload| named(workload.label())) {
            vm.workloads.retain(|workload| named(workload.label()));
        }
        if vm.policies.iter().any(|policy| named(&policy.label)) {
            vm.policies.retain(|policy| named(&policy.label));
        }
    }
    known.sort();
    known.dedup();
    match only.iter().find(|word| !known.contains(word)) {
        Some(word) => Err(RunnerError::Input(format!("--only {word}: must be one of {}", known.join(", ")))),
        None => Ok(()),
    }
}

fn work_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // NaN is in no range.
    if (0.01..=1000.0).contains(&factor) { Ok(factor) } else { Err("must be from 0.01 to 1000".to_owned()) }
}

/// The items of programs in measured VMs, times `factor`. Commands are as long as they are.
fn multiply_work(scenario: &mut Scenario, factor: f64) -> Result<(), RunnerError> {
    #[allow(clippy::float_cmp)] // exactly what was asked for
    if factor == 1.0 {
        return Ok(());
    }
    for vm in scenario.vms.iter_mut().filter(|vm| vm.role == Role::Measured) {
        for workload in &mut vm.workloads {
            let Workload::Program(program) = workload else { continue };
            let Some(items) = program.items else {
                let (label, vm) = (&program.label, &vm.name);
                return Err(RunnerError::Input(format!("--work {factor}: {label} in {vm} has no `items` to multiply")));
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, and 1 item is the least
            let items = (items as f64 * factor).round().max(1.0) as u64;
            program.items = Some(items);
        }
    }
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

fn sources(scenario: &Scenario, args: &RunArgs) -> Result<Sources, RunnerError> {
    let testbed = root().join("testbed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let binary = args.binary.clone().unwrap_or_else(|| target.join("gleaner"));
    if !binary.is_file() {
        return Err(RunnerError::Input(format!(
            "{}: no such file; run `make build`, or give --binary",
            binary.display()
        )));
    }
    let beside = args.file.parent().unwrap_or(Path::new(""));
    let mut configs: Vec<(String, PathBuf)> = Vec::new();
    for name in scenario.vms.iter().flat_map(|vm| &vm.policies).filter_map(|policy| policy.config.as_ref()) {
        let path = beside.join(name);
        if !path.is_file() {
            return Err(RunnerError::Input(format!(
                "{}: config {}: no such file",
                args.file.display(),
                path.display()
            )));
        }
        if !configs.iter().any(|(known, _)| known == name) {
            configs.push((name.clone(), path));
        }
    }
    Ok(Sources { testbed, binary, configs })
}

fn keep_logs(scenario: &Scenario, folder: &Path, keep: &Path) -> Result<(), RunnerError> {
    let failed = |error| RunnerError::work(&format!("writing to --keep {}", keep.display()), error);
    fs::create_dir_all(keep).map_err(failed)?;
    for vm in &scenario.vms {
        for log in ["console.log", "qemu.log"] {
            let from = folder.join(&vm.name).join(log);
            if from.is_file() {
                fs::copy(from, keep.join(format!("{}-{log}", vm.name))).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn check(file: &Path) -> Result<String, RunnerError> {
    let scenario = read(file)?;
    let plan = bench::plan(&scenario);
    let rounds = scenario.warmup_rounds + scenario.rounds;
    let mut lines = vec![format!("{}: {}", scenario.name, scenario.description)];
    lines.extend(scenario.vms.iter().map(|vm| {
        let labels = |all: Vec<&str>| all.join(", ");
        format!(
            "  {}: {}, workloads {}, policies {}{}",
            vm.name,
            count(vm.vcpus as usize, "vCPU"),
            labels(vm.workloads.iter().map(gleaner_scenario::Workload::label).collect()),
            labels(vm.policies.iter().map(|policy| policy.label.as_str()).collect()),
            vm.baseline.as_ref().map_or_else(String::new, |base| format!(", against off in {base}"))
        )
    }));
    let steps = count(plan.steps_per_round(), "step");
    let combinations = count(plan.combinations().len(), "combination");
    lines.push(format!("  {combinations}, {steps} a round, {}", count(rounds as usize, "round")));
    Ok(lines.join("\n"))
}

fn count(n: usize, singular: &str) -> String {
    format!("{n} {singular}{}", if n == 1 { "" } else { "s" })
}

fn list() -> String {
    let mut found = Vec::new();
    scenarios_in(&root().join("experiments"), &mut found);
    found.sort();
    let line = |path: PathBuf| match Scenario::read(&path) {
        Ok(scenario) => format!("{}  {}: {}\n", path.display(), scenario.name, scenario.description),
        Err(error) => format!("{error}\n"),
    };
    found.into_iter().map(line).collect()
}

/// A TOML file with VMs in it is meant to be a scenario.
fn scenarios_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        if path.is_dir() {
            scenarios_in(&path, found);
        } else if is_toml && fs::read_to_string(&path).is_ok_and(|text| text.contains("[[vm]]")) {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(program: &str) -> Scenario {
        let text = format!(
            "name = \"n\"\ndescription = \"d\"\nrounds = 1\n[[vm]]\nname = \"a\"\nrole = \"measured\"\nvcpus = 1\n\
             policies = [\"off\"]\nworkloads = [{{ {program} }}, {{ command = [\"true\"] }}]\n\
             [[vm]]\nname = \"b\"\nrole = \"background\"\nvcpus = 1\nworkloads = [{{ program = \"matmul\", items = 7 }}]\n"
        );
        Scenario::parse(&text, Path::new("test.toml")).unwrap()
    }

    fn items(scenario: &Scenario) -> Vec<Option<u64>> {
        let of = |workload: &Workload| match workload {
            Workload::Program(program) => Some(program.items),
            _ => None,
        };
        scenario.vms.iter().flat_map(|vm| vm.workloads.iter().filter_map(of)).collect()
    }

    #[test]
    fn the_measured_programs_work_is_multiplied_and_nothing_else() {
        for (factor, expected) in [(1.0, 5), (4.5, 23), (0.01, 1)] {
            let mut scenario = scenario("program = \"barrier\", items = 5");
            multiply_work(&mut scenario, factor).unwrap();
            assert_eq!(items(&scenario), [Some(expected), Some(7)], "{factor}");
        }
        let mut without = scenario("program = \"barrier\"");
        multiply_work(&mut without, 1.0).unwrap();
        let message = multiply_work(&mut without, 2.0).unwrap_err().to_string();
        assert!(message.contains("barrier in a has no `items`"), "{message}");
    }

    #[test]
    fn factors_that_make_no_sense_are_refused() {
        for (text, factor) in [("4", 4.0), ("0.01", 0.01), ("1000", 1000.0)] {
            assert_eq!(work_factor(text), Ok(factor));
        }
        for text in ["0", "0.009", "1000.1", "-1", "NaN", "inf", "1e9", "four"] {
            assert!(work_factor(text).is_err(), "{text}");
        }
    }
}
