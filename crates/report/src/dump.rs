//! Lines of `gleaner dump`: each record of a capture as JSON, or in words.

use crate::replay::DamageRecord;
use crate::run::DecisionRecord;
use crate::text::{percent, time};
use gleaner_model::{Decision, Nanos, Source, VcpuWindow, Window};
use serde::Serialize;
use std::fmt;

/// One line. The first of each segment is `machine`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum DumpLine {
    /// A segment begins.
    Machine(DumpMachine),
    /// A group begins, or is known.
    Group(DumpGroup),
    Window(DumpWindow),
    Decision(DumpDecision),
    /// What else was told.
    Event {
        /// When the last window ended.
        at_ns: u64,
        text: String,
    },
    /// Something is missing here.
    Damage(DamageRecord),
    /// There is no more: `stopped`, or `full`.
    End {
        why: String,
    },
}

/// Where it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpMachine {
    pub schema: String,
    /// The gleaner that recorded it.
    pub gleaner: String,
    pub kernel: String,
    /// The vCPUs that it could use, as the kernel lists them.
    pub vcpus: String,
    /// When, in seconds since 1970.
    pub began_unix_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpGroup {
    /// Its name.
    pub group: String,
    /// Since when this is known of it.
    pub at_ns: u64,
    pub policy: String,
    pub profile: String,
    /// The parameters that are not the defaults, as a file would have them.
    pub params: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DumpWindow {
    pub group: String,
    /// When it ended.
    pub at_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// `bpf` or `procfs`.
    pub source: &'static str,
    /// Whether decide was told of it; not while another group tries something.
    pub decided: bool,
    /// The group's threads.
    pub threads: u64,
    /// Of them, born in it.
    pub new_threads: u64,
    pub cpu_time_ns: u64,
    pub voluntary_switches: u64,
    /// Their preemptions.
    pub involuntary_switches: u64,
    /// What the program got done; null where it does not tell.
    pub progress: Option<u64>,
    /// Idle periods that began; null where unknown.
    pub idle_entries: Option<u64>,
    /// Idle tasks entered; null where unknown.
    pub halts: Option<u64>,
    pub vcpus: Vec<DumpVcpu>,
}

/// A vCPU over a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpVcpu {
    pub vcpu: u32,
    /// At work, for whomever.
    pub busy_ns: u64,
    /// Idle and kept awake.
    pub retained_ns: u64,
    /// Idle.
    pub halted_ns: u64,
    /// The hypervisor had it.
    pub steal_ns: u64,
    /// Idle periods that began; null where unknown.
    pub idle_entries: Option<u64>,
    /// The median idle length; null without BPF.
    pub l_idle_ns_p50: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpDecision {
    pub group: String,
    #[serde(flatten)]
    pub decision: DecisionRecord,
}

impl DumpMachine {
    pub const SCHEMA: &'static str = "gleaner.dump/1";
}

impl DumpWindow {
    pub fn of(group: &str, decided: bool, window: &Window) -> Self {
        let vcpu = |vcpu: &VcpuWindow| DumpVcpu {
            vcpu: vcpu.id.0,
            busy_ns: vcpu.busy.0,
            retained_ns: vcpu.retained.0,
            halted_ns: vcpu.halted.0,
            steal_ns: vcpu.steal.0,
            idle_entries: vcpu.idle_entries,
            l_idle_ns_p50: vcpu.l_idle.as_ref().and_then(|lengths| lengths.quantile(0.5)).map(|length| length.0),
        };
        let known = |of: fn(&VcpuWindow) -> Option<u64>| window.vcpus.iter().map(of).sum::<Option<u64>>();
        Self {
            group: group.to_owned(),
            at_ns: window.at.0,
            length_ns: window.length.0,
            source: match window.source {
                Source::Bpf => "bpf",
                Source::Procfs => "procfs",
            },
            decided,
            threads: window.group.threads,
            new_threads: window.group.new_threads,
            cpu_time_ns: window.group.cpu_time.0,
            voluntary_switches: window.group.voluntary_switches,
            involuntary_switches: window.group.involuntary_switches,
            progress: window.group.progress,
            idle_entries: known(|vcpu| vcpu.idle_entries).or(window.idle_entries),
            halts: known(|vcpu| vcpu.halts).or(window.halts),
            vcpus: window.vcpus.iter().map(vcpu).collect(),
        }
    }
}

impl DumpDecision {
    pub fn of(group: &str, decision: &Decision) -> Self {
        Self { group: group.to_owned(), decision: DecisionRecord::from(decision) }
    }
}

impl fmt::Display for DumpLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(DumpMachine { gleaner, kernel, vcpus, .. }) => {
                write!(f, "recorded by gleaner {gleaner} on Linux {kernel}, vCPUs {vcpus}")
            }
            Self::Group(DumpGroup { group, at_ns, policy, profile, params }) => {
                let params = [&[String::new()], &params[..]].concat().join(", ");
                write!(f, "{:>7}  {group}: policy {policy}, profile {profile}{params}", time(*at_ns))
            }
            Self::Window(of) => of.fmt(f),
            Self::Decision(DumpDecision { group, decision }) => {
                let vcpu = decision.vcpu.map(|vcpu| format!(" vCPU {vcpu}")).unwrap_or_default();
                let DecisionRecord { at_ns, action, reason, .. } = decision;
                write!(f, "{:>7}  {group}: {action}{vcpu}: {reason}", time(*at_ns))
            }
            Self::Event { at_ns, text } => write!(f, "{:>7}  {text}", time(*at_ns)),
            Self::Damage(damage) => write!(f, "{damage}"),
            Self::End { why } => match why.as_str() {
                "full" => write!(f, "the file is as long as it may be: recording stopped"),
                _ => write!(f, "recording ended"),
            },
        }
    }
}

impl fmt::Display for DumpWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, threads, voluntary_switches, .. } = self;
        let (at, length) = (time(self.at_ns), time(self.length_ns));
        let cpus = Nanos(self.cpu_time_ns).share_of(Nanos(self.length_ns));
        let all = (self.length_ns as f64 * self.vcpus.len() as f64).max(1.0);
        let share =
            |of: fn(&DumpVcpu) -> u64| percent(self.vcpus.iter().map(of).fold(0, u64::saturating_add) as f64 / all);
        let (busy, retained) = (share(|vcpu| vcpu.busy_ns), share(|vcpu| vcpu.retained_ns));
        let (halted, stolen) = (share(|vcpu| vcpu.halted_ns), share(|vcpu| vcpu.steal_ns));
        write!(
            f,
            "{at:>7}  {group}: {length} window, {threads} threads, {cpus:.2} CPUs, {voluntary_switches} switches; vCPUs \
             {busy} busy, {retained} kept awake, {halted} halted, {stolen} stolen"
        )?;
        if self.decided { Ok(()) } else { write!(f, " (another group tries something)") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, VcpuId};

    fn window() -> Window {
        let vcpu = VcpuWindow { busy: Nanos(25), halted: Nanos(75), halts: Some(2), ..VcpuWindow::new(VcpuId(0)) };
        Window {
            at: Nanos(1_000),
            length: Nanos(100),
            source: Source::Procfs,
            vcpus: vec![vcpu],
            idle_entries: Some(3),
            halts: None,
            group: GroupWindow { threads: 2, cpu_time: Nanos(20), voluntary_switches: 7, ..GroupWindow::default() },
        }
    }

    #[test]
    fn a_window_is_a_line_of_json_and_of_text() {
        let line = DumpLine::Window(DumpWindow::of("a,b", true, &window()));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!((json["what"].as_str(), json["vcpus"][0]["busy_ns"].as_u64()), (Some("window"), Some(25)));
        assert_eq!(json["progress"], serde_json::Value::Null);
        let text = line.to_string();
        assert!(text.contains("a,b: 100ns window, 2 threads, 0.20 CPUs") && text.contains("25.0 % busy"), "{text}");
    }
}
