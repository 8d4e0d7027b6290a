//! `gleaner.xen-list/1` and `gleaner.xen-slice/1`: a Xen host, and what a slice was set to on it.

use crate::text;
use gleaner_model::XenSetting;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The times that a cpupool or a vCPU of Xen's is set to; null for what its scheduler does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        let parts = [("slice", self.slice_ns), ("ratelimit", self.ratelimit_ns), ("period", self.period_ns)];
        let known = parts.iter().filter_map(|(name, value)| Some(format!("{name} {}", time(name, (*value)?))));
        f.write_str(&known.collect::<Vec<_>>().join(", "))
    }
}

fn time(name: &str, ns: u64) -> String {
    if ns == 0 && name == "ratelimit" { "none".to_owned() } else { text::duration(Some(ns)) }
}

/// What `gleaner host list` saw on a Xen host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XenListReport {
    /// `gleaner.xen-list/1`.
    pub schema: String,
    /// Xen's version; null where xl does not say.
    pub xen_version: Option<String>,
    /// The cpupools.
    pub pools: Vec<XenListPool>,
    /// The domains, in Xen's order; the first is dom0.
    pub domains: Vec<XenListDomain>,
    /// What the reader should know about this.
    pub notes: Vec<String>,
}

/// A cpupool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XenListPool {
    /// Its name.
    pub name: String,
    /// Who schedules there: `credit`, `credit2`, `rtds`, or another name of Xen's.
    pub scheduler: String,
    /// Its physical CPUs.
    pub pcpus: u32,
    /// vCPUs that are not paused.
    pub vcpus: u64,
    /// What all of it is set to (credit, credit2).
    pub times: XenTimes,
    /// Equation 1 of the micro-sliced paper for its busiest physical CPU: slice * (vCPUs there - 1), were all its vCPUs
    /// to run; null where there is no slice for all.
    pub scheduling_latency_ns: Option<u64>,
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XenListDomain {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its cpupool; null where its scheduler is not known.
    pub pool: Option<String>,
    /// Its memory.
    pub memory_mib: u64,
    /// Weight (credit, credit2).
    pub weight: Option<u32>,
    /// Cap, in per cent of a physical CPU; 0: none (credit, credit2).
    pub cap_percent: Option<u32>,
    /// Its vCPUs.
    pub vcpus: Vec<XenListVcpu>,
}

/// A vCPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl XenListReport {
    /// The schema's name.
    pub const SCHEMA: &str = "gleaner.xen-list/1";
}

impl fmt::Display for XenListReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let version = self.xen_version.as_deref().unwrap_or("of unknown version");
        writeln!(f, "Xen {version}, {} cpupool(s), {} domain(s)", self.pools.len(), self.domains.len())?;
        for pool in &self.pools {
            write!(f, "\n{}: scheduler {}, {} pCPUs, {} vCPUs", pool.name, pool.scheduler, pool.pcpus, pool.vcpus)?;
            if pool.times != XenTimes::default() {
                write!(f, "; {}", pool.times)?;
            }
            if let Some(latency) = pool.scheduling_latency_ns.filter(|latency| *latency > 0) {
                write!(f, "; a vCPU may wait {} for its turn if all run", text::duration(Some(latency)))?;
            }
            writeln!(f)?;
            for domain in self.domains.iter().filter(|domain| domain.pool.as_ref() == Some(&pool.name)) {
                write!(f, "{domain}")?;
            }
        }
        for domain in self.domains.iter().filter(|domain| domain.pool.is_none()) {
            write!(f, "\n{domain}")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\nNote: {note}."))
    }
}

impl fmt::Display for XenListDomain {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "  {} (domain {}): {} MiB", self.name, self.id, self.memory_mib)?;
        if let Some(weight) = self.weight {
            write!(f, ", weight {weight}")?;
        }
        if let Some(cap) = self.cap_percent.filter(|cap| *cap > 0) {
            write!(f, ", cap {cap} %")?;
        }
        writeln!(f)?;
        for vcpu in &self.vcpus {
            let place = vcpu.pcpu.map_or("nowhere".to_owned(), |pcpu| format!("on pCPU {pcpu}"));
            write!(f, "    vCPU {}  {:<8} {place}, may use {}", vcpu.index, vcpu.state, vcpu.hard_affinity)?;
            write!(f, ", {:.1} s of CPU time", vcpu.cpu_time_s)?;
            if vcpu.times != XenTimes::default() {
                write!(f, "; {}", vcpu.times)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// What `gleaner host slice` set on a Xen host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XenSliceReport {
    /// `gleaner.xen-slice/1`.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XenSliceChange {
    /// `cpupool Pool-0`, `vCPU 1 of domain 3`.
    pub target: String,
    /// What it was.
    pub was: XenTimes,
    /// What it was set to.
    pub set: XenTimes,
}

impl XenSliceReport {
    /// The schema's name.
    pub const SCHEMA: &str = "gleaner.xen-slice/1";
}

impl fmt::Display for XenSliceReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.changes.is_empty() {
            writeln!(f, "Nothing was changed: all was set so already.")?;
        }
        for change in &self.changes {
            writeln!(f, "{}: {}; it was {}", change.target, change.set, change.was)?;
        }
        if !self.changes.is_empty() {
            let back = if self.restored { "and put back" } else { "and NOT put back: run `gleaner restore`" };
            writeln!(f, "Set by {}, read back, kept for {} {back}.", self.method, text::duration(Some(self.held_ns)))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}."))
    }
}
