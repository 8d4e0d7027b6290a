//! The loop: observe, decide, act, print; once a window.

use super::means::Means;
use super::news::News;
use super::options::Options;
use super::record::Record;
use super::turns::Turns;
use super::watch::{Seen, Watch};
use crate::failure::Failure;
use crate::host::kernel_notes;
use crate::interrupt::sleep_until;
use crate::output::say;
use gleaner_decide::host::HostPolicy;
use gleaner_model::{Nanos, SwitchPrice};
use gleaner_observe::ProcRoot;
use gleaner_report::{HostRunReport, decision_lines};
use gleaner_sys::{monotonic, thread_cpu_time};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Runs until the time is over or a signal came; undoes everything.
pub fn run(options: &Options, interrupted: &AtomicBool) -> Result<HostRunReport, Failure> {
    let mut record = Record::default();
    record.warnings.clone_from(&options.warnings);
    record.warnings.extend(kernel_notes());
    let mut watch = Watch::begin(ProcRoot::default(), &options.vms, &options.qmp)?;
    if let Some(why) = watch.refusal() {
        let why: String = why.chars().take(300).collect();
        record.warnings.push(format!("observing through /proc, which sees means but no distributions: {why}"));
    }
    if options.pause_exits
        && let Err(why) = watch.count_pause_exits()
    {
        record.warnings.push(format!("exits by PAUSE are not counted: {why}"));
    }
    let mut means = Means::begin(&watch, options, &mut record.warnings)?;
    record.warnings.extend(watch.news());
    let mut news = News::default();
    news.of(&mut record.warnings).iter().for_each(|warning| say(&format!("gleaner: {warning}")));
    let price = SwitchPrice { tick: means.tick(&options.params), ..options.price };
    let mut policy = HostPolicy::new(options.policy, options.params.clone(), price);
    let (began, cpu_before) = (Instant::now(), thread_cpu_time());
    let bar = progress_bar();
    let mut turns = options.in_turn.clone().map(Turns::new);
    let ended = windows(
        options,
        interrupted,
        &mut watch,
        &mut means,
        &mut policy,
        &mut turns,
        &mut record,
        &mut news,
        &bar,
        began,
    );
    bar.finish_and_clear();
    let overhead = thread_cpu_time() - cpu_before;
    let undone = means.end(&mut record.warnings);
    let stand = policy.explain();
    record.warnings.extend(record.unjudged(&stand));
    news.of(&mut record.warnings).iter().for_each(|warning| say(&format!("gleaner: {warning}")));
    ended?;
    let wall = Nanos::from(began.elapsed());
    let in_turn = turns.map(Turns::report);
    Ok(HostRunReport {
        in_turn,
        ..record.report(options, watch.source(), policy.price().tick, (wall, overhead), &stand, undone)
    })
}

#[allow(clippy::too_many_arguments)]
fn windows(
    options: &Options,
    interrupted: &AtomicBool,
    watch: &mut Watch,
    means: &mut Means,
    policy: &mut HostPolicy,
    turns: &mut Option<Turns>,
    record: &mut Record,
    news: &mut News,
    bar: &ProgressBar,
    began: Instant,
) -> Result<(), Failure> {
    let end = options.length.map(|length| began + length);
    let mut next = began;
    loop {
        next = (next + options.interval).max(Instant::now());
        let until = end.map_or(next, |end| end.min(next));
        if !sleep_until(until, interrupted) {
            return Ok(());
        }
        let mut seen = watch.window()?;
        seen.window.tick = means.measured_tick();
        let now = monotonic();
        let window = turns.as_ref().map_or_else(|| Some(seen.window.clone()), |turns| turns.of_policy(&seen.window));
        let decisions = window.as_ref().map(|window| policy.step(window)).unwrap_or_default();
        for line in decision_lines(&decisions) {
            bar.suspend(|| say(&line));
        }
        let over = turns.as_mut().is_some_and(|turns| !turns.add(&seen, now));
        let slices = turns.as_ref().map(|turns| turns.slices(policy.slices(), watch.vms()));
        means.apply(watch.vms(), slices.as_ref().unwrap_or(policy.slices()), &mut record.warnings)?;
        record.warnings.extend(watch.news());
        record.warn_of_unfair(&policy.unfair(), seen.window.at, &options.params);
        for warning in news.of(&mut record.warnings) {
            bar.suspend(|| say(&format!("gleaner: {warning}")));
        }
        if let Some(window) = window {
            record.add(&Seen { window, ..seen }, &decisions, watch.vms());
        }
        let line = record.line(Nanos::from(began.elapsed()), policy.slices());
        bar.set_message(turns.as_ref().map_or(line.clone(), |turns| format!("{line}; {}", turns.word())));
        if over {
            return Ok(());
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("  {msg}") {
        bar.set_style(style);
    }
    bar
}
