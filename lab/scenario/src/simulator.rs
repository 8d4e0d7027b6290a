//! The `[simulator]` table: what the simulator needs to know of the host, and the test bed ignores.

use crate::format::{Time, as_duration, as_optional_duration, is_default};
use crate::values::{Wrong, time, within, word_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Spanned;

/// The simulated host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulator {
    /// Physical CPUs; `None`: as many as `machine.cpus` names, or the largest VM has vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcpus: Option<u32>,
    /// pCPUs that share a last-level cache; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc_pcpus: Option<u32>,
    /// Whether pCPUs 2n and 2n+1 are threads of one core.
    pub smt: bool,
    /// Who runs when.
    pub scheduler: SimScheduler,
    /// A slice instead of the scheduler's own.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub slice: Option<Duration>,
    /// Whether slices end when they end, and not at the next tick.
    pub enforced: bool,
    /// How long the host polls for a halted vCPU at most; 0: not at all.
    #[serde(serialize_with = "as_duration")]
    pub halt_poll: Duration,
    /// Pause-loop exits.
    pub ple: bool,
    /// How deep idle pCPUs sleep.
    #[serde(skip_serializing_if = "is_default")]
    pub idle_states: SimIdleStates,
    /// What things cost.
    pub costs: SimCosts,
    /// Single costs, by name (`gleaner-lab sim list`), nanoseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub cost_ns: BTreeMap<String, u64>,
}

impl Default for Simulator {
    fn default() -> Self {
        Self {
            pcpus: None,
            llc_pcpus: None,
            smt: false,
            scheduler: SimScheduler::Eevdf,
            slice: None,
            enforced: false,
            halt_poll: HALT_POLL,
            ple: true,
            idle_states: SimIdleStates::Shallow,
            costs: SimCosts::Kvm2014,
            cost_ns: BTreeMap::new(),
        }
    }
}

/// KVM's default.
const HALT_POLL: Duration = Duration::from_micros(200);

/// A host's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimScheduler {
    /// Linux since 6.6.
    Eevdf,
    /// Linux before 6.6.
    Cfs,
    /// PowerVM's dispatch window.
    Powervm,
    /// Xen's credit scheduler.
    Credit,
    /// Fixed slices in turn.
    RoundRobin,
    /// Each vCPU has a pCPU for itself.
    Dedicated,
    /// No hypervisor.
    Native,
}

/// Idle states of a host's pCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimIdleStates {
    /// None that takes longer to leave than a wake-up costs anyway.
    #[default]
    Shallow,
    /// C3 and C6, as Linux 3.9 has them.
    SandyBridge,
}

/// A set of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimCosts {
    /// Table 2 of the Gleaner paper.
    #[serde(rename = "kvm-2014")]
    Kvm2014,
    /// The micro-sliced paper's Xen machine.
    #[serde(rename = "xen-2014")]
    Xen2014,
    /// Table 2 without virtualization.
    #[serde(rename = "native-2014")]
    Native2014,
    /// Nothing costs anything.
    Free,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSimulator {
    pcpus: Option<Spanned<u32>>,
    llc_pcpus: Option<Spanned<u32>>,
    #[serde(default)]
    smt: bool,
    scheduler: Option<Spanned<String>>,
    slice: Option<Spanned<Time>>,
    #[serde(default)]
    enforced: bool,
    halt_poll: Option<Spanned<Time>>,
    ple: Option<bool>,
    idle_states: Option<Spanned<String>>,
    costs: Option<Spanned<String>>,
    #[serde(default)]
    cost_ns: BTreeMap<String, Spanned<u64>>,
}

/// Names of single costs are the simulator's to know; a value above this is a mistake of unit.
const COST_MAX_NS: u64 = 10_000_000_000;

impl RawSimulator {
    pub(crate) fn check(self) -> Result<Simulator, Wrong> {
        let default = Simulator::default();
        let slices = Duration::from_micros(10)..=Duration::from_secs(10);
        let zero = Duration::ZERO;
        let slice = self.slice.map(|slice| time("slice", Some(slice), zero, slices)).transpose()?;
        let polls = zero..=Duration::from_millis(10);
        Ok(Simulator {
            pcpus: self.pcpus.map(|pcpus| within("pcpus", &pcpus, 1..=16_384)).transpose()?,
            llc_pcpus: self.llc_pcpus.map(|pcpus| within("llc_pcpus", &pcpus, 1..=16_384)).transpose()?,
            smt: self.smt,
            scheduler: self.scheduler.map_or(Ok(default.scheduler), |found| word_of("scheduler", &found))?,
            slice,
            enforced: self.enforced,
            halt_poll: time("halt_poll", self.halt_poll, default.halt_poll, polls)?,
            ple: self.ple.unwrap_or(default.ple),
            idle_states: self.idle_states.map_or(Ok(default.idle_states), |found| word_of("idle_states", &found))?,
            costs: self.costs.map_or(Ok(default.costs), |found| word_of("costs", &found))?,
            cost_ns: self
                .cost_ns
                .into_iter()
                .map(|(name, ns)| within(&name, &ns, 0..=COST_MAX_NS).map(|ns| (name, ns)))
                .collect::<Result<_, _>>()?,
        })
    }
}
