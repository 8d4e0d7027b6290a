//! What `run` has to say at its end: a snapshot, as `gleaner.run/1`.

use super::options::Options;
use gleaner_decide::guest::NoStep;
use gleaner_model::{CpuSet, Nanos, RetainMeans, Source, VcpuId};
use gleaner_report::{DecisionRecord, LengthStats, Means, ObservedLengths, RunReport, StatusTrial, VcpuTimes};
use gleaner_runtime::{Config, GroupSnapshot, LengthSummary, Snapshot, VcpuTime, Warning};
use gleaner_settings::word;
use std::ffi::OsString;

/// The report of a program that ran for `wall`. `ended`: how everything stood at its end, and whether it was undone;
/// `None` where nothing ran beside the program.
pub fn report(
    options: &Options,
    vcpus: &CpuSet,
    (wall, exit_status): (Nanos, i32),
    ended: Option<(Snapshot, bool)>,
) -> RunReport {
    let mut report = unobserved(&options.config, &options.command, vcpus, (wall, exit_status));
    if let Some((snapshot, restored)) = ended {
        fill(&mut report, &options.config, &snapshot);
        report.restored = restored;
    }
    report
}

/// What a daemon tells of the one group in `snapshot`. What only its runner knows is left out: see [`joined`].
pub fn of_group(config: &Config, snapshot: &Snapshot) -> RunReport {
    let mut report = unobserved(config, &[], &snapshot.vcpus, (Nanos::ZERO, 0));
    fill(&mut report, config, snapshot);
    report
}

/// The report of a program that a daemon managed, and told this of.
pub fn joined(options: &Options, vcpus: &CpuSet, (wall, exit_status): (Nanos, i32), told: RunReport) -> RunReport {
    let own = unobserved(&options.config, &options.command, vcpus, (wall, exit_status));
    let RunReport { command, policy, profile, wall_ns, exit_status, vcpus, .. } = own;
    RunReport { command, policy, profile, wall_ns, exit_status, vcpus, ..told }
}

fn unobserved(config: &Config, command: &[OsString], vcpus: &CpuSet, (wall, exit_status): (Nanos, i32)) -> RunReport {
    RunReport {
        schema: RunReport::SCHEMA.to_owned(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        policy: config.group.policy().name().to_owned(),
        profile: if config.group.retain_for.is_some() { "custom".to_owned() } else { word(&config.group.profile()) },
        wall_ns: wall.0,
        exit_status,
        vcpus: vcpus.len() as u64,
        active_vcpus_mean: vcpus.len() as f64,
        restored: true,
        ..RunReport::default()
    }
}

fn fill(report: &mut RunReport, config: &Config, snapshot: &Snapshot) {
    report.overhead_cpu_ns = snapshot.overhead.0;
    report.retained_ns = snapshot.retained.0;
    report.guard_trips = snapshot.guard_trips;
    let retention = snapshot.retention.as_ref().map(|retention| retention.means);
    report.warnings = snapshot.warnings.iter().map(Warning::to_string).collect();
    report.means = means(snapshot);
    // One program is one group.
    let Some(group) = snapshot.groups.first() else { return };
    let totals = &group.totals;
    report.timeout_ns = group.timeout.map(|timeout| timeout.0);
    report.timeout_from = retention.map(|means| timeout_from(config, means, group));
    let steps = config.group.policy().consolidates();
    report.no_step_because = steps.then(|| no_step_because(&group.explanation.no_step_windows)).flatten();
    report.retention_cost_ratio = group.explanation.retention_cost_ratio;
    let trial = group.explanation.trial.as_ref();
    report.trial = trial.map(|last| StatusTrial::of(last.at, last.pays, &last.reason, &last.rates, None));
    report.steal_ns = snapshot.steal_is_reported.then_some(totals.steal.0);
    report.cpu_time_ns = Some(totals.cpu_time.0);
    report.voluntary_switches = Some(totals.voluntary_switches);
    report.involuntary_switches = Some(totals.involuntary_switches);
    report.cross_wakeups = totals.cross_wakeups();
    report.idle_entries = totals.idle_entries();
    report.halts = totals.halts();
    report.idle_ended_by = totals.idle_ended_by().map(Into::into);
    report.threads_max = totals.threads_max();
    report.active_vcpus_mean = totals.active_mean(usize::try_from(report.vcpus).unwrap_or(0));
    report.vcpu_times = totals.vcpus.iter().map(|(id, time)| vcpu_times(*id, time)).collect();
    report.lengths = lengths(group);
    report.windows = totals.windows;
    report.window_ns_mean = totals.observed.0.checked_div(totals.windows);
    report.decisions = group.decisions.iter().map(DecisionRecord::from).collect();
    report.decisions_left_out = group.decisions_left_out;
}

/// Where the time-out comes from, in words.
fn timeout_from(config: &Config, means: RetainMeans, group: &GroupSnapshot) -> String {
    if config.group.retain_for.is_some() {
        return "as given by --retain-for".to_owned();
    }
    let profile = word(&config.group.profile());
    let untried = group.explanation.retention_stopped && group.explanation.trial.is_none();
    let untried = if untried { ", once a trial has shown that it pays" } else { "" };
    format!("profile {profile}, kept awake by {means}{untried}")
}

fn means(snapshot: &Snapshot) -> Means {
    let observer = if snapshot.source == Source::Bpf { "bpf" } else { "procfs" };
    let confined = snapshot.groups.first().is_some_and(|group| group.may_be_confined);
    let retention = snapshot.retention.as_ref();
    let by_thread = retention.filter(|retention| retention.means == RetainMeans::Yielding);
    Means {
        observer: Some(observer.to_owned()),
        placement: confined.then(|| "affinity".to_owned()),
        retention: retention.map(|retention| retention.means.name().to_owned()),
        yielding: by_thread.map(|retention| retention.detail.clone()),
    }
}

/// Why the policy took no step in most of the windows in which it took none.
fn no_step_because(reasons: &[(NoStep, u64)]) -> Option<String> {
    let windows: u64 = reasons.iter().map(|(_, windows)| windows).sum();
    reasons.first().map(|(why, times)| format!("{why} (in {times} of {windows} windows without a step)"))
}

fn vcpu_times(id: VcpuId, time: &VcpuTime) -> VcpuTimes {
    VcpuTimes {
        vcpu: id.0,
        busy_ns: time.busy.0,
        retained_ns: time.retained.0,
        halted_ns: time.halted.0,
        steal_ns: time.steal.0,
    }
}

fn lengths(group: &GroupSnapshot) -> ObservedLengths {
    let stats = |length: Option<LengthSummary>| match length? {
        LengthSummary::Mean(mean) => LengthStats::from_mean(mean),
        LengthSummary::Distribution(all) => LengthStats::from_distribution(&all),
    };
    let lengths = group.totals.lengths();
    ObservedLengths {
        l_comp: stats(lengths.l_comp),
        g_comp: stats(lengths.g_comp),
        l_idle: stats(lengths.l_idle),
        wake_to_run: stats(lengths.wake_to_run),
    }
}
