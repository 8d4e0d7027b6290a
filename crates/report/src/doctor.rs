//! `gleaner.doctor/1`: what this machine is, what can be done here, whether it would help.

use crate::show::{Axis, Bar, Chart, Document, Part, Row, Shown, fact, facts, quantile, table, verdict};
use crate::text::{percent, sentence, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner doctor` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    pub schema: String,
    pub machine: MachineFacts,
    /// Stolen time, sampled.
    pub steal: StealFacts,
    /// What an idle vCPU costs here; null when it was not measured.
    pub halt: Option<HaltCost>,
    /// What each observer can do here, best first.
    pub observers: Vec<Capability>,
    /// What each actuator can do here, best first of its sort.
    pub actuators: Vec<Capability>,
    /// Runs that left something behind and can be cleaned up with `gleaner restore`.
    pub left_behind: Vec<String>,
    /// Who else steers these vCPUs.
    pub neighbours: Vec<Neighbour>,
    pub verdict: Verdict,
    /// What an administrator could do for more; null where there is nothing.
    pub advice: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineFacts {
    /// `KVM`, `Xen`, ...; null on bare metal.
    pub hypervisor: Option<String>,
    pub kernel: String,
    pub vcpus_online: u64,
    /// vCPUs this process may use, as a CPU list.
    pub vcpus_allowed: String,
    /// The cpuidle driver and governor; null where the kernel just halts.
    pub idle_driver: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StealFacts {
    /// How long it was sampled.
    pub sampled_ns: u64,
    /// Stolen share of all vCPUs' time by the hypervisor's own report; null where it reports none (since boot).
    pub reported_ratio: Option<f64>,
}

/// Whether HLT gives the vCPU away: setting B against C.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaltCost {
    /// Gap between wake-ups.
    pub gap_ns: u64,
    /// Waking a thread on a vCPU that is kept awake, median.
    pub retained_p50_ns: u64,
    /// Its 99th percentile.
    pub retained_p99_ns: u64,
    /// Waking a thread on a halted vCPU, median.
    pub halted_p50_ns: u64,
    /// Its 99th percentile.
    pub halted_p99_ns: u64,
    /// Whether halting costs: C's median at least 1.3 times B's, or its 99th percentile at least twice.
    pub halting_costs: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    pub name: String,
    /// Whether it works here.
    pub available: bool,
    /// What it gives, or why it does not work and what would change that.
    pub detail: String,
}

/// Somebody else who steers these vCPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// `sched_ext`, `gleaner`, `tuned`, `irqbalance` or `idle=poll`.
    pub name: String,
    pub found: String,
    /// What Gleaner does about it.
    pub respected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Whether a program with frequent short waits would benefit here; null when it could not be told.
    pub would_benefit: Option<bool>,
    pub text: String,
}

/// What the page explains.
const TERMS: &[&str] = &["halt", "steal", "vCPU", "observer", "means"];

impl Shown for DoctorReport {
    fn document(&self) -> Document {
        let machine = &self.machine;
        let mut document = Document { terms: TERMS, ..Document::new("This machine") };
        document.page(verdict(sentence(&self.verdict.text)));
        let idle = machine.idle_driver.as_deref().unwrap_or("halts (no cpuidle driver)");
        let steal = self.steal.reported_ratio.map_or_else(
            || {
                "none ever reported since boot: this hypervisor may not report it; yielding threads measure it \
                 themselves"
                    .to_owned()
            },
            |ratio| format!("{} of vCPU time over the last {}", percent(ratio), time(self.steal.sampled_ns)),
        );
        document.both([
            fact("hypervisor", machine.hypervisor.as_deref().unwrap_or("none found (bare metal?)")),
            fact(
                "machine",
                format!(
                    "Linux {}, {} vCPUs online, {} allowed here, idle: {idle}",
                    machine.kernel, machine.vcpus_online, machine.vcpus_allowed
                ),
            ),
            fact("steal", steal),
        ]);
        document.both(self.halt.map(HaltCost::fact));
        document.page(self.halt.map(|halt| halt.chart().into()));
        document.words(facts("observe", self.observers.iter().map(Capability::words)));
        document.words(facts("act", self.actuators.iter().map(Capability::words)));
        let observers = self.observers.iter().map(|one| one.cells("observing"));
        let actuators = self.actuators.iter().map(|one| one.cells("acting"));
        document.page(table("What Gleaner can do here", observers.chain(actuators)));
        document.both(
            self.neighbours
                .iter()
                .map(|Neighbour { name, found, respected }| fact("beside", format!("{name:<12} {found}: {respected}"))),
        );
        document.both(self.left_behind.iter().map(|run| fact("left", format!("{run}: run `gleaner restore`"))));
        document.words(fact("verdict", &self.verdict.text));
        document.both(self.advice.iter().map(|advice| fact("advice", advice)));
        document
    }
}

impl Capability {
    fn words(&self) -> String {
        format!("{:<3}  {:<12} {}", if self.available { "yes" } else { "no" }, self.name, self.detail)
    }

    fn cells(&self, purpose: &str) -> Row {
        Row::default()
            .text("means", &self.name)
            .text("for", purpose)
            .text("works", if self.available { "yes" } else { "no" })
            .text("detail", &self.detail)
    }
}

impl HaltCost {
    fn fact(self) -> Part {
        let [halted, halted_p99, retained, retained_p99, gap] =
            [self.halted_p50_ns, self.halted_p99_ns, self.retained_p50_ns, self.retained_p99_ns, self.gap_ns].map(time);
        fact(
            "halting",
            format!(
                "waking a thread on a halted vCPU takes {halted} (p99 {halted_p99}), on one kept awake {retained} (p99 \
                 {retained_p99}), waits {gap} apart"
            ),
        )
    }

    fn chart(self) -> Chart {
        let when = if self.halting_costs { "later than" } else { "as soon as" };
        let bar = |label, p50, p99| Bar::of(label, vec![quantile("p50", p50), quantile("p99", p99)]);
        Chart::rows(
            format!("On this machine a halted vCPU answers {when} one kept awake"),
            format!(
                "Time to wake a thread on another vCPU that had nothing to do for {}. Where both rows agree, keeping \
                 vCPUs awake wins nothing here.",
                time(self.gap_ns)
            ),
            Axis::times("time from wake-up to running"),
            vec![
                bar("kept awake", self.retained_p50_ns, self.retained_p99_ns),
                bar("halted", self.halted_p50_ns, self.halted_p99_ns),
            ],
        )
    }
}
