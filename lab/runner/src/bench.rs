//! A whole scenario: boots, rounds, and the result, whole or not.

use crate::error::{Patience, RunnerError};
use crate::guest::{Guest, Limits, Sources};
use crate::host::script;
use crate::qemu::Boot;
use crate::step::{Bench, Place};
use gleaner_lab_report::{HostFacts, InTurnRun, ScenarioReport, ScenarioRun, SoloRun, VmFacts};
use gleaner_scenario::{Accelerator, Plan, Role, Scenario, Step, Vm};
use gleaner_sys::{ProcRoot, usable_cpus};
use indicatif::ProgressBar;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Times that the VMs are booted again because the emulator broke one of them in the middle.
const REVIVALS_MAX: u32 = 5;

/// A scenario under way.
pub struct Experiment<'a> {
    /// What is asked.
    pub scenario: &'a Scenario,
    /// Files.
    pub sources: &'a Sources,
    /// When to stop.
    pub patience: &'a Patience,
    /// For sockets, consoles and what else the VMs need.
    pub folder: &'a Path,
}

/// What was collected so far.
#[derive(Default)]
struct Collected {
    vms: Vec<VmFacts>,
    runs: Vec<ScenarioRun>,
    in_turn: Vec<InTurnRun>,
    solos: Vec<SoloRun>,
}

impl Experiment<'_> {
    /// Runs it. What was measured is in the report even if it could not be finished; only then there is an error too.
    #[allow(clippy::disallowed_methods, reason = "a date for people")]
    pub fn run(&self) -> Result<(ScenarioReport, Option<RunnerError>), RunnerError> {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let boots = self.boots()?;
        let mut collected = Collected::default();
        let error = self.rounds(&boots, &mut collected).err();
        let scenario =
            serde_json::to_value(self.scenario).map_err(|error| RunnerError::work("the scenario as JSON", error))?;
        let mut report = ScenarioReport {
            schema: ScenarioReport::SCHEMA.to_owned(),
            name: self.scenario.name.clone(),
            description: self.scenario.description.clone(),
            host: HostFacts {
                cpus: u32::try_from(usable_cpus(&ProcRoot::default()).len()).unwrap_or(u32::MAX),
                kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
                accelerator: boots[0].accelerator.to_string(),
                qemu: qemu_version()?,
                date,
            },
            scenario,
            incomplete: error.as_ref().map(|error| error.to_string().lines().next().unwrap_or_default().to_owned()),
            vms: collected.vms,
            runs: collected.runs,
            in_turn: collected.in_turn,
            solos: collected.solos,
            summary: Vec::new(),
        };
        report.summary = report.summarize();
        Ok((report, error))
    }

    fn rounds(&self, boots: &[Boot], collected: &mut Collected) -> Result<(), RunnerError> {
        let plan = plan(self.scenario);
        let rounds = self.scenario.warmup_rounds + self.scenario.rounds;
        let bar = progress_bar(u64::from(rounds) * plan.steps_per_round() as u64);
        let mut guests = self.boot_all(boots, collected)?;
        let (scenario, sources, patience) = (self.scenario, self.sources, self.patience);
        let bench = Bench { scenario, sources, patience, folder: self.folder, zero: Instant::now() };
        let mut revivals = 0;
        for round in 0..rounds {
            let warmup = round < self.scenario.warmup_rounds;
            for (order, step) in (0u32..).zip(plan.round(round)) {
                bar.set_message(format!("round {} of {rounds}", round + 1));
                let place = Place { round, warmup, order };
                // Only now: after the last step nobody needs them.
                if guests.iter().any(|guest| guest.overdue) {
                    guests.clear();
                    guests = self.boot_all(boots, collected)?;
                }
                while let Err(error) = take(&bench, &mut guests, &step, place, collected) {
                    if !matches!(error, RunnerError::Vm { emulator: true, .. }) || revivals >= REVIVALS_MAX {
                        bar.abandon();
                        return Err(error);
                    }
                    revivals += 1;
                    bar.suspend(|| {
                        eprintln!("testbed: the emulator broke a guest's kernel; all boot again: {error}");
                    });
                    guests.clear();
                    guests = self.boot_all(boots, collected)?;
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        guests.into_iter().for_each(Guest::end);
        Ok(())
    }

    fn boot_all(&self, boots: &[Boot], collected: &mut Collected) -> Result<Vec<Guest>, RunnerError> {
        let limits = Limits { boot: self.scenario.boot_timeout, run: self.scenario.run_timeout };
        let cpus = self.scenario.machine.cpus.as_ref();
        let mut guests = Vec::new();
        for (vm, boot) in self.scenario.vms.iter().zip(boots) {
            guests.push(Guest::boot(vm, boot, &self.folder.join(&vm.name), cpus, limits, self.patience)?);
        }
        // Asked when all are up and idle: what halting costs depends on who else is there. VMs that take turns are
        // paused even then: one that polls is never idle.
        let in_turn = |guest: &Guest| !self.scenario.together && guest.vm.role == Role::Measured;
        for guest in guests.iter_mut().filter(|guest| in_turn(guest)) {
            guest.set_paused(true)?;
        }
        for guest in &mut guests {
            guest.set_paused(false)?;
            guest.calibrate(limits, self.patience)?;
            guest.set_paused(in_turn(guest))?;
        }
        let before: Vec<u32> = collected.vms.iter().map(|facts| facts.boots).collect();
        collected.vms = guests.iter().map(|guest| guest.facts.clone()).collect();
        for (facts, before) in collected.vms.iter_mut().zip(before) {
            facts.boots += before;
        }
        Ok(guests)
    }

    /// What each VM boots from.
    fn boots(&self) -> Result<Vec<Boot>, RunnerError> {
        let scenario = self.scenario;
        // Modules before kernels: asking for them may bring a newer kernel.
        let modules =
            scenario.vms.iter().map(|vm| self.modules(vm)).collect::<Result<Vec<Vec<PathBuf>>, RunnerError>>()?;
        let kernel = self.kernel()?;
        let image = scenario.vms.iter().any(|vm| vm.image.is_some()).then(|| self.image()).transpose()?;
        let mut built: Vec<(Vec<PathBuf>, PathBuf)> = Vec::new();
        let mut boots = Vec::new();
        for (vm, modules) in scenario.vms.iter().zip(modules) {
            let known = built.iter().find(|(of, _)| *of == modules).map(|(_, path)| path.clone());
            let initramfs = if let Some(path) = known {
                path
            } else {
                let path = self.folder.join(format!("initramfs-{}", built.len()));
                self.initramfs(&modules, &path)?;
                built.push((modules, path.clone()));
                path
            };
            let image = image.clone().filter(|_| vm.image.is_some());
            boots.push(Boot {
                kernel: kernel.clone(),
                initramfs,
                image,
                accelerator: Accelerator::Tcg,
                emulator_sched: self.scenario.machine.emulator_sched,
                emulator_cpus: self.scenario.machine.emulator_cpus.clone(),
            });
        }
        let accelerator = self.accelerator(&boots[0])?;
        for boot in &mut boots {
            boot.accelerator = accelerator;
        }
        Ok(boots)
    }

    fn testbed(&self, name: &str) -> Command {
        Command::new(self.sources.testbed.join(name))
    }

    fn kernel(&self) -> Result<PathBuf, RunnerError> {
        let series = &self.scenario.machine.kernel;
        let printed = script(self.testbed("fetch-kernel.sh").arg(series))?;
        let path = printed.trim().split_once(' ').map(|(_, path)| PathBuf::from(path));
        path.ok_or_else(|| RunnerError::Work(format!("no kernel {series} can be had now; see above")))
    }

    fn modules(&self, vm: &Vm) -> Result<Vec<PathBuf>, RunnerError> {
        let disk = vm.image.iter().map(|_| "disk");
        let mut files = Vec::new();
        for purpose in disk.chain(vm.modules.iter().map(String::as_str)) {
            let mut command = self.testbed("fetch-kernel.sh");
            let printed = script(command.args(["--modules", &self.scenario.machine.kernel, purpose]))?;
            for file in printed.lines().map(PathBuf::from) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }

    fn image(&self) -> Result<PathBuf, RunnerError> {
        let printed = script(&mut self.testbed("image.sh"))?;
        let path = printed.lines().next().map(|line| PathBuf::from(line.trim())).filter(|path| path.is_file());
        path.ok_or_else(|| RunnerError::Work("testbed/image.sh named no image".to_owned()))
    }

    fn initramfs(&self, modules: &[PathBuf], out: &Path) -> Result<(), RunnerError> {
        let mut command = self.testbed("initramfs.sh");
        command.arg("--script").arg(self.sources.testbed.join("agent.sh")).arg("--binary").arg(&self.sources.binary);
        for module in modules {
            command.arg("--module").arg(module);
        }
        for (name, path) in &self.sources.configs {
            let guest = self.sources.config_in_guest(name).unwrap_or_default();
            command.arg("--file").arg(format!("{}:{guest}", path.display()));
        }
        script(command.arg(out)).map(|_| ())
    }

    /// KVM if it can boot this kernel here; found out once for each boot of the host.
    fn accelerator(&self, boot: &Boot) -> Result<Accelerator, RunnerError> {
        match self.scenario.machine.accelerator {
            Accelerator::Auto => {}
            wanted => return Ok(wanted),
        }
        if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accelerator::Tcg);
        }
        let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let question = format!("{} {}", host.trim(), boot.kernel.display());
        let kernels = boot.kernel.parent().map(Path::to_path_buf).unwrap_or_default();
        let cache = kernels.join(format!("kvm-{}", self.scenario.machine.kernel));
        let known = fs::read_to_string(&cache).unwrap_or_default();
        let known = known.strip_prefix(&question).map(str::trim);
        let works = if let Some(word @ ("works" | "broken")) = known {
            word == "works"
        } else {
            let works = self.kvm_boots(boot)?;
            // Not being able to remember costs some seconds next time.
            let _ = fs::write(cache, format!("{question} {}", if works { "works" } else { "broken" }));
            works
        };
        if !works {
            eprintln!("testbed: /dev/kvm is here but boots no guest: emulating instead");
        }
        Ok(if works { Accelerator::Kvm } else { Accelerator::Tcg })
    }

    fn kvm_boots(&self, boot: &Boot) -> Result<bool, RunnerError> {
        let mut vm = self.scenario.vms[0].clone();
        (vm.name, vm.vcpus, vm.memory_mib) = ("kvm-trial".to_owned(), 1, 512);
        (vm.pin, vm.cap, vm.prepare, vm.append) = (Vec::new(), None, Vec::new(), String::new());
        let boot = Boot { accelerator: Accelerator::Kvm, ..boot.clone() };
        let limits = Limits { boot: Duration::from_secs(15), run: Duration::from_secs(15) };
        match Guest::boot_once(&vm, &boot, &self.folder.join("kvm-trial"), None, limits, self.patience) {
            Ok(guest) => {
                guest.end();
                Ok(true)
            }
            Err(error @ (RunnerError::Interrupted | RunnerError::TimeUp)) => Err(error),
            Err(_) => Ok(false),
        }
    }
}

/// What there is to do. Slices that take turns within a run are no steps of their own.
pub fn plan(scenario: &Scenario) -> Plan {
    let mut scenario = scenario.clone();
    if scenario.machine.in_turn.is_some() {
        scenario.machine.slices.clear();
    }
    Plan::of(&scenario)
}

fn take(
    bench: &Bench<'_>,
    guests: &mut [Guest],
    step: &Step,
    place: Place,
    collected: &mut Collected,
) -> Result<(), RunnerError> {
    match step {
        Step::Run(combination) if bench.scenario.machine.in_turn.is_some() => {
            collected.in_turn.push(bench.in_turn(guests, combination, place)?);
        }
        Step::Run(combination) => collected.runs.extend(bench.run(guests, combination, place)?),
        Step::Solo(choice) => collected.solos.push(bench.solo(guests, *choice, place)?),
    }
    Ok(())
}

fn progress_bar(steps: u64) -> ProgressBar {
    let bar = gleaner_command::output::shown(ProgressBar::new(steps));
    gleaner_command::output::form(&bar, "  {msg} [{bar:30}] {pos}/{len} {left}");
    bar.set_message("booting");
    bar
}

fn qemu_version() -> Result<String, RunnerError> {
    let printed = script(Command::new("qemu-system-x86_64").arg("--version"))?;
    let first = printed.lines().next().unwrap_or_default();
    Ok(first.trim_start_matches("QEMU emulator version ").to_owned())
}
