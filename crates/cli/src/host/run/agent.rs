//! The loop of the host agent: observe, decide, act, print; once a window.

use super::backend::Backend;
use super::new_warnings::NewWarnings;
use super::options::Options;
use super::record::Record;
use super::turns::Turns;
use super::watch::{Sample, Watch};
use crate::host::shared::{Interrupted, interrupted_before, kernel_notes};
use gleaner_command::failure::Failure;
use gleaner_command::output::{say, shown, tell};
use gleaner_decide::host::HostPolicy;
use gleaner_model::{Nanos, SwitchPrice};
use gleaner_observe::ProcRoot;
use gleaner_report::{HostRunReport, StatusHost, decision_lines};
use gleaner_runtime::event_loop::{self, Task};
use gleaner_sys::{monotonic, thread_cpu_time};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Runs until the time is over or a signal came; undoes everything.
pub fn run(options: &Options, interrupted: &Arc<AtomicBool>) -> Result<HostRunReport, Failure> {
    let mut record = Record::default();
    record.warnings.clone_from(&options.warnings);
    record.warnings.extend(kernel_notes());
    let mut watch = Watch::begin(ProcRoot::default(), &options.vms, &options.tids)?;
    if let Some(why) = watch.refusal() {
        let why: String = why.chars().take(300).collect();
        record.warnings.push(format!("observing through /proc, which sees means but no distributions: {why}"));
    }
    if options.pause_exits
        && let Err(why) = watch.count_pause_exits()
    {
        record.warnings.push(format!("exits by PAUSE are not counted: {why}"));
    }
    let backend = Backend::begin(&watch, options, &mut record.warnings)?;
    record.warnings.extend(watch.new_warnings());
    let mut new_warnings = NewWarnings::default();
    new_warnings.of(&mut record.warnings).iter().for_each(|warning| say(&format!("gleaner: {warning}")));
    let price = SwitchPrice { tick: backend.tick(&options.params), ..options.price };
    let policy = HostPolicy::new(options.policy, options.params.clone(), price);
    let (began, cpu_before) = (Instant::now(), thread_cpu_time());
    let mut agent = Agent {
        options,
        interrupted,
        watch,
        backend,
        policy,
        turns: options.in_turn.clone().map(Turns::new),
        record,
        new_warnings,
        bar: progress_bar(),
        began,
        next: began + options.interval,
    };
    let first = agent.until_next();
    let ended = event_loop::run(&mut agent, first);
    agent.bar.finish_and_clear();
    let overhead = thread_cpu_time() - cpu_before;
    let Agent { watch, backend, policy, turns, mut record, mut new_warnings, .. } = agent;
    let undone = backend.end(&mut record.warnings);
    let stand = policy.explain();
    record.warnings.extend(record.unjudged(&stand));
    new_warnings.of(&mut record.warnings).iter().for_each(|warning| say(&format!("gleaner: {warning}")));
    ended?;
    let wall = Nanos::from(began.elapsed());
    let in_turn = turns.map(Turns::report);
    Ok(HostRunReport {
        in_turn,
        ..record.report(options, watch.source(), policy.price().tick, (wall, overhead), &stand, undone)
    })
}

/// What runs while the command does.
struct Agent<'a> {
    options: &'a Options,
    interrupted: &'a AtomicBool,
    watch: Watch,
    backend: Backend,
    policy: HostPolicy,
    turns: Option<Turns>,
    record: Record,
    new_warnings: NewWarnings,
    bar: ProgressBar,
    began: Instant,
    /// When the next window ends, if it is not the last.
    next: Instant,
}

impl Task for Agent<'_> {
    type Event = Interrupted;
    type Outcome = Result<(), Failure>;

    fn wait_until(&mut self, due: Instant) -> Option<Interrupted> {
        interrupted_before(due, self.interrupted)
    }

    fn tick(&mut self, _: Nanos) -> ControlFlow<Self::Outcome, Duration> {
        match self.window() {
            Err(failure) => ControlFlow::Break(Err(failure)),
            Ok(true) => ControlFlow::Break(Ok(())),
            Ok(false) => {
                // Windows that take longer than they are apart are not made up for.
                self.next = (self.next + self.options.interval).max(Instant::now());
                ControlFlow::Continue(self.until_next())
            }
        }
    }

    fn event(&mut self, _: Interrupted) -> ControlFlow<Self::Outcome, Option<Duration>> {
        ControlFlow::Break(Ok(()))
    }
}

impl Agent<'_> {
    /// When the time is over; `None`: when told.
    fn end(&self) -> Option<Instant> {
        self.options.length.map(|length| self.began + length)
    }

    fn until_next(&self) -> Duration {
        let until = self.end().map_or(self.next, |end| end.min(self.next));
        until.saturating_duration_since(Instant::now())
    }

    /// One window; says whether it was the last.
    fn window(&mut self) -> Result<bool, Failure> {
        let Self { options, watch, backend, policy, turns, record, new_warnings, bar, .. } = self;
        let mut seen = watch.window()?;
        seen.window.tick = backend.measured_tick();
        let now = monotonic();
        let window = turns.as_ref().map_or_else(|| Some(seen.window.clone()), |turns| turns.of_policy(&seen.window));
        let decisions = window.as_ref().map(|window| policy.step(window)).unwrap_or_default();
        // With a status its reader has them.
        for line in decision_lines(&decisions).into_iter().filter(|_| !options.status) {
            bar.suspend(|| tell(&line));
        }
        let over = turns.as_mut().is_some_and(|turns| !turns.add(&seen, now));
        let slices = turns.as_ref().map(|turns| turns.slices(policy.slices(), watch.vms()));
        backend.apply(watch.vms(), slices.as_ref().unwrap_or(policy.slices()), &mut record.warnings)?;
        record.warnings.extend(watch.new_warnings());
        record.warn_of_unfair(&policy.unfair(), seen.window.at, &options.params);
        for warning in new_warnings.of(&mut record.warnings) {
            bar.suspend(|| say(&format!("gleaner: {warning}")));
        }
        if let Some(window) = window {
            record.add(&Sample { window, ..seen }, &decisions, watch.vms());
        }
        if options.status {
            let status = record.status(watch.source(), backend.method(), policy.slices());
            let up_ns = Nanos::from(self.began.elapsed()).0;
            // Without a reader the agent does its work all the same.
            let _ = print_line(&StatusHost { up_ns, policy: options.policy_name().to_owned(), ..status });
        }
        let line = record.line(Nanos::from(self.began.elapsed()), policy.slices());
        bar.set_message(turns.as_ref().map_or(line.clone(), |turns| format!("{line}; {}", turns.word())));
        Ok(over || self.watch.is_over() || self.end().is_some_and(|end| Instant::now() >= end))
    }
}

fn print_line(status: &StatusHost) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(status)?)?;
    stdout.flush()
}

fn progress_bar() -> ProgressBar {
    let bar = shown(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("  {msg}") {
        bar.set_style(style);
    }
    bar
}
