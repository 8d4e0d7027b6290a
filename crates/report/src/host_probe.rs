//! `gleaner.host-probe/1`: what a host can do with slices, and what switches cost there.

use crate::show::{Document, Shown, fact, verdict};
use crate::text::{bytes, count, sentence, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner host probe` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostProbeReport {
    pub schema: String,
    pub kernel: String,
    /// The hypervisor below this machine; null on bare metal, and where nothing tells.
    pub hypervisor: Option<String>,
    pub pcpus_online: u64,
    /// Timer ticks per second.
    pub hz: Finding<u32>,
    /// Whether the scheduler ends slices by a timer of its own.
    pub hrtick: Finding<bool>,
    /// `none`, `voluntary`, `full`, `lazy`, `rt`.
    pub preemption: Finding<String>,
    /// The slice of a thread that asked for none.
    pub base_slice_ns: Finding<u64>,
    /// Whether threads can be given slices of their own: tried.
    pub slice_per_thread: Finding<bool>,
    /// Whether real-time threads are held to a share of a CPU.
    pub rt_throttling: Finding<bool>,
    /// How much of each period they may take; null without throttling.
    pub rt_runtime_ns: Option<u64>,
    pub rt_period_ns: Option<u64>,
    /// What real-time threads may take in this process's cgroup, where groups have budgets.
    pub rt_group_runtime_ns: Finding<u64>,
    /// Whether a thread of this process can be SCHED_FIFO: tried.
    pub fifo: Finding<bool>,
    /// What this kernel's release is known to do to slices.
    pub slice_issues: Vec<SliceIssueFact>,
    /// A context switch with and without caches to fill again.
    pub switch: Finding<SwitchFigures>,
    /// Exits of guests that spin.
    pub pause_exits: Finding<PauseExitFacts>,
    /// How long KVM polls when a vCPU halts.
    pub halt_polling: Finding<HaltPollingFacts>,
    /// The VMs here and how deep their cgroups are.
    pub vms: Vec<VmNesting>,
    /// How slices can be delivered here.
    pub verdict: HostVerdict,
}

/// Something found, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding<T> {
    /// Null: unknown.
    pub value: Option<T>,
    /// Where it is known from; why not, where it is unknown.
    pub from: String,
}

/// Something that kernels of a range do to slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceIssueFact {
    /// A word for it.
    pub id: String,
    /// First release that has it; null: all old ones.
    pub since: Option<String>,
    /// First release without; null: not yet.
    pub until: Option<String>,
    /// What it does, and what helps.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchFigures {
    /// The CPU it was measured on.
    pub pcpu: u32,
    /// Median without a working set.
    pub p50_ns: u64,
    pub p95_ns: u64,
    /// By working set, ascending; the first without.
    pub by_working_set: Vec<RefillFigures>,
}

/// A switch between threads that read a working set at every turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefillFigures {
    /// Bytes of each of the two threads.
    pub working_set_bytes: u64,
    /// Batches measured.
    pub n: u64,
    /// Median of the switch and what it makes a thread fetch again.
    pub p50_ns: u64,
    pub p95_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseExitFacts {
    /// Whether it is on.
    pub on: bool,
    /// The module's parameters, in its own units.
    pub parameters: std::collections::BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaltPollingFacts {
    /// Longest poll; 0: off.
    pub longest_ns: u64,
    pub grow: u64,
    pub grow_start_ns: Option<u64>,
    /// By what it shrinks; 0: to nothing at once.
    pub shrink: u64,
}

/// A VM's place in the hierarchy of cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmNesting {
    pub name: String,
    pub pid: i32,
    /// The cgroup of its first vCPU, or of its process where no vCPU is known; null where there are none.
    pub cgroup: Option<String>,
    /// Groups between that and the root.
    pub cgroup_depth: Option<u64>,
}

/// How slices can be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostVerdict {
    /// The shortest slice that can be delivered; null where even that is not known.
    pub shortest_slice_ns: Option<u64>,
    /// By what: `hrtick`, `ticker`, `tick`.
    pub method: Option<String>,
    pub text: String,
}

impl<T> Finding<T> {
    /// In words: the value as `say` has it, or that it is unknown and why.
    fn text(&self, say: impl FnOnce(&T) -> String) -> String {
        match &self.value {
            Some(value) => say(value),
            None => format!("unknown: {}", self.from),
        }
    }
}

impl Finding<bool> {
    fn either(&self, yes: &str, no: &str) -> String {
        self.text(|is| if *is { yes } else { no }.to_owned())
    }
}

impl Shown for HostProbeReport {
    fn document(&self) -> Document {
        let mut document = Document::new("What the host can do");
        let hypervisor =
            self.hypervisor.as_deref().map_or("no hypervisor found".to_owned(), |name| format!("under {name}"));
        let pcpus = count(self.pcpus_online, "CPU");
        document.page(verdict(sentence(&self.verdict.text)));
        document.both([
            fact("machine", format!("Linux {}, {pcpus} online, {hypervisor}", self.kernel)),
            fact(
                "tick",
                self.hz.text(|hz| {
                    let apart = time(1_000_000_000 / u64::from((*hz).max(1)));
                    format!("HZ={hz}: without a timer or a ticker slices end {apart} apart at best")
                }),
            ),
            fact("HRTICK", self.hrtick.either("on: slices end when they should", "off: slices end at the tick")),
            fact("preemption", self.preemption.text(|model| format!("{model} ({})", self.preemption.from))),
            fact("base slice", self.base_slice_ns.text(|ns| format!("{}, of a thread that asked for none", time(*ns)))),
            fact(
                "own slices",
                self.slice_per_thread.either(
                    "sched_setattr gives a thread a slice of its own (tried)",
                    "sched_setattr has no effect on slices here (tried)",
                ),
            ),
            fact("FIFO", self.fifo_text()),
        ]);
        let issues = self.slice_issues.iter().map(|issue| fact("kernel", format!("{}: {}", range(issue), issue.text)));
        document.both(issues);
        document.both([
            fact("switch", self.switch.text(switch_text)),
            fact("PLE", self.pause_exits.text(pause_text)),
            fact("halt polling", self.halt_polling.text(polling_text)),
        ]);
        document.both(self.vms.iter().map(|vm| fact("VM", nesting_text(vm))));
        document.words(fact("verdict", &self.verdict.text));
        document
    }
}

impl HostProbeReport {
    fn fifo_text(&self) -> String {
        let throttled = match (self.rt_throttling.value, self.rt_runtime_ns, self.rt_period_ns) {
            (Some(true), Some(runtime), Some(period)) => {
                format!("throttled to {} of every {}", time(runtime), time(period))
            }
            (Some(false), ..) => "throttling is off: tickers are refused".to_owned(),
            _ => format!("throttling unknown: {}", self.rt_throttling.from),
        };
        let may = self.fifo.either("allowed", &format!("refused: {}", self.fifo.from));
        let group = match self.rt_group_runtime_ns.value {
            Some(0) => "; this cgroup has no real-time budget: the root group must be used",
            _ => "",
        };
        format!("{may}; {throttled}{group}")
    }
}

fn range(issue: &SliceIssueFact) -> String {
    match (&issue.since, &issue.until) {
        (Some(since), Some(until)) => format!("from {since} until {until}"),
        (Some(since), None) => format!("since {since}"),
        (None, Some(until)) => format!("until {until}"),
        (None, None) => "always".to_owned(),
    }
}

fn switch_text(switch: &SwitchFigures) -> String {
    let refills = switch.by_working_set.iter().filter(|refill| refill.working_set_bytes > 0);
    let refills: Vec<String> = refills
        .map(|refill| format!("{} with {} each", time(refill.p50_ns), bytes(refill.working_set_bytes)))
        .collect();
    format!("{} (p95 {}) on CPU {}; {}", time(switch.p50_ns), time(switch.p95_ns), switch.pcpu, refills.join(", "))
}

fn pause_text(pauses: &PauseExitFacts) -> String {
    let parameters: Vec<String> = pauses.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let what =
        if pauses.on { "on: a vCPU that spins gives its CPU away" } else { "off: a vCPU that spins keeps its CPU" };
    format!("{what} ({})", parameters.join(" "))
}

fn polling_text(polling: &HaltPollingFacts) -> String {
    if polling.longest_ns == 0 {
        return "off: a vCPU that halts gives its CPU away at once".to_owned();
    }
    format!("up to {} before a halted vCPU gives its CPU away", time(polling.longest_ns))
}

fn nesting_text(vm: &VmNesting) -> String {
    match (&vm.cgroup, vm.cgroup_depth) {
        (Some(cgroup), Some(depth)) => {
            format!("{} (pid {}): {} deep, {cgroup}", vm.name, vm.pid, count(depth, "cgroup"))
        }
        _ => format!("{} (pid {}): in no cgroup", vm.name, vm.pid),
    }
}
