//! A snapshot as `gleaner.status/1`: how each group stands, and what would change it.

use crate::groups::Adopted;
use gleaner_decide::guest::{
    ContentionGuard, Explanation, TRIAL_AGAIN_MAX, TRIAL_AGAIN_MIN, TRIAL_GAIN_MIN, TRIAL_WAKEUPS_MIN, TrialRecord,
};
use gleaner_model::{CpuSet, Decision, Nanos, Policy, Source, VcpuId};
use gleaner_report::{
    DecisionRecord, StatusCost, StatusGroup, StatusHost, StatusMachine, StatusReport, StatusTrial, StatusVcpu,
    StatusWaiting, Told, VerifiedFile, told,
};
use gleaner_runtime::{GroupSnapshot, Snapshot, Warning};
use gleaner_settings::{Profile, word};

/// How a group stands that is held.
const HELD: &str = "left alone: held by hand";
const THEIRS: &str = "left alone: somebody else has set what kept vCPUs awake";
const RESTART: &str = "the daemon is restarted; `gleaner verify` says what somebody has set";
/// Lines of decisions told of each group; a trial is one.
const NEWEST: usize = 30;
/// ... of so many decisions at most.
const NEWEST_DECISIONS: usize = 120;

/// What the service knows beside the snapshot.
pub(crate) struct Facts {
    /// Since the start; the snapshot's time stands still without a group.
    pub up: Nanos,
    pub dry_run: bool,
    pub files: Vec<String>,
    pub reload_error: Option<String>,
    /// Of the hypervisor, where there is one.
    pub hypervisor: Option<String>,
    pub host: Option<StatusHost>,
    /// What is named, and is not managed.
    pub waiting: Vec<StatusWaiting>,
    /// When the daemon began, since 1970.
    pub began_unix: Nanos,
    /// What was set, and is not so any more.
    pub differ: Vec<VerifiedFile>,
}

pub(crate) fn report(snapshot: &Snapshot, groups: &[Adopted], facts: Facts) -> StatusReport {
    let of = |group: &GroupSnapshot| groups.iter().find(|adopted| adopted.id == group.id);
    let groups = snapshot.groups.iter().filter_map(|group| Some(status(of(group)?, group, facts.dry_run, snapshot)));
    StatusReport {
        schema: StatusReport::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        up_ns: snapshot.at.max(facts.up).0,
        began_unix_ns: facts.began_unix.0,
        dry_run: facts.dry_run,
        machine: StatusMachine {
            hypervisor: facts.hypervisor,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            vcpus: snapshot.vcpus.len() as u64,
        },
        observer: observer(snapshot.source).to_owned(),
        times: figures::times(&snapshot.times, snapshot.steal_is_reported),
        recent: figures::times(&snapshot.recent, snapshot.steal_is_reported),
        settings_differ: facts.differ,
        groups: groups.collect(),
        waiting: facts.waiting,
        host: facts.host,
        configuration: facts.files,
        reload_error: facts.reload_error,
        window_ns: snapshot.window_length.0,
        windows_paced: snapshot.is_paced,
        overhead_cpu_ns: snapshot.overhead.0,
        cost: StatusCost {
            elapsed_ns: snapshot.cost.elapsed.0,
            cpu_ns: snapshot.cost.cpu.0,
            bpf_ns: snapshot.cost.bpf.map(|bpf| bpf.0),
        },
        retention: snapshot.retention.as_ref().map(|retention| retention.means.name().to_owned()),
        retained_ns: snapshot.retained.0,
        guard_trips: snapshot.guard_trips,
        retaining: snapshot.retaining.iter().map(|(vcpu, timeout)| vcpu_of(*vcpu, *timeout)).collect(),
        warnings: snapshot.warnings.iter().map(Warning::to_string).collect(),
    }
}

fn vcpu_of(vcpu: VcpuId, timeout: Nanos) -> StatusVcpu {
    StatusVcpu { vcpu: vcpu.0, timeout_ns: timeout.0 }
}

fn status(adopted: &Adopted, group: &GroupSnapshot, dry_run: bool, machine: &Snapshot) -> StatusGroup {
    let settings = &adopted.entry.settings;
    let (state, would_change) = if group.held {
        (HELD.to_owned(), vec![format!("somebody releases it: gleaner release {}", adopted.name)])
    } else if machine.is_left_to_others && settings.policy().retains() {
        (THEIRS.to_owned(), vec![RESTART.to_owned()])
    } else {
        let explanation = &group.explanation;
        (state(explanation, settings.policy(), dry_run), would_change(explanation, adopted, dry_run))
    };
    StatusGroup {
        name: adopted.name.clone(),
        target: adopted.target.to_string(),
        profile: word(&settings.profile()),
        policy: settings.policy().name().to_owned(),
        observer: observer(group.source).to_owned(),
        since_ns: group.since.0,
        vcpus: group.explanation.vcpus as u64,
        state,
        held: group.held,
        active: numbers(&group.active),
        // What it wants does not count while it is held.
        retaining: if group.held { Vec::new() } else { numbers(&group.explanation.retaining) },
        timeout_ns: group.timeout.map(|timeout| timeout.0),
        cpu_time_ns: group.totals.cpu_time.0,
        voluntary_switches: group.totals.voluntary_switches,
        threads_max: group.totals.threads_max(),
        idle_entries: group.totals.idle_entries(),
        idle_ended_by: group.totals.idle_ended_by().map(Into::into),
        lengths: figures::lengths(&group.totals.lengths()),
        recent: figures::recent(&group.recent),
        trial: group.explanation.trial.as_ref().map(|record| trial(record, group.explanation.next_trial)),
        turns: group.explanation.turns.as_ref().map(|record| trial(record, None)),
        decisions_count: (group.decisions.len() + adopted.holds.len()) as u64 + group.decisions_left_out,
        decisions: newest(&group.decisions, &adopted.holds),
        would_change,
    }
}

/// The newest lines of decisions, and of what somebody ordered between them.
fn newest(decisions: &[Decision], holds: &[DecisionRecord]) -> Vec<DecisionRecord> {
    let from = decisions.len().saturating_sub(NEWEST_DECISIONS);
    let mut all: Vec<DecisionRecord> = decisions[from..].iter().map(DecisionRecord::from).collect();
    all.extend_from_slice(holds);
    all.sort_by_key(|decision| decision.at_ns);
    let kept: usize = told(&all).iter().rev().take(NEWEST).map(Told::decisions).sum();
    all.split_off(all.len() - kept)
}

/// What somebody ordered, as a decision.
pub(crate) fn ordered(at: Nanos, held: bool) -> DecisionRecord {
    let (action, reason) = if held {
        ("hold", "somebody ordered it (gleaner hold)")
    } else {
        ("manage", "somebody ordered it (gleaner release)")
    };
    DecisionRecord { at_ns: at.0, action: action.to_owned(), vcpu: None, reason: reason.to_owned() }
}

fn numbers(vcpus: &CpuSet) -> Vec<u32> {
    vcpus.iter().map(|vcpu| vcpu.0).collect()
}

fn observer(source: Source) -> &'static str {
    match source {
        Source::Bpf => "bpf",
        Source::Procfs => "procfs",
    }
}

fn trial(record: &TrialRecord, next: Option<Nanos>) -> StatusTrial {
    StatusTrial::of(record.at, record.pays, &record.reason, &record.rates, next)
}

/// How it stands, in words.
fn state(explanation: &Explanation, policy: Policy, dry_run: bool) -> String {
    let retaining = &explanation.retaining;
    if !policy.retains() {
        return "watched".to_owned();
    }
    let kept = if dry_run { "would be kept awake" } else { "kept awake" };
    if is_on_one(explanation) {
        let awake = if retaining.is_empty() { String::new() } else { format!(", {kept}") };
        return format!("on vCPU {}{awake}: its threads take turns", explanation.active);
    }
    if !retaining.is_empty() {
        return format!("vCPUs {retaining} {kept}");
    }
    if explanation.retention_stopped && explanation.trial.is_none() {
        return "left alone: until a trial has shown that keeping vCPUs awake pays".to_owned();
    }
    if explanation.retention_stopped {
        return "left alone: keeping vCPUs awake does not pay".to_owned();
    }
    if !explanation.contended.is_empty() {
        return format!("left alone: the host is contended (vCPUs {})", explanation.contended);
    }
    "left alone: its idle periods are too long to bridge".to_owned()
}

/// Whether it was put on one vCPU because that won.
fn is_on_one(explanation: &Explanation) -> bool {
    explanation.active.len() == 1 && explanation.vcpus > 1 && explanation.turns.as_ref().is_some_and(|last| last.pays)
}

/// What would change it, with the numbers that are compared.
fn would_change(explanation: &Explanation, adopted: &Adopted, dry_run: bool) -> Vec<String> {
    let settings = &adopted.entry.settings;
    let params = settings.params();
    if !settings.policy().retains() {
        return vec!["its profile is another than observe-only, or its policy retain".to_owned()];
    }
    let mut lines = Vec::new();
    if dry_run {
        lines.push("the daemon is started without --dry-run, with a configuration that names it".to_owned());
    }
    if is_on_one(explanation) {
        lines.push(format!(
            "a trial finds several vCPUs faster; its threads run side by side, or hand over {} times as seldom",
            params.tuning.granularity_change_factor
        ));
        return lines;
    }
    if !explanation.retaining.is_empty() {
        lines.push(format!(
            "the host takes more than {:.0} % of a vCPU's time for {} ms: that one is let go for at least {}",
            params.steal_share_stop * 100.0,
            ContentionGuard::STEAL_SPAN.0 / 1_000_000,
            ContentionGuard::HOLD_OFF_MIN
        ));
        if params.retention_trials {
            let gain = TRIAL_GAIN_MIN * 100.0;
            lines.push(match settings.profile() {
                Profile::Latency => "a trial finds that the program is slower for it".to_owned(),
                _ => format!("a trial finds less than {gain:.0} % more synchronizations a second than without"),
            });
        }
    }
    if !explanation.contended.is_empty() {
        lines.push(format!(
            "the stolen share of vCPUs {} falls below {:.0} %, once the guard's hold-off is over",
            explanation.contended,
            ContentionGuard::QUIET * 100.0
        ));
    }
    if explanation.retention_stopped && explanation.trial.is_none() {
        lines.push(format!(
            "a trial, once there are {} wake-ups in every window, finds more than {:.0} % more synchronizations a second",
            TRIAL_WAKEUPS_MIN,
            TRIAL_GAIN_MIN * 100.0
        ));
    } else if explanation.retention_stopped {
        lines.push(format!(
            "a trial, {} to {} after the last, finds more than {:.0} % more synchronizations a second; or its CPU use or \
             granularity changes, which begins anew",
            TRIAL_AGAIN_MIN,
            TRIAL_AGAIN_MAX,
            TRIAL_GAIN_MIN * 100.0
        ));
    }
    let short: CpuSet = explanation.active.difference(&explanation.retaining);
    let short = short.difference(&explanation.contended);
    if !explanation.retention_stopped && !short.is_empty() && settings.retain_for.is_none() {
        lines.push(format!("idle periods of vCPUs {short} get shorter, or its budget allows to bridge them"));
    }
    lines
}

mod figures;
#[cfg(test)]
mod tests;
