//! `gleaner.doctor/1`: what this machine is, what can be done here, whether it would help.

use crate::text::{duration, percent};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner doctor` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorReport {
    /// `gleaner.doctor/1`.
    pub schema: String,
    /// What the machine is.
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
    /// Who else steers these vCPUs; empty from an earlier version too.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
    /// The verdict.
    pub verdict: Verdict,
    /// What an administrator could do for more; null where there is nothing.
    #[serde(default)]
    pub advice: Option<String>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineFacts {
    /// `KVM`, `Xen`, ...; null on bare metal.
    pub hypervisor: Option<String>,
    /// Kernel release.
    pub kernel: String,
    /// Online vCPUs.
    pub vcpus_online: u64,
    /// vCPUs this process may use, as a CPU list.
    pub vcpus_allowed: String,
    /// The cpuidle driver and governor; null where the kernel just halts.
    pub idle_driver: Option<String>,
}

/// Stolen time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StealFacts {
    /// How long it was sampled.
    pub sampled_ns: u64,
    /// Stolen share of all vCPUs' time by the hypervisor's own report; null where it reports none (since boot).
    pub reported_ratio: Option<f64>,
}

/// Whether HLT gives the vCPU away: setting B against C.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// One means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capability {
    /// Its name.
    pub name: String,
    /// Whether it works here.
    pub available: bool,
    /// What it gives, or why it does not work and what would change that.
    pub detail: String,
}

/// Somebody else who steers these vCPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbour {
    /// `sched_ext`, `gleaner`, `tuned`, `irqbalance`, `preferred` or `idle=poll`.
    pub name: String,
    /// What was found.
    pub found: String,
    /// What Gleaner does about it.
    pub respected: String,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Whether a program with frequent short waits would benefit here; null when it could not be told.
    pub would_benefit: Option<bool>,
    /// In plain words.
    pub text: String,
}

impl DoctorReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.doctor/1";
}

fn write_capabilities(f: &mut fmt::Formatter<'_>, title: &str, all: &[Capability]) -> fmt::Result {
    for (index, capability) in all.iter().enumerate() {
        let title = if index == 0 { title } else { "" };
        let mark = if capability.available { "yes" } else { "no " };
        writeln!(f, "{title:<10} {mark}  {:<12} {}", capability.name, capability.detail)?;
    }
    Ok(())
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let hypervisor = machine.hypervisor.as_deref().unwrap_or("none found (bare metal?)");
        writeln!(f, "hypervisor {hypervisor}")?;
        writeln!(
            f,
            "machine    Linux {}, {} vCPUs online, {} allowed here, idle: {}",
            machine.kernel,
            machine.vcpus_online,
            machine.vcpus_allowed,
            machine.idle_driver.as_deref().unwrap_or("halts (no cpuidle driver)")
        )?;
        let steal = self.steal.reported_ratio.map_or_else(
            || {
                "none ever reported since boot: this hypervisor may not report it; yielding threads measure it \
                themselves"
                    .to_owned()
            },
            |ratio| format!("{} of vCPU time over the last {}", percent(ratio), duration(Some(self.steal.sampled_ns))),
        );
        writeln!(f, "steal      {steal}")?;
        if let Some(halt) = self.halt {
            writeln!(
                f,
                "halting    waking a thread on a halted vCPU takes {} (p99 {}), on one kept awake {} (p99 {}), waits \
                 {} apart",
                duration(Some(halt.halted_p50_ns)),
                duration(Some(halt.halted_p99_ns)),
                duration(Some(halt.retained_p50_ns)),
                duration(Some(halt.retained_p99_ns)),
                duration(Some(halt.gap_ns))
            )?;
        }
        write_capabilities(f, "observe", &self.observers)?;
        write_capabilities(f, "act", &self.actuators)?;
        for Neighbour { name, found, respected } in &self.neighbours {
            writeln!(f, "beside     {name:<12} {found}: {respected}")?;
        }
        for run in &self.left_behind {
            writeln!(f, "left       {run}: run `gleaner restore`")?;
        }
        writeln!(f, "verdict    {}", self.verdict.text)?;
        self.advice.iter().try_for_each(|advice| writeln!(f, "advice     {advice}"))
    }
}
