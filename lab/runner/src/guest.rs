//! One VM of a scenario: booted, pinned, capped, ready, asked.

use crate::agent::{Agent, Answer, Silence};
use crate::error::{Patience, RunnerError};
use crate::host::{self, Cap};
use crate::outcome::{frame, last_lines};
use crate::progress::Progress;
use crate::qemu::{Boot, Qemu};
use gleaner_lab_report::VmFacts;
use gleaner_model::{CpuSet, Profile};
use gleaner_report::{ProbeReport, TimeOuts};
use gleaner_scenario::{EmulatorSched, PolicyChoice, Role, TimeoutFrom, Vm};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A VM that runs.
pub struct Guest {
    pub vm: Vm,
    /// What became of its boot.
    pub facts: VmFacts,
    /// Whether a run of it was over its time: it has to be booted anew.
    pub overdue: bool,
    agent: Agent,
    progress: Progress,
    timeouts: Option<TimeOuts>,
    // Dropped in this order: the cgroup can be removed only when QEMU is gone.
    qemu: Qemu,
    _cap: Option<Cap>,
    paused: bool,
    asked: u64,
}

/// Limits of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From QEMU's start until it is ready.
    pub boot: Duration,
    /// Of one command.
    pub run: Duration,
}

/// Boots after one that the emulator broke.
const RETRIES: u32 = 3;
/// A command that only starts or stops another.
const SHORT: Duration = Duration::from_secs(30);

impl Guest {
    /// Boots it, however often the emulator breaks it, and runs the scenario's own preparations.
    pub fn boot(
        vm: &Vm,
        boot: &Boot,
        folder: &Path,
        cpus: Option<&CpuSet>,
        limits: Limits,
        patience: &Patience,
    ) -> Result<Self, RunnerError> {
        for attempt in 1.. {
            match Self::boot_once(vm, boot, folder, cpus, limits, patience) {
                Ok(mut guest) => {
                    guest.facts.boots = attempt;
                    guest.check_idle_driver(limits, patience)?;
                    guest.prepare(limits, patience)?;
                    return Ok(guest);
                }
                Err(RunnerError::Vm { emulator: true, what }) if attempt <= RETRIES => {
                    let first = what.lines().next().unwrap_or_default();
                    eprintln!("testbed: VM {}: the emulator broke the guest's kernel ({first}); once more", vm.name);
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// One attempt, and nothing prepared.
    pub fn boot_once(
        vm: &Vm,
        boot: &Boot,
        folder: &Path,
        cpus: Option<&CpuSet>,
        limits: Limits,
        patience: &Patience,
    ) -> Result<Self, RunnerError> {
        let began = Instant::now();
        let (qemu, control) = Qemu::start(vm, boot, folder, patience)?;
        confine(vm, &qemu, cpus, boot.emulator_cpus.as_ref())?;
        if boot.emulator_sched == EmulatorSched::Batch {
            let mut own = host::threads(qemu.pid()).into_iter().filter(|tid| !qemu.vcpu_tids.contains(tid));
            own.try_for_each(host::make_batch)?;
        }
        let cap = vm.cap.map(|cpus| Cap::new(qemu.pid(), &vm.name, cpus)).transpose()?;
        let pid = qemu.pid();
        let mut agent = Agent::new(control, move || host::cpu_time_ns(pid))?;
        let facts = VmFacts {
            vm: vm.name.clone(),
            role: match vm.role {
                Role::Measured => "measured".to_owned(),
                Role::Background => "background".to_owned(),
            },
            vcpus: vm.vcpus,
            kernel: String::new(),
            boot_ns: 0,
            boots: 0,
            frugal_ns: None,
            balanced_ns: None,
        };
        let ready = agent.ready(patience, limits.boot);
        let mut guest = Self {
            vm: vm.clone(),
            facts,
            overdue: false,
            agent,
            progress: Progress::default(),
            timeouts: None,
            qemu,
            _cap: cap,
            paused: false,
            asked: 0,
        };
        guest.facts.kernel = ready.map_err(|silence| guest.explain(silence, "booting"))?;
        guest.facts.boot_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(guest)
    }

    /// A haltpoll that is not in force would be plain halt under another name.
    fn check_idle_driver(&mut self, limits: Limits, patience: &Patience) -> Result<(), RunnerError> {
        if !self.vm.modules.iter().any(|module| module == "haltpoll") {
            return Ok(());
        }
        let command = ["cat", "/sys/devices/system/cpu/cpuidle/current_driver"].map(str::to_owned);
        let answer = self.run(&[], &command, limits.run, patience)?;
        let printed = answer.frames.get("output").map_or("", String::as_str);
        idle_driver_is_haltpoll(&self.vm.name, answer.status, printed).map_err(RunnerError::Work)
    }

    /// The scenario's own commands.
    fn prepare(&mut self, limits: Limits, patience: &Patience) -> Result<(), RunnerError> {
        for command in self.vm.prepare.clone() {
            let words = self.in_image(command);
            let answer = self.run(&[], &words, limits.run, patience)?;
            if answer.status != 0 {
                let output = answer.frames.get("output").map_or("", String::as_str);
                return Err(RunnerError::Work(format!(
                    "VM {}: {} ended with {}:\n{output}",
                    self.vm.name,
                    words.join(" "),
                    answer.status
                )));
            }
        }
        Ok(())
    }

    /// Its process on the host.
    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// What a halt costs in this VM, if any policy wants to know.
    pub fn calibrate(&mut self, limits: Limits, patience: &Patience) -> Result<(), RunnerError> {
        let asked_for = |choice: &PolicyChoice| {
            choice.policy.retains() && choice.timeout == TimeoutFrom::Boot && choice.profile != Profile::Latency
        };
        if self.vm.vcpus > 1 && self.vm.policies.iter().any(asked_for) {
            // As many samples and as long a gap as `gleaner run` itself takes.
            let probe = "gleaner probe --setting B --setting C --samples 120 --gap 1ms --json /tmp/probe.json";
            let words: Vec<String> = probe.split(' ').map(str::to_owned).collect();
            let answer = self.run(&["probe=/tmp/probe.json".to_owned()], &words, limits.run, patience)?;
            let report = answer.frames.get("probe").and_then(|json| serde_json::from_str::<ProbeReport>(json).ok());
            let Some(report) = report.filter(|_| answer.status == 0) else {
                let output = answer.frames.get("output").map_or("", String::as_str);
                return Err(RunnerError::Work(format!("VM {}: gleaner probe failed:\n{output}", self.vm.name)));
            };
            self.timeouts = report.timeouts;
            self.facts.frugal_ns = report.timeouts.map(|timeouts| timeouts.frugal_ns);
            self.facts.balanced_ns = report.timeouts.map(|timeouts| timeouts.balanced_ns);
        }
        Ok(())
    }

    /// The retention time-out that was measured after boot; `None` where there is none, or it is 0, which cannot be
    /// given on the command line: then each run finds out again that halting is free.
    pub fn timeout_ns(&self, profile: Profile) -> Option<u64> {
        let timeouts = self.timeouts?;
        let ns = match profile {
            Profile::Frugal => timeouts.frugal_ns,
            Profile::Balanced => timeouts.balanced_ns,
            Profile::Latency => return None,
        };
        (ns > 0).then(|| ns.max(1_000))
    }

    /// A command as it is run where its programs are.
    pub fn in_image(&self, mut command: Vec<String>) -> Vec<String> {
        if self.vm.image.is_some() {
            command.splice(0..0, ["chroot".to_owned(), "/debian".to_owned()]);
        }
        command
    }

    /// A new id for a command.
    pub fn new_id(&mut self) -> String {
        self.asked += 1;
        format!("r{}", self.asked)
    }

    /// Runs a command and waits for it.
    pub fn run(
        &mut self,
        files: &[String],
        command: &[String],
        limit: Duration,
        patience: &Patience,
    ) -> Result<Answer, RunnerError> {
        let id = self.new_id();
        self.begin(&id, files, command)?;
        let answer = self.agent.wait(patience, limit);
        answer.map_err(|silence| self.explain(silence, &command.join(" ")))
    }

    /// Starts a command whose answer [`Guest::poll`] will have.
    pub fn begin(&mut self, id: &str, files: &[String], command: &[String]) -> Result<(), RunnerError> {
        let words = [files, &["--".to_owned()], command].concat();
        let sent = self.agent.send("run", id, &words);
        sent.map_err(|silence| self.explain(silence, "a command"))
    }

    /// Waits for a moment for the answer. After `end` it is one that is overdue, unless the VM is gone or the emulator
    /// broke it.
    pub fn poll(&mut self, end: Instant, patience: &Patience) -> Result<Option<Answer>, RunnerError> {
        let silence = match self.agent.poll(patience, end) {
            Ok(polled) => return Ok(polled),
            Err(silence) => silence,
        };
        let hangs = matches!(silence, Silence::Hangs);
        match self.explain(silence, "a measured run") {
            RunnerError::Vm { emulator: false, what } if hangs && !self.qemu.is_gone() => {
                eprintln!("testbed: {what}\ntestbed: the run counts as failed, and all VMs boot again");
                self.overdue = true;
                Ok(Some(self.agent.give_up()))
            }
            error => Err(error),
        }
    }

    /// Starts a program in the background. Of one that `reports`, what it writes is kept in the guest's memory, and its
    /// first line of progress is waited for.
    pub fn start(
        &mut self,
        id: &str,
        command: &[String],
        reports: bool,
        patience: &Patience,
    ) -> Result<(), RunnerError> {
        self.progress = Progress::default();
        let verb = if reports { "keep" } else { "start" };
        let answer = self.short(verb, id, command, patience)?;
        if answer.status != 0 {
            let (name, words) = (&self.vm.name, command.join(" "));
            let wrote = last_lines(frame(&answer, "kept"));
            return Err(RunnerError::Work(format!("VM {name}: {words}\nreports no progress; it wrote:\n{wrote}")));
        }
        Ok(())
    }

    /// Ends it. What it reported was by a clock that was 0 at `booted`.
    pub fn stop(&mut self, id: &str, booted: Option<Instant>, patience: &Patience) -> Result<(), RunnerError> {
        let answer = self.short("stop", id, &[], patience)?;
        if let (Some(booted), Some(kept)) = (booted, answer.frames.get("kept")) {
            self.progress = Progress::of(booted, kept);
        }
        Ok(())
    }

    /// The host's time when the guest's clock (CLOCK_MONOTONIC; it never sleeps) was 0. Paused, it stands.
    pub fn booted(&mut self, patience: &Patience) -> Result<Instant, RunnerError> {
        let id = self.new_id();
        let booted = self.short("clock", &id, &[], patience)?.booted;
        booted.ok_or_else(|| RunnerError::Work(format!("VM {} does not say what time it is", self.vm.name)))
    }

    /// What the program that was stopped last had reported.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether its vCPUs may run.
    pub fn set_paused(&mut self, paused: bool) -> Result<(), RunnerError> {
        if paused != self.paused {
            if paused {
                self.qemu.pause()?;
            } else {
                self.qemu.resume()?;
            }
            self.paused = paused;
        }
        Ok(())
    }

    /// Switches it off.
    pub fn end(mut self) {
        // One that is paused would never hear.
        let _ = self.set_paused(false);
        self.agent.bye();
        self.qemu.end(Duration::from_secs(10));
    }

    fn short(&mut self, verb: &str, id: &str, words: &[String], patience: &Patience) -> Result<Answer, RunnerError> {
        let answer = self.agent.send(verb, id, words).and_then(|()| self.agent.wait(patience, SHORT));
        answer.map_err(|silence| self.explain(silence, verb))
    }

    fn explain(&mut self, silence: Silence, doing: &str) -> RunnerError {
        let name = &self.vm.name;
        let what = match silence {
            Silence::Stop(error) => return error,
            Silence::Hangs if !self.qemu.is_gone() => format!("VM {name} did not answer in time ({doing})"),
            Silence::Gone | Silence::Hangs => format!("VM {name} is gone ({doing}): a panic, or out of memory"),
        };
        let heard = self.agent.heard();
        let heard = if heard.is_empty() { "nothing".to_owned() } else { heard };
        self.qemu.failed(&format!("{what}\nlast heard from it:\n{heard}"))
    }
}

fn idle_driver_is_haltpoll(vm: &str, status: i32, printed: &str) -> Result<(), String> {
    let driver = match printed.trim() {
        "haltpoll" if status == 0 => return Ok(()),
        "none" | "" => "none".to_owned(),
        _ if status != 0 => "none (its kernel has no cpuidle)".to_owned(),
        other => other.to_owned(),
    };
    Err(format!(
        "VM {vm}: modules has \"haltpoll\", but the guest's idle driver is {driver}: it would measure something else under that name. \
         The driver asks for KVM, and for the realtime hint or append = \"cpuidle_haltpoll.force=1\"; or leave the VM out"
    ))
}

/// vCPU threads to their CPUs, QEMU's other threads to all of these unless they have some of their own.
fn confine(vm: &Vm, qemu: &Qemu, cpus: Option<&CpuSet>, emulator_cpus: Option<&CpuSet>) -> Result<(), RunnerError> {
    let everywhere: Option<CpuSet> =
        if vm.pin.is_empty() { cpus.cloned() } else { Some(vm.pin.iter().flat_map(CpuSet::iter).collect()) };
    for tid in host::threads(qemu.pid()) {
        let own = emulator_cpus.filter(|_| !qemu.vcpu_tids.contains(&tid));
        own.or(everywhere.as_ref()).map_or(Ok(()), |cpus| host::pin(tid, cpus))?;
    }
    for (tid, cpus) in qemu.vcpu_tids.iter().zip(&vm.pin) {
        host::pin(*tid, cpus)?;
    }
    Ok(())
}

/// What all guests of a scenario share.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The folder testbed/.
    pub testbed: PathBuf,
    /// The binary under test.
    pub binary: PathBuf,
    /// Policy files by their names in the scenario.
    pub configs: Vec<(String, PathBuf)>,
}

impl Sources {
    /// Where a policy file is in a guest.
    pub fn config_in_guest(&self, name: &str) -> Option<String> {
        let at = self.configs.iter().position(|(config, _)| config == name)?;
        Some(format!("/etc/gleaner/{at}.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_haltpoll_passes_for_haltpoll() {
        assert_eq!(idle_driver_is_haltpoll("a", 0, "haltpoll\n"), Ok(()));
        for (status, printed, named) in [
            (0, "none\n", "driver is none:"),
            (0, "acpi_idle\n", "driver is acpi_idle:"),
            (1, "cat: can't open", "no cpuidle"),
        ] {
            let refused = idle_driver_is_haltpoll("polls", status, printed).unwrap_err();
            assert!(refused.starts_with("VM polls: ") && refused.contains(named), "{refused}");
        }
    }
}
