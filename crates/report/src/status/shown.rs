//! What `gleaner.status/1` shows, and what `gleaner explain` says of groups, a vCPU and the host agent.

use super::{StatusGroup, StatusHost, StatusReport, StatusTrial, StatusVm, StatusWaiting};
use crate::run::DecisionRecord;
use crate::show::{Document, Part, Row, Shown, fact, facts, line, notes, table};
use crate::text::{count, percent, time};
use crate::told::told;
use crate::verify::VerifiedFile;
use gleaner_model::{CpuSet, Nanos, VcpuId};
use std::fmt;

fn document() -> Document {
    Document { indent: "  ", ..Document::new("The daemon") }
}

impl Shown for StatusReport {
    fn document(&self) -> Document {
        let mut document = document();
        let what = if self.dry_run { ", which changes nothing (dry run)" } else { "" };
        let files = if self.configuration.is_empty() { "no file".to_owned() } else { self.configuration.join(", ") };
        document.both([
            line(format!("gleaner {} as process {}, up {}{what}", self.version, self.pid, time(self.up_ns))),
            line(format!("  configured by {files}")),
        ]);
        document.both(
            self.reload_error
                .iter()
                .map(|error| fact("RELOAD", format!("failed, the earlier configuration counts: {error}"))),
        );
        let by = self.retention.as_deref().unwrap_or("nothing");
        let all = if self.keeps_all_awake() { ", which makes all poll" } else { "" };
        let awake: CpuSet = self.retaining.iter().map(|vcpu| VcpuId(vcpu.vcpu)).collect();
        let awake = if awake.is_empty() { "none".to_owned() } else { awake.to_string() };
        let bridged = time(self.retained_ns);
        document.both(line(format!("  vCPUs kept awake: {awake}, by {by}{all}; {bridged} of idle time bridged")));
        document.both(self.differences());
        document.both(line(format!("  observing takes {}", self.cost_in_words())));
        document.both(self.host.as_ref().map(|host| line(format!("  {host}"))));
        if self.groups.is_empty() {
            let nothing = "  nothing of what the configuration names runs";
            document.both(self.host.is_none().then(|| line(nothing)));
            document.both(waiting(&self.waiting));
            return document;
        }
        document.both(line(""));
        let (shown, idle) = self.by_what_happens();
        document.both(table("", shown.into_iter().map(|group| group.cells(self.up_ns))));
        let all = "gleaner explain GROUP, gleaner status --json";
        document.both((idle > 0).then(|| line(format!("  {} idle now: {all}", count(idle as u64, "group")))));
        document.both(waiting(&self.waiting));
        document.both(notes(&self.warnings));
        document
    }
}

impl StatusReport {
    /// What the process takes of one CPU: lately, or that of observing since it began where it is too soon to say.
    pub fn cpu_share(&self) -> f64 {
        let since_it_began = || self.overhead_cpu_ns as f64 / self.up_ns.max(1) as f64;
        self.cost.cpu_share().unwrap_or_else(since_it_began)
    }

    fn cost_in_words(&self) -> String {
        let bpf = self.cost.bpf_share().map(|share| format!("; its BPF programs {} of one", percent(share)));
        let lately = format!(" (in the last {}{})", time(self.cost.elapsed_ns), bpf.unwrap_or_default());
        let paced = if self.windows_paced { ", as short as daemon.overhead allows" } else { "" };
        let (share, window) = (percent(self.cpu_share()), time(self.window_ns));
        format!("{share} of one CPU{lately}, windows of {window}{paced}")
    }

    /// Of all groups, those that wait as well.
    pub fn explain_all(&self) -> String {
        let mut document = document();
        document.both(self.differences());
        document.both(self.groups.iter().flat_map(|group| group.parts(self.up_ns)));
        document.both(waiting(&self.waiting));
        document.to_string()
    }

    pub fn explain_waiting(&self, name: &str) -> String {
        StatusWaiting::lines(self.waiting.iter().filter(|waiting| waiting.name == name))
    }

    /// Of all that waits; empty where nothing does.
    pub fn waiting_in_words(&self) -> String {
        StatusWaiting::lines(&self.waiting)
    }

    /// Of some groups: how they stand, the newest decisions, what would change it.
    pub fn explain(&self, groups: &[&StatusGroup]) -> String {
        let mut document = document();
        document.both(self.differences());
        document.both(groups.iter().flat_map(|group| group.parts(self.up_ns)));
        document.to_string()
    }

    /// What somebody else has changed, a line each.
    fn differences(&self) -> impl Iterator<Item = Part> {
        self.settings_differ.iter().map(VerifiedFile::difference).map(|differs| fact("DIFFERS", differs))
    }

    /// Whether what is set for one vCPU holds for all.
    fn keeps_all_awake(&self) -> bool {
        self.retention.as_deref() == Some("haltpoll") && !self.retaining.is_empty()
    }

    /// Whether there is such a vCPU, as far as the daemon can tell.
    pub fn has_vcpu(&self, vcpu: u32) -> bool {
        let seen = self.times.vcpus.iter().any(|times| times.vcpu == vcpu);
        seen || u64::from(vcpu) < self.machine.vcpus
    }

    /// Of one vCPU: whether it is kept awake, who asked, and what was last decided for it.
    pub fn explain_vcpu(&self, vcpu: u32) -> String {
        let stands = match self.retaining.iter().find(|found| found.vcpu == vcpu) {
            Some(found) => format!("vCPU {vcpu} is kept awake for {}", Nanos(found.timeout_ns)),
            None if self.keeps_all_awake() => {
                format!("vCPU {vcpu} polls too: haltpoll is the whole machine's; nothing was decided for it")
            }
            None => format!("vCPU {vcpu} halts as the kernel likes"),
        };
        let of_it = self.groups.iter().filter_map(|group| {
            let mut newest = group.decisions.iter().rev();
            let found = newest.find(|decision| decision.vcpu.is_none_or(|of| of == vcpu))?;
            let DecisionRecord { at_ns, action, reason, .. } = found;
            Some(format!("  {}: {action} {} ago: {reason}", group.name, ago(self.up_ns, *at_ns)))
        });
        let mut document = document();
        document.both(std::iter::once(stands).chain(of_it).map(line));
        document.to_string()
    }
}

fn waiting(waiting: &[StatusWaiting]) -> impl Iterator<Item = Part> {
    waiting.iter().map(|waiting| fact("waiting", waiting.to_string()))
}

impl StatusWaiting {
    /// A line each.
    pub fn lines<'a>(waiting: impl IntoIterator<Item = &'a Self>) -> String {
        let mut document = document();
        document.both(waiting.into_iter().map(|waiting| fact("waiting", waiting.to_string())));
        document.to_string()
    }
}

impl fmt::Display for StatusWaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, for {}", self.name, self.waits_for)
    }
}

fn ago(now_ns: u64, at_ns: u64) -> String {
    time(now_ns.saturating_sub(at_ns))
}

impl StatusTrial {
    /// What all pairs say.
    pub(crate) fn rate(&self) -> Option<String> {
        let shown = if self.is_shown() { "" } else { ": no difference is shown" };
        let (ratio, [low, high]) = self.rate_ratio.zip(self.rate_range)?;
        Some(format!("{ratio:.2} times the rate, {low:.2} to {high:.2} in {}{shown}", count(self.pairs, "pair")))
    }

    fn words(&self, now_ns: u64) -> Vec<String> {
        let rate = self.rate();
        let next = self.next(now_ns).map(|next| format!("tried again {next}"));
        // A reason of a difference that is not shown would say one.
        let what = if self.is_shown() { &self.reason } else { "what bridging idle periods brings" };
        let said = format!("{} ago: {what}", ago(now_ns, self.at_ns));
        std::iter::once(said).chain(rate).chain(next).collect()
    }

    fn won(&self) -> String {
        match (self.rate_ratio, self.pays) {
            (Some(_), _) if !self.is_shown() => "not shown".to_owned(),
            (Some(ratio), true) => format!("x{ratio:.2}"),
            (None, true) => "yes".to_owned(),
            (_, false) => "no gain".to_owned(),
        }
    }
}

impl StatusGroup {
    fn cells(&self, now_ns: u64) -> Row {
        let managed = now_ns.saturating_sub(self.since_ns);
        Row::default()
            .text("group", &self.name)
            .text("profile", &self.profile)
            .time("managed", managed)
            .fixed("CPUs used", self.cpu_time_ns as f64 / managed.max(1) as f64, 2)
            .number("threads", self.threads_max)
            .text("seen by", &self.observer)
            .number("won", self.trial.as_ref().map(StatusTrial::won))
            .text("now", &self.state)
    }

    fn parts(&self, now_ns: u64) -> Vec<Part> {
        let title = format!("{} ({}), profile {}, policy {}", self.name, self.target, self.profile, self.policy);
        let mut parts = vec![line(title), fact("now", &self.state), fact("seen by", &self.observer)];
        parts.extend(self.idle_ended_by.map(|ended| fact("idle", ended.to_string())));
        parts.extend(self.trial.as_ref().and_then(|trial| facts("tried", trial.words(now_ns))));
        let turns = |tried: &StatusTrial| fact("turns", format!("{} ago: {}", ago(now_ns, tried.at_ns), tried.reason));
        parts.extend(self.turns.as_ref().map(turns));
        parts.extend(
            told(&self.decisions)
                .iter()
                .rev()
                .map(|told| line(format!("  {:>7} ago  {told}", ago(now_ns, told.at_ns())))),
        );
        let left_out = self.decisions_count.saturating_sub(self.decisions.len() as u64);
        parts.extend((left_out > 0).then(|| fact("", format!("and {} before", count(left_out, "decision")))));
        parts.extend(self.would_change.iter().map(|would| fact("changes if", would)));
        parts
    }
}

impl StatusHost {
    /// How it stands: each VM, the newest decisions.
    pub fn explain(&self) -> String {
        let mut document = document();
        document.both(line(self.to_string()));
        document.both(self.vms.iter().map(|StatusVm { name, vm, vcpus, slice_ns }| {
            let slice = slice_ns.map_or_else(|| "its own slice".to_owned(), |ns| format!("slice {}", Nanos(ns)));
            line(format!("  {name} ({vm}), {}: {slice}", count(*vcpus, "vCPU")))
        }));
        document.both(self.decisions.iter().map(|decision| {
            let name = self.vms.iter().find(|vm| vm.vm == decision.vm).map_or("a VM that has gone", |vm| &vm.name);
            let (ago, slice) = (ago(self.up_ns, decision.at_ns), time(decision.slice_ns));
            line(format!("  {ago:>7} ago  {name}: {slice}: {}", decision.reason))
        }));
        document.both(notes(&self.warnings));
        document.to_string()
    }
}

impl fmt::Display for StatusHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why_not) = &self.why_not {
            return write!(f, "host agent: {why_not}");
        }
        let mut slices: Vec<u64> = self.vms.iter().filter_map(|vm| vm.slice_ns).collect();
        slices.sort_unstable();
        slices.dedup();
        let slices: Vec<String> = slices.into_iter().map(time).collect();
        let slices = if slices.is_empty() { "none set".to_owned() } else { slices.join(", ") };
        write!(f, "host agent, {}: {}, slices {slices}", self.policy, count(self.vms.len() as u64, "VM"))
    }
}
