//! `gleaner.llc/1`: who was given which part of the last-level cache, and why.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner host llc` found and did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlcReport {
    /// `gleaner.llc/1`.
    pub schema: String,
    /// `allocate`, `monitor-only` or `dry-run`.
    pub mode: String,
    /// How long VMs were looked at.
    pub wall_ns: u64,
    /// From one judgement to the next.
    pub interval_ns: u64,
    /// What the host has.
    pub host: LlcHost,
    /// What it lacks for what was asked; empty: nothing.
    pub missing: Vec<String>,
    /// Whether anything was changed on the host, undone or not.
    pub changed: bool,
    /// The groups that were made, or would be.
    pub groups: Vec<LlcGroup>,
    /// Every VM looked at.
    pub vms: Vec<LlcVmResult>,
    /// Changes in order, the first ones.
    pub changes: Vec<LlcChange>,
    /// How many more there were.
    pub changes_left_out: u64,
    /// What the reader should know.
    pub warnings: Vec<String>,
    /// Whether everything was undone at the end; true also where nothing was changed.
    pub restored: bool,
}

/// The host's means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlcHost {
    /// Where resctrl is mounted; null: it is not, or the host has none.
    pub resctrl: Option<String>,
    /// Whether this run mounted it.
    pub mounted_here: bool,
    /// L3 caches that can be divided; null where none can, or it is not known.
    pub caches: Option<u64>,
    /// All ways, a bit each, hexadecimal.
    pub ways_mask: Option<String>,
    /// The fewest bits of a mask; 0: a group may be kept from filling the cache at all.
    pub mask_bits_min: Option<u64>,
    /// Ways that devices fill as well.
    pub shared_with_devices_mask: Option<String>,
    /// Ways that somebody else has for themselves.
    pub taken_mask: Option<String>,
    /// Classes of service free when the run began.
    pub classes_free: Option<u64>,
    /// Code and data apart.
    pub cdp: Option<bool>,
    /// What can be monitored for a group.
    pub monitoring: Vec<String>,
    /// Whether a thread's accesses and misses can be counted.
    pub counters: bool,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlcGroup {
    /// `minimal` or `rest`.
    pub share: String,
    /// Its folder below resctrl; null: not made.
    pub name: Option<String>,
    /// Its ways, hexadecimal.
    pub ways_mask: String,
}

/// One VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlcVmResult {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: i64,
    /// Its threads that are counted and moved: its vCPUs, or all of a process that is no VM.
    pub threads: u64,
    /// Threads left alone because they are in somebody else's group.
    pub threads_left_alone: u64,
    /// `CPU-bound`, `cache-friendly`, `thrashing`; null: too little is known.
    pub class: Option<String>,
    /// The class was given on the command line.
    pub told: bool,
    /// Accesses of the last level per 1,000 instructions.
    pub accesses_pki: Option<f64>,
    /// Misses with the whole of it, or all but the minimal part.
    pub misses_full_pki: Option<f64>,
    /// Misses with the minimal part.
    pub misses_minimal_pki: Option<f64>,
    /// Its share at the end, or what it would be given: `untouched`, `minimal`, `rest`; null: not decided.
    pub share: Option<String>,
    /// What its lines occupied at the end.
    pub occupancy_bytes: Option<u64>,
    /// Moved between the last level and memory while it was monitored.
    pub memory_bytes: Option<u64>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlcChange {
    /// From the beginning.
    pub at_ns: u64,
    /// Which VM.
    pub vm: String,
    /// Its process.
    pub pid: i64,
    /// `untouched`, `minimal`, `rest`.
    pub to: String,
    /// Why.
    pub reason: String,
}

impl LlcReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.llc/1";
    /// Changes that are kept.
    pub const CHANGES_MAX: usize = 1000;
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1} MiB", value as f64 / f64::from(1 << 20)))
}

impl LlcReport {
    fn write_host(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        if let (Some(ways), Some(caches)) = (&host.ways_mask, host.caches) {
            write!(f, "Cache allocation: {}, ways {ways}", text::count(caches, "L3 cache"))?;
            if let Some(devices) = host.shared_with_devices_mask.as_deref().filter(|mask| *mask != "0") {
                write!(f, ", {devices} of them filled by devices as well")?;
            }
            if let Some(free) = host.classes_free {
                write!(
                    f,
                    ", {} free",
                    text::count(free, "class of service").replace("class of services", "classes of service")
                )?;
            }
            writeln!(f, "{}.", if host.cdp == Some(true) { ", code and data apart" } else { "" })?;
        }
        for missing in &self.missing {
            writeln!(f, "Missing: {missing}.")?;
        }
        Ok(())
    }

    fn write_vms(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.vms.is_empty() {
            return Ok(());
        }
        let mut table = text::table(&[
            "VM",
            "pid",
            "threads",
            "class",
            "accesses",
            "misses",
            "with minimum",
            "share",
            "occupies",
            "memory",
        ]);
        for vm in &self.vms {
            let class = vm
                .class
                .clone()
                .map_or_else(|| "not known".to_owned(), |class| class + if vm.told { " (told)" } else { "" });
            table.add_row([
                vm.name.clone(),
                vm.pid.to_string(),
                vm.threads.to_string(),
                class,
                figure(vm.accesses_pki),
                figure(vm.misses_full_pki),
                figure(vm.misses_minimal_pki),
                vm.share.clone().unwrap_or_else(|| "-".to_owned()),
                bytes(vm.occupancy_bytes),
                bytes(vm.memory_bytes),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "(accesses and misses of the last level per 1,000 instructions)")
    }
}

impl fmt::Display for LlcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_host(f)?;
        for group in &self.groups {
            let who = if group.share == "minimal" { "thrashing VMs" } else { "cache-friendly VMs" };
            let verb = if group.name.is_some() { "filled" } else { "would fill" };
            let none = if group.ways_mask == "0" { " (none)" } else { "" };
            writeln!(f, "{who} {verb} the ways {}{none}.", group.ways_mask)?;
        }
        self.write_vms(f)?;
        for change in &self.changes {
            let at = text::duration(Some(change.at_ns));
            writeln!(f, "{at:>10}  {} (pid {}) -> {}: {}", change.vm, change.pid, change.to, change.reason)?;
        }
        if self.changes_left_out > 0 {
            writeln!(f, "{} more.", text::count(self.changes_left_out, "change"))?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "Warning: {warning}"))?;
        match (self.changed, self.restored) {
            (false, _) => writeln!(f, "Nothing was changed."),
            (true, true) => writeln!(f, "Everything was undone."),
            (true, false) => writeln!(f, "Not everything could be undone: run `gleaner restore`."),
        }
    }
}
