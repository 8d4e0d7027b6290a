//! `gleaner workload`: the built-in programs.

mod args;

pub use args::WorkloadArgs;

use args::LIST;
use gleaner_command::failure::Failure;
use gleaner_command::output::{Output, form, quiet};
use gleaner_model::Nanos;
use gleaner_report::{LatencyReport, WorkloadReport};
use gleaner_sys::why_refused;
use gleaner_workloads::{
    Ended, ITERATIONS_PER_US, LatencySummary, Outcome, Plan, Program, Progress, Stop, WorkloadError, run,
};
use indicatif::ProgressBar;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Scope;
use std::time::Duration;

/// How often a terminal shows how far it is.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

pub fn main(args: &WorkloadArgs) -> Result<u8, Failure> {
    let Some(program) = Program::by_name(&args.name) else {
        debug_assert_eq!(args.name, LIST, "the parser lets nothing else through");
        Output::Text.text(&list());
        return Ok(0);
    };
    let plan = args.plan(program, crate::machine::allowed_vcpus().len())?;
    let mut output = Output::open(args.json.json.as_deref())?;
    if args.progress_every.is_some() && matches!(output, Output::JsonToStdout) {
        return Err(Failure::input(
            "--progress-every and --json would both write to stdout; name a file for the JSON: --json FILE",
        ));
    }
    let progress = Progress::default();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, progress.stop_flag()).map_err(Failure::work)?;
    }
    let outcome = run_watched(&plan, &progress, args)?;
    if outcome.ended == Ended::Told && matches!(plan.stop, Stop::Items(_)) {
        // Half of the work compares with nothing: no result.
        return Ok(130);
    }
    let report = report(&plan, &outcome);
    output.text(&report);
    output.json(&report)?;
    Ok(0)
}

/// Runs the plan while, if anybody wants to see it, another thread tells how far it is.
fn run_watched(plan: &Plan, progress: &Progress, args: &WorkloadArgs) -> Result<Outcome, Failure> {
    std::thread::scope(|scope| {
        // Nothing is ever sent: dropping the senders ends the watching threads.
        let ((lines_end, lines), (shown_end, shown)) = (channel(), channel());
        if let Some(every) = args.progress_every {
            let name = args.progress_name.as_deref();
            watch(scope, move || print_progress(progress, every, name, &lines))?;
        }
        if std::io::stderr().is_terminal() && !quiet() {
            // A bar is done without.
            let _ = watch(scope, move || show_progress(plan.stop, progress, &shown));
        }
        let outcome = run(plan, progress);
        drop((lines_end, shown_end));
        outcome.map_err(|error| match error {
            WorkloadError::OutOfRange { .. } | WorkloadError::Rate { .. } | WorkloadError::NoServer => {
                Failure::input(error)
            }
            WorkloadError::Connect { .. } => Failure::input(format!("{error} (--connect)")),
            _ => Failure::work(error),
        })
    })
}

/// A thread that tells how far it is.
fn watch<'scope>(scope: &'scope Scope<'scope, '_>, body: impl FnOnce() + Send + 'scope) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name("gleaner-progress".into()).spawn_scoped(scope, body);
    let refused = |error| Failure::work(format!("no thread to tell the progress: {}", why_refused(&error)));
    thread.map(drop).map_err(refused)
}

fn goes_on(ended: &Receiver<()>, every: Duration) -> bool {
    ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
}

/// Lines for other programs. The last one comes after the end, so that no item is missing from it.
fn print_progress(progress: &Progress, every: Duration, name: Option<&str>, ended: &Receiver<()>) {
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    loop {
        let goes_on = goes_on(ended, every);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let at_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        // In one piece: others may write to the same file.
        let line = format!("progress {at_ns} {}{name}\n", progress.items());
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        // Whoever read this may have gone; the work goes on.
        if !goes_on || written.is_err() {
            return;
        }
    }
}

/// A line for a person at a terminal.
fn show_progress(stop: Stop, progress: &Progress, ended: &Receiver<()>) {
    let (bar, template) = match stop {
        Stop::Items(items) => (ProgressBar::new(items), "  {pos}/{len} items, {per_sec} [{bar:30}] {left}"),
        _ => (ProgressBar::no_length(), "  {pos} items, {per_sec}, {elapsed}"),
    };
    form(&bar, template);
    while goes_on(ended, SHOWN_EVERY) {
        bar.set_position(progress.items());
    }
    bar.finish_and_clear();
}

fn report(plan: &Plan, outcome: &Outcome) -> WorkloadReport {
    WorkloadReport {
        schema: WorkloadReport::SCHEMA.to_owned(),
        name: plan.program.to_string(),
        threads: plan.threads as u64,
        threads_total: outcome.threads_total as u64,
        granularity_ns: plan.iterations.saturating_mul(1_000) / ITERATIONS_PER_US,
        granularity_iterations: plan.iterations,
        seed: plan.seed,
        items: outcome.items,
        wall_ns: outcome.wall.0,
        items_per_second: outcome.items as f64 * 1e9 / outcome.wall.0.max(1) as f64,
        checksum: format!("{:016x}", outcome.checksum),
        ended_by: match outcome.ended {
            Ended::Items => "items",
            Ended::Time => "time",
            Ended::Told => "signal",
        }
        .to_owned(),
        latency: outcome.latency.as_ref().map(latency),
        holding: outcome.holding.as_ref().map(latency),
        send_delay: outcome.send_delay.as_ref().map(latency),
        errors: outcome.errors,
        voluntary_switches: outcome.usage.voluntary_switches,
        involuntary_switches: outcome.usage.involuntary_switches,
        cpu_time_ns: outcome.usage.cpu_time.0,
    }
}

fn latency(summary: &LatencySummary) -> LatencyReport {
    LatencyReport {
        n: summary.n,
        mean_ns: summary.mean_ns,
        p50_ns: summary.p50.0,
        p90_ns: summary.p90.0,
        p99_ns: summary.p99.0,
        p999_ns: summary.p999.0,
        max_ns: summary.max.0,
    }
}

/// What each program does and whom it stands for.
fn list() -> String {
    let mut text = String::new();
    for program in Program::ALL {
        let about = program.description();
        let default = Nanos(about.iterations * 1_000 / ITERATIONS_PER_US);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:14}{}", about.name, about.meaning);
        let _ = writeln!(text, "{:14}stands for {}", "", about.stands_for);
        let _ = writeln!(text, "{:14}item: {}; --threads: {}; granularity {default}", "", about.item, about.threads);
    }
    text
}
