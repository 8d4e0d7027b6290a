//! Slices of the vCPUs while a combination is measured: Gleaner's own host side, as its user would run it.

use crate::guest::Guest;
use crate::step::{Bench, Place};
use crate::trouble::{TICK, Trouble};
use gleaner_model::Nanos;
use gleaner_report::{DeliveredSlices, HostRunReport, ScenarioRun, SliceReport};
use gleaner_scenario::{Combination, HostSlice};
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
/// How long `adaptive` works under the same load before what is measured. From 1 ms to the longest or the shortest takes three steps at most, of four
/// windows each: 2.4 s without a pause; after a step taken back it rests for ten seconds.
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
    pub fn begin(bench: &Bench<'_>, guests: &[Guest], slice: Option<HostSlice>) -> Result<Option<Self>, Trouble> {
        let Some(slice) = slice.filter(|slice| *slice != HostSlice::Kernel) else { return Ok(None) };
        let (json, log) = (bench.folder.join("slices.json"), bench.folder.join("slices.log"));
        let refused = |error: std::io::Error| Trouble::work("cannot start gleaner host", error);
        let mut command = Command::new("setpriv");
        // Killed -9, the runner takes it along; told by SIGTERM, it puts everything back.
        command.args(["--pdeathsig", "TERM"]).arg(&bench.sources.binary).arg("host");
        match slice {
            HostSlice::Fixed(slice) => command.args(["slice", "--slice", &format!("{}us", slice.as_micros())]),
            _ => command.args(["run", "--policy", "adaptive", "--interval", INTERVAL]),
        };
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
        let adaptive = slice == HostSlice::Adaptive;
        let mut held = Self { child, adaptive, json, log, ended: false, measured_from: Instant::now() };
        bench.patience.sleep(READY)?;
        if held.child.try_wait().is_ok_and(|status| status.is_some()) {
            held.ended = true;
            return Err(held.failed("ended at once"));
        }
        Ok(Some(held))
    }

    /// Lets `adaptive` find its slices under the load that is measured then: the same runs over and over. They are returned as warm-up,
    /// so that what the search costs can be seen apart.
    pub fn search(
        &mut self,
        bench: &Bench<'_>,
        guests: &mut [Guest],
        combination: &Combination,
        place: Place,
    ) -> Result<Vec<ScenarioRun>, Trouble> {
        let end = Instant::now() + SEARCH;
        let mut runs = Vec::new();
        while self.adaptive && Instant::now() < end {
            let answers = bench.measure(guests, &combination.measured)?;
            runs.extend(bench.runs_of(guests, combination, Place { warmup: true, ..place }, &answers));
            if answers.iter().any(|(_, answer)| answer.status != 0) {
                // The run that counts will fail as well, and say why.
                break;
            }
        }
        self.measured_from = Instant::now();
        Ok(runs)
    }

    /// Puts slices back; what was delivered.
    pub fn end(mut self) -> Result<DeliveredSlices, Trouble> {
        let measured = self.measured_from.elapsed();
        if !self.tell_to_end() {
            return Err(self.failed("did not put the slices back when told to"));
        }
        let text = fs::read_to_string(&self.json).unwrap_or_default();
        let wrong = |error: serde_json::Error| self.failed(&format!("gave no result ({error})"));
        if self.adaptive {
            serde_json::from_str(&text).map_err(wrong).map(|report: HostRunReport| of_agent(&report, measured))
        } else {
            serde_json::from_str(&text).map_err(wrong).map(|report: SliceReport| of_slice(&report))
        }
    }

    fn failed(&self, what: &str) -> Trouble {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Trouble::Work(format!("gleaner host {what}:\n{}", log.trim_end()))
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

fn of_slice(report: &SliceReport) -> DeliveredSlices {
    DeliveredSlices {
        p50_ns: report.delivered_p50_ns,
        p90_ns: report.delivered_p90_ns,
        wake_to_run_p99_ns: report.threads.iter().filter_map(|thread| thread.wake_to_run_p99_ns).max(),
        enforcement_cpu_ratio: report.enforcement_cpu_ratio.map(|tickers| {
            // Who asks runs once for all CPUs.
            tickers + report.asking_cpu_ratio.unwrap_or(0.0) / report.cpus.len().max(1) as f64
        }),
        agent_cpu_ratio: None,
        chosen_ns: None,
        changes: None,
    }
}

/// `measured`: for how long before its end runs counted. The agent's clock begins some time after its process, but ends with it.
fn of_agent(report: &HostRunReport, measured: Duration) -> DeliveredSlices {
    let from = report.wall_ns.saturating_sub(u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX));
    let changes = report.decisions.iter().filter(|decision| decision.at_ns >= from).count() as u64;
    let after = || report.vms.iter().filter_map(|vm| vm.after.as_ref());
    DeliveredSlices {
        p50_ns: after().filter_map(|figures| figures.delivered_p50_ns).max(),
        p90_ns: after().filter_map(|figures| figures.delivered_p90_ns).max(),
        wake_to_run_p99_ns: after().filter_map(|figures| figures.wake_to_run_p99_ns).max(),
        enforcement_cpu_ratio: Some(report.enforcement.cpu_ratio / report.enforcement.pcpus.max(1) as f64),
        agent_cpu_ratio: Some(Nanos(report.overhead_cpu_ns).share_of(Nanos(report.wall_ns))),
        chosen_ns: report.vms.iter().filter_map(|vm| vm.slices.last()).map(|slice| slice.slice_ns).min(),
        // Later ones than the first thousand are not listed; nor would anybody take a search with so many for settled.
        changes: Some(changes + report.decisions_left_out),
    }
}
