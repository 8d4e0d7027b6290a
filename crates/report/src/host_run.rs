//! `gleaner.host-run/1`: what the host agent gave the VMs, why, and what became of their waits.

use crate::show::{Document, Part, Row, Shown, bad, line, notes, table};
use crate::text::{count, percent, time};
use gleaner_model::{HostAction, HostDecision, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner host run` has to say at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRunReport {
    pub schema: String,
    /// `static` or `adaptive`.
    pub policy: String,
    /// The slice of policy `static`; null for `adaptive`.
    pub static_slice_ns: Option<u64>,
    /// How long the agent ran.
    pub wall_ns: u64,
    pub windows: u64,
    /// Mean length of a window; null where there was none.
    pub window_ns_mean: Option<u64>,
    /// `bpf` or `procfs`.
    pub observer: String,
    /// What the policy took a switch to cost.
    pub price: HostPrice,
    /// How slices were enforced, and what that cost.
    pub enforcement: HostEnforcement,
    /// Every VM that was managed, ascending by pid.
    pub vms: Vec<HostRunVm>,
    /// How far a VM's share was from its entitlement at most, at the end, as a share of it; null where nobody was
    /// continuously runnable beside others.
    pub unfair_worst_ratio: Option<f64>,
    /// How far from its entitlement a share may be (`unfair_share`).
    pub unfair_allowed_ratio: f64,
    /// What was decided, oldest first.
    pub decisions: Vec<HostDecisionRecord>,
    /// Decisions beyond the first thousand, which are not listed.
    pub decisions_left_out: u64,
    /// Sets of VMs that share pCPUs, at the end, and why their slice is what it is.
    pub sets: Vec<HostRunSet>,
    /// CPU time of observing and deciding.
    pub overhead_cpu_ns: u64,
    /// Everything that was weaker than it might be, and other things to know.
    pub warnings: Vec<String>,
    /// Whether all changes to the machine were undone.
    pub restored: bool,
    /// Of `--in-turn`: what the policy and slices for all came to, one after the other; null without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_turn: Option<HostInTurn>,
}

/// The policy and slices for all, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostInTurn {
    /// How long the policy had for itself first.
    pub lead_ns: u64,
    /// What each VM's vCPUs did in the turns of each, all together.
    pub figures: Vec<HostTurnFigures>,
    /// Every turn that was not cut short, oldest first; the first hundred thousand.
    pub turns: Vec<HostTurn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTurn {
    /// Counted from 0: in each pass everybody has one turn.
    pub pass: u32,
    /// The slice for all; null for the policy's.
    pub slice_ns: Option<u64>,
    /// When its slices were in force, on the host's CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// When it was over, likewise.
    pub until_ns: u64,
}

/// A VM in the turns of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostTurnFigures {
    /// The slice for all; null for the policy's.
    pub slice_ns: Option<u64>,
    pub vm: u32,
    /// What its vCPUs did.
    #[serde(flatten)]
    pub figures: HostVmFigures,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostPrice {
    /// The switch itself.
    pub direct_ns: u64,
    /// Refilling caches afterwards.
    pub refill_ns: u64,
    /// A ticker's wake-up that ends a slice; 0 where the kernel ends slices.
    pub tick_ns: u64,
    /// Where that is from, in words.
    pub from: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostEnforcement {
    /// `ticker`, `hrtick` (the kernel's own), or `none`.
    pub method: String,
    /// CPU time of tickers and of asking where vCPUs compete, as a share of one CPU.
    pub cpu_ratio: f64,
    pub ticks: u64,
    /// Times a ticker's period was stretched to stay within its budget.
    pub stretched: u64,
    /// Physical CPUs that ever had a ticker.
    pub pcpus: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRunVm {
    pub vm: u32,
    pub name: String,
    /// Its vCPUs, when last seen.
    pub vcpus: u64,
    /// When it was first seen.
    pub came_ns: u64,
    /// When it was found gone; null if it was there at the end.
    pub left_ns: Option<u64>,
    /// Its slices, oldest first.
    pub slices: Vec<HostSlice>,
    /// Before it had a slice of ours; null where it was not seen then.
    pub before: Option<HostVmFigures>,
    /// Since its slice changed last; null where it was not seen since.
    pub after: Option<HostVmFigures>,
    /// What its continuously runnable vCPUs got over what they were entitled to, at the end; null where it has none
    /// with company.
    pub share_ratio: Option<f64>,
    /// Whether that is further from 1 than `unfair_allowed_ratio`, and than one slice of so short a time.
    pub unfair: bool,
}

/// From a moment on, this slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostSlice {
    /// Since the agent began.
    pub at_ns: u64,
    pub slice_ns: u64,
}

/// What a VM's vCPUs did over some windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostVmFigures {
    pub observed_ns: u64,
    /// CPUs used.
    pub run_ratio: f64,
    /// vCPUs waiting for a CPU, on average.
    pub wait_ratio: f64,
    /// Wake-ups per second; null where unknown.
    pub wakeups_per_s: Option<f64>,
    /// Preemptions per second; null where unknown.
    pub preemptions_per_s: Option<f64>,
    /// From wake-up to running: median; null without BPF.
    pub wake_to_run_p50_ns: Option<u64>,
    /// The same: 99th percentile.
    pub wake_to_run_p99_ns: Option<u64>,
    /// Run intervals that ended by preemption: median, what the slice really was; null without BPF.
    pub delivered_p50_ns: Option<u64>,
    /// The same: 90th percentile.
    pub delivered_p90_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostDecisionRecord {
    /// Since the agent began.
    pub at_ns: u64,
    pub vm: u32,
    /// Its slice from now on.
    pub slice_ns: u64,
    pub reason: String,
}

impl From<&HostDecision> for HostDecisionRecord {
    fn from(decision: &HostDecision) -> Self {
        let HostAction::SetSlice { vm, slice } = decision.action;
        Self { at_ns: decision.at.0, vm: vm.0, slice_ns: slice.0, reason: decision.reason.to_string() }
    }
}

/// VMs that share pCPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRunSet {
    /// Their processes.
    pub vms: Vec<u32>,
    pub slice_ns: u64,
    /// Share of their time lost to waiting and spinning; null while that was being found out.
    pub lost_ratio: Option<f64>,
    /// Share of the run time that preemptions take, at the price above; null likewise.
    pub switch_cost_ratio: Option<f64>,
    /// Why there is no (further) step.
    pub no_step_because: String,
}

/// Decisions printed; the JSON has them all.
const PRINTED: usize = 12;

impl Shown for HostRunReport {
    fn document(&self) -> Document {
        let mut document = Document::new("What the host agent did");
        let slice = self.static_slice_ns.map_or_else(String::new, |ns| format!(" ({})", Nanos(ns)));
        document.both(line(format!(
            "gleaner host: policy {}{slice} for {}, {}{} seen through {}",
            self.policy,
            Nanos(self.wall_ns),
            count(self.windows, "window"),
            self.window_ns_mean.map_or_else(String::new, |ns| format!(" of {}", Nanos(ns))),
            self.observer
        )));
        if self.vms.is_empty() {
            document.both(line("no VM was seen"));
        } else {
            document.both(table("", self.vms.iter().map(HostRunVm::cells)));
            document.both(self.decided().into_iter().map(line));
            document.both(self.turns());
        }
        let cost = &self.enforcement;
        document.both(line(format!(
            "enforced by {} on {}: {} of one CPU; observing and deciding took {}",
            cost.method,
            count(cost.pcpus, "pCPU"),
            percent(cost.cpu_ratio),
            percent(self.overhead_cpu_ns as f64 / self.wall_ns.max(1) as f64)
        )));
        let unfair = self.unfair_worst_ratio.map(percent);
        document.both(unfair.map(|unfair| line(format!("shares are within {unfair} of entitlement"))));
        document.both(self.vms.iter().filter(|vm| vm.unfair).map(|vm| {
            let words = unfair_words(&vm.name, vm.vm, vm.share_ratio.unwrap_or(1.0), self.unfair_allowed_ratio);
            bad(format!("UNFAIR: {words}"))
        }));
        document.both(notes(&self.warnings));
        if !self.restored {
            document.both(bad("RESTORE: not everything could be undone: run `gleaner restore`"));
        }
        document
    }
}

impl HostRunReport {
    fn decided(&self) -> Vec<String> {
        let told =
            together(&self.decisions, |a, b| (a.at_ns, a.slice_ns, &a.reason) == (b.at_ns, b.slice_ns, &b.reason));
        let mut lines: Vec<String> = told.iter().take(PRINTED).map(|(line, _)| line.clone()).collect();
        let more: usize = told.iter().skip(PRINTED).map(|(_, decisions)| decisions).sum();
        let more = more as u64 + self.decisions_left_out;
        lines.extend((more > 0).then(|| format!("  and {more} more (--json has them)")));
        lines.extend(self.sets.iter().filter(|set| set.vms.len() > 1).map(|set| {
            let vms: Vec<String> = set.vms.iter().map(ToString::to_string).collect();
            format!("  VMs {} share pCPUs: {}", vms.join(", "), set.no_step_because)
        }));
        lines
    }

    fn turns(&self) -> Vec<Part> {
        let Some(in_turn) = &self.in_turn else { return Vec::new() };
        let passes = count(in_turn.turns.last().map_or(0, |turn| u64::from(turn.pass) + 1), "pass");
        let lead = Nanos(in_turn.lead_ns);
        let of_vm = |vm: u32| in_turn.figures.iter().filter(move |turns| turns.vm == vm);
        let rows = self.vms.iter().flat_map(|vm| of_vm(vm.vm).map(move |turns| (vm, turns))).map(|(vm, turns)| {
            let figures = &turns.figures;
            Row::default()
                .number("VM", vm.vm)
                .text("name", &vm.name)
                .number("slice", turns.slice_ns.map_or_else(|| self.policy.clone(), time))
                .time("delivered p50", figures.delivered_p50_ns)
                .fixed("run", figures.run_ratio, 2)
                .fixed("wait", figures.wait_ratio, 2)
                .time("wake-up p50", figures.wake_to_run_p50_ns)
                .time("p99", figures.wake_to_run_p99_ns)
                .fixed("preemptions/s", figures.preemptions_per_s, 0)
        });
        let title = line(format!("in turn, {passes}, after {lead} for the policy alone:"));
        title.into_iter().chain(table("", rows)).collect()
    }
}

impl HostRunVm {
    fn cells(&self) -> Row {
        let figures = self.after.or(self.before);
        let of = |value: fn(&HostVmFigures) -> Option<u64>| figures.as_ref().and_then(value);
        Row::default()
            .number("VM", self.vm)
            .text("name", &self.name)
            .number("vCPUs", self.vcpus)
            .time("slice", self.slices.last().map(|slice| slice.slice_ns))
            .time("delivered p50", of(|figures| figures.delivered_p50_ns))
            .time("p90", of(|figures| figures.delivered_p90_ns))
            .fixed("run", figures.map(|figures| figures.run_ratio), 2)
            .fixed("wait", figures.map(|figures| figures.wait_ratio), 2)
            .time("wake-up p99", of(|figures| figures.wake_to_run_p99_ns))
            .time("before", self.before.and_then(|before| before.wake_to_run_p99_ns))
            .percent("share", self.share_ratio)
    }
}

/// That a VM got less or more than its share, where `allowed` is how far that may be off.
pub fn unfair_words(name: &str, vm: u32, ratio: f64, allowed: f64) -> String {
    let side = if ratio < 1.0 { "less" } else { "more" };
    format!(
        "VM {name} ({vm}) got {} of what its vCPUs that could always run are entitled to: {side} than fair by more \
         than {}",
        percent(ratio),
        percent(allowed)
    )
}

/// The same decision for one or more VMs is one line; how many each is.
fn together(
    decisions: &[HostDecisionRecord],
    alike: fn(&HostDecisionRecord, &HostDecisionRecord) -> bool,
) -> Vec<(String, usize)> {
    let told = |same: &[HostDecisionRecord]| {
        let vms: Vec<String> = same.iter().map(|decision| decision.vm.to_string()).collect();
        let HostDecisionRecord { at_ns, slice_ns, reason, .. } = &same[0];
        let line = format!("{:>7}  slice {} for VM {}: {reason}", time(*at_ns), time(*slice_ns), vms.join(", "));
        (line, same.len())
    };
    decisions.chunk_by(alike).map(told).collect()
}

/// Decisions of one moment, a line for each kind: what the agent prints while it runs.
pub fn decision_lines(decisions: &[HostDecision]) -> Vec<String> {
    let records: Vec<HostDecisionRecord> = decisions.iter().map(Into::into).collect();
    let told = together(&records, |a, b| (a.slice_ns, &a.reason) == (b.slice_ns, &b.reason));
    told.into_iter().map(|(line, _)| line).collect()
}
