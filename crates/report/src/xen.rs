//! `gleaner.xen-list/1` and `gleaner.xen-slice/1`: a Xen host, and what a slice was set to on it.

use crate::show::{Document, Part, Shown, bad, line};
use crate::text::time;
use gleaner_model::XenSetting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The times that a cpupool or a vCPU of Xen's is set to; null for what its scheduler does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XenTimes {
    /// How long a vCPU may run while others wait (RTDS: its budget).
    pub slice_ns: Option<u64>,
    /// How long it runs at least before a waking one may take its place; 0: no limit (credit, credit2).
    pub ratelimit_ns: Option<u64>,
    /// How often it gets its budget (RTDS).
    pub period_ns: Option<u64>,
}

impl From<&XenSetting> for XenTimes {
    fn from(setting: &XenSetting) -> Self {
        let us = |us: u32| Some(u64::from(us) * 1000);
        match setting {
            XenSetting::Credit { slice_ms, ratelimit_us, .. } => Self {
                slice_ns: Some(u64::from(*slice_ms) * 1_000_000),
                ratelimit_ns: us(*ratelimit_us),
                period_ns: None,
            },
            XenSetting::Credit2 { ratelimit_us, .. } => Self { ratelimit_ns: us(*ratelimit_us), ..Self::default() },
            XenSetting::Rtds { period_us, budget_us, .. } => {
                Self { slice_ns: us(*budget_us), ratelimit_ns: None, period_ns: us(*period_us) }
            }
        }
    }
}

/// `slice 1.0 ms, ratelimit 500 us`; nothing where nothing is set.
impl fmt::Display for XenTimes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let limit = self.ratelimit_ns.map(|ns| if ns == 0 { "none".to_owned() } else { time(ns) });
        let parts = [("slice", self.slice_ns.map(time)), ("ratelimit", limit), ("period", self.period_ns.map(time))];
        let known = parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        f.write_str(&known.collect::<Vec<_>>().join(", "))
    }
}

/// What `gleaner host list` saw on a Xen host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenListReport {
    pub schema: String,
    /// Xen's version; null where xl does not say.
    pub xen_version: Option<String>,
    pub pools: Vec<XenListPool>,
    /// The domains, in Xen's order; the first is dom0.
    pub domains: Vec<XenListDomain>,
    /// What the reader should know about this.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenListPool {
    pub name: String,
    /// Who schedules there: `credit`, `credit2`, `rtds`, or another name of Xen's.
    pub scheduler: String,
    pub pcpus: u32,
    /// vCPUs that are not paused.
    pub vcpus: u64,
    /// What all of it is set to (credit, credit2).
    pub times: XenTimes,
    /// Equation 1 of the micro-sliced paper for its busiest physical CPU: slice * (vCPUs there - 1), were all its vCPUs
    /// to run; null where there is no slice for all.
    pub scheduling_latency_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenListDomain {
    pub id: u32,
    pub name: String,
    /// Its cpupool; null where its scheduler is not known.
    pub pool: Option<String>,
    pub memory_mib: u64,
    /// Weight (credit, credit2).
    pub weight: Option<u32>,
    /// Cap, in per cent of a physical CPU; 0: none (credit, credit2).
    pub cap_percent: Option<u32>,
    pub vcpus: Vec<XenListVcpu>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenListVcpu {
    /// As its domain numbers it.
    pub index: u32,
    /// The physical CPU on which it is or was last.
    pub pcpu: Option<u32>,
    /// `running`, `runnable`, `blocked` or `paused`.
    pub state: String,
    /// CPU time since its domain was made, to a tenth of a second.
    pub cpu_time_s: f64,
    /// The physical CPUs it may use, as Xen writes it: `all`, `0-3`.
    pub hard_affinity: String,
    /// Those it prefers.
    pub soft_affinity: String,
    /// What it is set to (RTDS).
    pub times: XenTimes,
}

impl Shown for XenListReport {
    fn document(&self) -> Document {
        let mut document = Document::new("The Xen host's domains");
        let version = self.xen_version.as_deref().unwrap_or("of unknown version");
        let (pools, domains) = (self.pools.len(), self.domains.len());
        document.both(line(format!("Xen {version}, {pools} cpupool(s), {domains} domain(s)")));
        for pool in &self.pools {
            document.both([line(""), line(pool.words())]);
            let domains = self.domains.iter().filter(|domain| domain.pool.as_ref() == Some(&pool.name));
            document.both(domains.flat_map(XenListDomain::words));
        }
        let homeless = self.domains.iter().filter(|domain| domain.pool.is_none());
        document.both(homeless.flat_map(|domain| line("").into_iter().chain(domain.words())));
        document.words((!self.notes.is_empty()).then(|| line("")));
        document.both(self.notes.iter().map(|note| Part::Note(format!("{note}."))));
        document
    }
}

impl XenTimes {
    /// Behind something else.
    fn after(&self) -> String {
        if *self == Self::default() { String::new() } else { format!("; {self}") }
    }
}

impl XenListPool {
    fn words(&self) -> String {
        let Self { name, scheduler, pcpus, vcpus, .. } = self;
        let latency = self.scheduling_latency_ns.filter(|latency| *latency > 0);
        let latency = latency.map(|ns| format!("; a vCPU may wait {} for its turn if all run", time(ns)));
        let (times, latency) = (self.times.after(), latency.unwrap_or_default());
        format!("{name}: scheduler {scheduler}, {pcpus} pCPUs, {vcpus} vCPUs{times}{latency}")
    }
}

impl XenListDomain {
    fn words(&self) -> impl Iterator<Item = Part> {
        let weight = self.weight.map(|weight| format!(", weight {weight}")).unwrap_or_default();
        let cap = self.cap_percent.filter(|cap| *cap > 0).map(|cap| format!(", cap {cap} %")).unwrap_or_default();
        let domain = format!("  {} (domain {}): {} MiB{weight}{cap}", self.name, self.id, self.memory_mib);
        let vcpu = |XenListVcpu { index, pcpu, state, cpu_time_s, hard_affinity, times, .. }: &XenListVcpu| {
            let place = pcpu.map_or("nowhere".to_owned(), |pcpu| format!("on pCPU {pcpu}"));
            let times = times.after();
            line(format!(
                "    vCPU {index}  {state:<8} {place}, may use {hard_affinity}, {cpu_time_s:.1} s of CPU time{times}"
            ))
        };
        line(domain).into_iter().chain(self.vcpus.iter().map(vcpu))
    }
}

/// What `gleaner host run` set on a Xen host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenSliceReport {
    pub schema: String,
    /// The slice that was asked for.
    pub requested_ns: Option<u64>,
    /// The ratelimit that was asked for.
    pub requested_ratelimit_ns: Option<u64>,
    /// Who schedules there, and so enforces it: `xen-credit`, `xen-credit2`, `xen-rtds`.
    pub method: String,
    /// What was set and read back; empty where all was so already.
    pub changes: Vec<XenSliceChange>,
    /// How long it stayed so.
    pub held_ns: u64,
    /// Xen tells nobody in dom0 how long vCPUs ran at a time: null.
    pub delivered_p50_ns: Option<u64>,
    /// As its median.
    pub delivered_p90_ns: Option<u64>,
    /// Whether all was put back, or somebody else's later word left in force.
    pub restored: bool,
    /// What the reader should know about this.
    pub notes: Vec<String>,
}

/// One thing that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XenSliceChange {
    /// `cpupool Pool-0`, `vCPU 1 of domain 3`.
    pub target: String,
    pub was: XenTimes,
    pub set: XenTimes,
}

impl Shown for XenSliceReport {
    fn document(&self) -> Document {
        let mut document = Document::new("The Xen host's slices");
        document.both(
            self.changes
                .iter()
                .map(|XenSliceChange { target, was, set }| line(format!("{target}: {set}; it was {was}"))),
        );
        let (method, held) = (&self.method, time(self.held_ns));
        document.both(match (self.changes.is_empty(), self.restored) {
            (true, _) => line("Nothing was changed: all was set so already."),
            (_, true) => line(format!("Set by {method}, read back, kept for {held} and put back.")),
            (_, false) => {
                bad(format!("Set by {method}, read back, kept for {held} and NOT put back: run `gleaner restore`."))
            }
        });
        document.both(self.notes.iter().map(|note| Part::Note(format!("{note}."))));
        document
    }
}
