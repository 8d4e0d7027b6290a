//! All runs of a comparison, one after another.

use super::capture::Found;
use super::interrupt::Interrupt;
use super::measure::{self, Outcome, ReportFile};
use super::number;
use super::plan::{Mode, Plan};
use gleaner_command::ending;
use gleaner_command::failure::Failure;
use gleaner_command::output::{form, say, shown, steady_tick};
use gleaner_model::Nanos;
use gleaner_report::{AbRun, RunReport};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shorter runs are all start.
const SHORT: Duration = Duration::from_millis(50);
/// Different warnings of runs that are told; a limit, because they are the machine's words.
const WARNINGS_TOLD: usize = 12;

const LINE_SHOWN: usize = 120;

/// What was measured.
#[derive(Default)]
pub struct Series {
    pub runs: Vec<AbRun>,
    /// Why there are no more, when that was not the plan.
    pub stop: Option<Stop>,
    pub notes: Vec<String>,
    /// Of managed runs, each with how many said it.
    warnings: BTreeMap<String, u64>,
    managed_runs: u64,
    /// Whether what the metric's pattern finds was shown.
    shown: bool,
    left_behind: u64,
    /// Runs that count although they failed.
    failed: u64,
}

/// Why a comparison ended early.
pub struct Stop {
    /// In the result.
    pub reason: String,
    /// On stderr.
    pub message: String,
    pub status: u8,
}

/// Which run.
struct Which<'a> {
    mode: &'a Mode,
    /// `None`: a warm-up.
    pair: Option<(u64, u64)>,
}

impl Which<'_> {
    fn words(&self) -> String {
        let mode = &self.mode.name;
        self.pair
            .map_or_else(|| format!("a warm-up run of mode {mode}"), |(pair, _)| format!("pair {pair}, mode {mode}"))
    }
}

/// What all runs share.
struct Setting<'a> {
    plan: &'a Plan,
    interrupt: &'a Interrupt,
    report: ReportFile,
    so_far: SoFar,
}

/// Tells what has come out of the runs so far, for the progress bar.
type SoFar = fn(&Plan, &[AbRun]) -> String;

impl Series {
    /// Measures what the plan says. `so_far` tells what has come out.
    pub fn measured(plan: &Plan, interrupt: &Interrupt, so_far: SoFar) -> Result<Self, Failure> {
        // Orphans of runs come to us: their costs count, whatever the mode.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let report = ReportFile::new()?;
        let mut series = Self::default();
        let setting = Setting { plan, interrupt, report, so_far };
        series.stop = match Self::script(&setting, "--setup", plan.scripts.setup.as_deref())? {
            None => series.run_all(&setting)?,
            failed => failed,
        };
        // Also when a run failed; what that said counts more.
        let failed = Self::script(&setting, "--cleanup", plan.scripts.cleanup.as_deref())?;
        series.stop = series.stop.take().or(failed);
        series.tell_warnings();
        Ok(series)
    }

    /// Runs a script around the runs, if there is one.
    fn script(setting: &Setting<'_>, option: &str, script: Option<&str>) -> Result<Option<Stop>, Failure> {
        let Some(script) = script else { return Ok(None) };
        let (status, said) = measure::script(setting.plan, script, setting.interrupt)?;
        if let Some(signal) = setting.interrupt.signal().filter(|_| option != "--cleanup") {
            return Ok(Some(interrupted(signal)));
        }
        if status == 0 {
            return Ok(None);
        }
        let reason = format!("{option} ended with status {status}");
        let said =
            if said.is_empty() { "it printed nothing".to_owned() } else { format!("the end of its output:\n{said}") };
        Ok(Some(Stop { message: format!("{reason}; {said}"), reason, status: u8::try_from(status).unwrap_or(125) }))
    }

    fn run_all(&mut self, setting: &Setting<'_>) -> Result<Option<Stop>, Failure> {
        let plan = setting.plan;
        let bar = progress(plan);
        let began = Instant::now();
        for mode in (0..plan.warmups).flat_map(|_| &plan.modes) {
            bar.set_message("warming up");
            if let Some(stop) = self.run_one(setting, &bar, &Which { mode, pair: None })? {
                return Ok(Some(stop));
            }
        }
        let warm_up = began.elapsed();
        let pairs = usize::try_from(plan.pairs).unwrap_or(usize::MAX);
        for (pair, places) in (1..).zip(gleaner_stats::rounds(pairs, plan.modes.len(), plan.seed)) {
            if plan.max_time.is_some_and(|limit| !fits(warm_up, began.elapsed(), pair - 1, limit)) {
                self.notes.push(format!("--max-time ended it after {} of {} pairs", pair - 1, plan.pairs));
                break;
            }
            for (order, mode) in (1..).zip(places.into_iter().map(|place| &plan.modes[place])) {
                bar.set_message((setting.so_far)(plan, &self.runs));
                if let Some(stop) = self.run_one(setting, &bar, &Which { mode, pair: Some((pair, order)) })? {
                    return Ok(Some(stop));
                }
            }
            bar.set_position(pair);
        }
        bar.finish_and_clear();
        Ok(None)
    }

    fn run_one(
        &mut self,
        setting: &Setting<'_>,
        bar: &ProgressBar,
        which: &Which<'_>,
    ) -> Result<Option<Stop>, Failure> {
        if let Some(signal) = setting.interrupt.signal() {
            return Ok(Some(interrupted(signal)));
        }
        if let Some(stop) = Self::script(setting, "--prepare", setting.plan.scripts.prepare.as_deref())? {
            return Ok(Some(stop));
        }
        let outcome = measure::run(setting.plan, which.mode, &setting.report, setting.interrupt)?;
        if let Some(signal) = setting.interrupt.signal() {
            return Ok(Some(interrupted(signal)));
        }
        if outcome.report.is_none() || outcome.exit_status != 0 && !setting.plan.ignore_failure {
            return Ok(Some(failed(which, &outcome)));
        }
        self.failed += u64::from(outcome.exit_status != 0);
        self.remember(which, &outcome);
        let metric = match metric(setting.plan, which, &outcome) {
            Ok(metric) => metric,
            Err(stop) => return Ok(Some(stop)),
        };
        if let Some((value, found)) = metric.zip(outcome.metric()).filter(|_| !std::mem::replace(&mut self.shown, true))
        {
            bar.suspend(|| say(&shown_once(value, found)));
        }
        self.runs.extend(record(which, &outcome, metric));
        Ok(None)
    }

    fn remember(&mut self, which: &Which<'_>, outcome: &Outcome) {
        self.left_behind += u64::from(outcome.left_behind);
        let Some(report) = &outcome.report else { return };
        self.managed_runs += u64::from(which.mode.policy != gleaner_model::Policy::Off);
        for warning in &report.warnings {
            if self.warnings.len() < WARNINGS_TOLD || self.warnings.contains_key(warning) {
                *self.warnings.entry(warning.clone()).or_default() += 1;
            }
        }
        if !report.restored {
            let told = "a run could not undo everything it changed: run `gleaner restore`".to_owned();
            *self.warnings.entry(told).or_default() += 1;
        }
    }

    fn tell_warnings(&mut self) {
        let walls: Vec<f64> = self.runs.iter().map(|run| run.wall_ns as f64).collect();
        let short = gleaner_stats::median(&walls).filter(|wall| *wall < SHORT.as_nanos() as f64);
        self.notes.extend(short.map(|wall| {
            let took = Nanos::from_f64(wall);
            format!("a run took {took}, and Gleaner begins after some milliseconds: compare work of a second or more")
        }));
        if self.left_behind > 0 {
            self.notes.push(
                "the command leaves processes behind: what they do later is not in its figures, and disturbs the next \
                 run"
                .to_owned(),
            );
        }
        if self.failed > 0 {
            let runs = self.failed;
            self.notes.push(format!("runs that ended with a status other than 0, and count all the same: {runs}"));
        }
        let managed = self.managed_runs;
        for (warning, runs) in std::mem::take(&mut self.warnings) {
            self.notes.push(format!("{warning} ({runs} of {managed} managed runs, warm-up included)"));
        }
    }
}

/// A bar on a terminal; nothing elsewhere, and nothing between the lines of shown output.
fn progress(plan: &Plan) -> ProgressBar {
    if plan.show_output {
        return ProgressBar::hidden();
    }
    let bar = shown(ProgressBar::new(plan.pairs));
    form(&bar, "  pair {pos}/{len} [{bar:30}] {left}  {msg}");
    steady_tick(&bar, Duration::from_secs(1));
    bar
}

/// Whether one more pair, as long as those so far, ends within `limit`. The first is always run: nobody knows how long
/// it takes, and there would be no result.
fn fits(warm_up: Duration, elapsed: Duration, pairs: u64, limit: Duration) -> bool {
    if pairs == 0 {
        return true;
    }
    let one = elapsed.saturating_sub(warm_up).as_secs_f64() / pairs as f64;
    elapsed.as_secs_f64() + one <= limit.as_secs_f64()
}

fn interrupted(signal: i32) -> Stop {
    ending::told(signal);
    let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
    Stop {
        reason: format!("interrupted by {name}"),
        message: format!("interrupted by {name}; the run that was going on is not counted"),
        status: u8::try_from(128 + signal).unwrap_or(125),
    }
}

fn failed(which: &Which<'_>, outcome: &Outcome) -> Stop {
    let status = outcome.exit_status;
    let words = which.words();
    let tail = outcome.tail();
    let said =
        if tail.is_empty() { "it printed nothing".to_owned() } else { format!("the end of its output:\n{tail}") };
    let (reason, message) = if outcome.report.is_some() {
        let reason = format!("the command ended with status {status} in {words}");
        (reason.clone(), format!("{reason}; {said}"))
    } else {
        let reason = format!("the command could not be run in {words} (status {status})");
        // `gleaner run` has named what is wrong.
        (reason.clone(), if tail.is_empty() { reason } else { tail.trim_start_matches("gleaner: ").to_owned() })
    };
    // A status that says nothing is wrong would hide that there is no result.
    let status = u8::try_from(status & 0xff).unwrap_or(125);
    Stop { reason, message, status: if status == 0 { 125 } else { status } }
}

fn metric(plan: &Plan, which: &Which<'_>, outcome: &Outcome) -> Result<Option<f64>, Stop> {
    let Some(metric) = &plan.metric else { return Ok(None) };
    let stop = |what: String| {
        let reason = format!("{what} in {}", which.words());
        let tail = outcome.tail();
        let said = if tail.is_empty() { "it printed nothing".to_owned() } else { format!("the end of it:\n{tail}") };
        Stop { message: format!("--metric: {reason}; {said}"), reason, status: 2 }
    };
    let Some(Found { text, part_of, .. }) = outcome.metric() else {
        return Err(stop(format!("no line of the command's output matches '{}'", metric.regex)));
    };
    if let Some(whole) = part_of {
        return Err(stop(format!(
            "'{text}', which '{}' found, is a part of '{whole}': let ( ) take all of the number, as ([0-9.,]+) does",
            metric.regex
        )));
    }
    match number::read(text) {
        Some(value) => Ok(Some(value)),
        None => Err(stop(format!("'{text}', which '{}' found, is no number", metric.regex))),
    }
}

/// What the pattern finds, for a person to see that it is the right number.
fn shown_once(value: f64, Found { text, line, .. }: &Found) -> String {
    let line: String = line.trim().chars().filter(|c| !c.is_control()).take(LINE_SHOWN).collect();
    format!("gleaner: --metric found {text}, read as {value}, in: {line}")
}

/// What the kernel polled: the CPU takes it from the host as a yielding thread does, but the kernel charges it to
/// nobody.
fn polled_ns(report: &RunReport) -> u64 {
    if report.means.yielding.is_none() { report.retained_ns } else { 0 }
}

/// `None` for a warm-up.
fn record(which: &Which<'_>, outcome: &Outcome, metric: Option<f64>) -> Option<AbRun> {
    let ((pair, order), report) = (which.pair?, outcome.report.as_ref()?);
    Some(AbRun {
        mode: which.mode.name.clone(),
        pair,
        order,
        wall_ns: report.wall_ns,
        metric,
        cpu_time_ns: outcome.usage.cpu_time_ns + polled_ns(report),
        retained_ns: report.retained_ns,
        steal_ns: outcome.steal_ns,
        voluntary_switches: outcome.usage.voluntary_switches,
        involuntary_switches: outcome.usage.involuntary_switches,
        guard_trips: report.guard_trips,
        active_vcpus_mean: report.active_vcpus_mean,
        exit_status: outcome.exit_status,
        outlier: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_time_counts_the_warm_up_and_leaves_room_for_a_pair() {
        let s = Duration::from_secs;
        for (warm_up, elapsed, pairs, limit, expected) in [
            (0, 0, 0, 10, true),
            (20, 20, 0, 10, true),
            (0, 6, 2, 9, true),
            (0, 6, 2, 8, false),
            (2, 8, 2, 11, true),
            (2, 8, 2, 10, false),
        ] {
            let found = fits(s(warm_up), s(elapsed), pairs, s(limit));
            assert_eq!(found, expected, "{pairs} pairs in {elapsed} s, of which {warm_up} warming up; limit {limit} s");
        }
    }
}
