//! Slices of the vCPUs while a combination is measured: Gleaner's own host side, as its user would run it.

use crate::agent::Answer;
use crate::error::{RunnerError, TICK};
use crate::guest::Guest;
use crate::step::Bench;
use gleaner_lab_report::DeliveredSlices;
use gleaner_model::Nanos;
use gleaner_report::HostRunReport;
use gleaner_scenario::{Choice, Combination, HostSlice};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// From its start until slices are set: BPF is loaded, and what a switch costs is measured.
const READY: Duration = Duration::from_millis(1500);
/// From being told to end until it has.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Of `adaptive`: runs take seconds, and a step takes some windows.
const INTERVAL: &str = "200ms";
/// How long `adaptive` works under the same load before what is measured: 2.4 s from 1 ms to either end, and after a
/// step that was taken back it rests for ten seconds.
const SEARCH: Duration = Duration::from_secs(12);

/// `gleaner host` at work on all VMs. Dropped, it is told to end all the same, and puts every slice back.
pub struct HeldSlices {
    child: Child,
    adaptive: bool,
    json: PathBuf,
    log: PathBuf,
    ended: bool,
    /// When the runs that count began.
    measured_from: Instant,
}

impl HeldSlices {
    /// Sets slices, if they are not to be the kernel's.
    pub fn begin(bench: &Bench<'_>, guests: &[Guest], slice: Option<HostSlice>) -> Result<Option<Self>, RunnerError> {
        let Some(slice) = slice.filter(|slice| *slice != HostSlice::Kernel) else { return Ok(None) };
        let word = match slice {
            HostSlice::Fixed(slice) => in_us(slice),
            _ => "adaptive".to_owned(),
        };
        let words = ["run", "--slice", &word, "--interval", INTERVAL].map(str::to_owned);
        let mut held = Self::start(bench, guests, &words, slice == HostSlice::Adaptive)?;
        bench.patience.sleep(READY)?;
        if held.has_ended() {
            return Err(held.failed("ended at once"));
        }
        Ok(Some(held))
    }

    /// All slices of the scenario in turn, on VMs that go on working; waits until each has had so many turns.
    pub fn in_turn(bench: &Bench<'_>, guests: &[Guest], passes: u32) -> Result<HostRunReport, RunnerError> {
        let slices = &bench.scenario.machine.slices;
        let mut fixed: Vec<String> =
            slices.iter().filter_map(|slice| slice.fixed()).map(|slice| in_us(slice.into())).collect();
        let mut words = ["run", "--interval", INTERVAL].map(str::to_owned).to_vec();
        let adaptive = slices.contains(&HostSlice::Adaptive);
        if adaptive {
            words.extend(["--slice".to_owned(), "adaptive".to_owned(), "--lead".to_owned(), in_us(SEARCH)]);
        } else {
            // The policy that the others take turns with is the first slice for all.
            words.extend(["--slice".to_owned(), fixed.remove(0)]);
            words.extend(["--lead".to_owned(), INTERVAL.to_owned()]);
        }
        words.extend(["--in-turn".to_owned(), fixed.join(","), "--passes".to_owned(), passes.to_string()]);
        let mut held = Self::start(bench, guests, &words, adaptive)?;
        let end = Instant::now() + bench.scenario.run_timeout;
        while !held.has_ended() {
            if Instant::now() >= end {
                return Err(held.failed("did not end within run_timeout"));
            }
            bench.patience.sleep(TICK)?;
        }
        held.report()
    }

    fn start(bench: &Bench<'_>, guests: &[Guest], words: &[String], adaptive: bool) -> Result<Self, RunnerError> {
        let (json, log) = (bench.folder.join("slices.json"), bench.folder.join("slices.log"));
        // Of the run before: what did not end well leaves none.
        let _ = fs::remove_file(&json);
        let refused = |error: std::io::Error| RunnerError::work("cannot start gleaner host", error);
        let mut command = Command::new("setpriv");
        // Killed -9, the runner takes it along; told by SIGTERM, it puts everything back.
        command.args(["--pdeathsig", "TERM"]).arg(&bench.sources.binary).arg("host");
        command.args(words);
        for guest in guests {
            command.args(["--vm", &guest.pid().to_string()]);
        }
        let child = command
            .arg("--json")
            .arg(&json)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(refused)?)
            .spawn()
            .map_err(refused)?;
        Ok(Self { child, adaptive, json, log, ended: false, measured_from: Instant::now() })
    }

    fn has_ended(&mut self) -> bool {
        self.ended |= self.child.try_wait().is_ok_and(|status| status.is_some());
        self.ended
    }

    fn report(&self) -> Result<HostRunReport, RunnerError> {
        let text = fs::read_to_string(&self.json).unwrap_or_default();
        serde_json::from_str(&text).map_err(|error| self.failed(&format!("gave no result ({error})")))
    }

    /// Lets `adaptive` find its slices under the load that is measured then: the same runs over and over. Their answers
    /// are returned, so that what the search costs can be seen apart.
    pub fn search(
        &mut self,
        bench: &Bench<'_>,
        guests: &mut [Guest],
        combination: &Combination,
    ) -> Result<Vec<Vec<(Choice, Answer)>>, RunnerError> {
        let end = Instant::now() + SEARCH;
        let mut runs: Vec<Vec<(Choice, Answer)>> = Vec::new();
        while self.adaptive && Instant::now() < end {
            let answers = bench.measure(guests, &combination.measured)?;
            let failed = answers.iter().any(|(_, answer)| answer.status != 0);
            runs.push(answers);
            if failed {
                // The run that counts will fail as well, and say why.
                break;
            }
        }
        self.measured_from = Instant::now();
        Ok(runs)
    }

    /// Puts slices back; what was delivered.
    pub fn end(mut self) -> Result<DeliveredSlices, RunnerError> {
        let measured = self.measured_from.elapsed();
        if !self.tell_to_end() {
            return Err(self.failed("did not put the slices back when told to"));
        }
        let report = self.report()?;
        Ok(of_agent(&report, self.adaptive.then_some(measured)))
    }

    fn failed(&self, what: &str) -> RunnerError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        RunnerError::Work(format!("gleaner host {what}:\n{}", log.trim_end()))
    }

    /// False when it did not end by itself.
    fn tell_to_end(&mut self) -> bool {
        self.ended = true;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

impl Drop for HeldSlices {
    fn drop(&mut self) {
        if !self.ended {
            self.tell_to_end();
        }
    }
}

fn in_us(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

/// `searched`: for how long before its end runs of `adaptive` counted; `None` of a slice for all. The agent's clock
/// begins some time after its process, but ends with it.
fn of_agent(report: &HostRunReport, searched: Option<Duration>) -> DeliveredSlices {
    let changes_since = |measured: Duration| {
        let from = report.wall_ns.saturating_sub(u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX));
        // Later ones than the first thousand are not listed; nor would anybody take a search with so many for settled.
        report.decisions.iter().filter(|decision| decision.at_ns >= from).count() as u64 + report.decisions_left_out
    };
    let after = || report.vms.iter().filter_map(|vm| vm.after.as_ref());
    let chosen = report.vms.iter().filter_map(|vm| vm.slices.last()).map(|slice| slice.slice_ns).min();
    DeliveredSlices {
        p50_ns: after().filter_map(|figures| figures.delivered_p50_ns).max(),
        p90_ns: after().filter_map(|figures| figures.delivered_p90_ns).max(),
        wake_to_run_p99_ns: after().filter_map(|figures| figures.wake_to_run_p99_ns).max(),
        enforcement_cpu_ratio: Some(report.enforcement.cpu_ratio / report.enforcement.pcpus.max(1) as f64),
        agent_cpu_ratio: searched.map(|_| Nanos(report.overhead_cpu_ns).share_of(Nanos(report.wall_ns))),
        chosen_ns: chosen.filter(|_| searched.is_some()),
        changes: searched.map(changes_since),
    }
}
