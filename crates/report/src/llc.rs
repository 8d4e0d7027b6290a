//! `gleaner.llc/1`: who was given which part of the last-level cache, and why.

use crate::show::{Document, Row, Shown, bad, line, table};
use crate::text::{count, time};
use serde::{Deserialize, Serialize};

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
    /// Changes that are kept.
    pub const CHANGES_MAX: usize = 1000;
}

impl Shown for LlcReport {
    fn document(&self) -> Document {
        let mut document = Document::new("Who was given which part of the last-level cache");
        document.both(self.host.words().map(line));
        document.both(self.missing.iter().map(|missing| line(format!("Missing: {missing}."))));
        document.both(self.groups.iter().map(|group| {
            let who = if group.share == "minimal" { "thrashing VMs" } else { "cache-friendly VMs" };
            let verb = if group.name.is_some() { "filled" } else { "would fill" };
            let none = if group.ways_mask == "0" { " (none)" } else { "" };
            line(format!("{who} {verb} the ways {}{none}.", group.ways_mask))
        }));
        document.both(table("", self.vms.iter().map(LlcVmResult::cells)));
        let unit = "(accesses and misses of the last level per 1,000 instructions)";
        document.both((!self.vms.is_empty()).then(|| line(unit)));
        document.both(self.changes.iter().map(|LlcChange { at_ns, vm, pid, to, reason }| {
            line(format!("{:>10}  {vm} (pid {pid}) -> {to}: {reason}", time(*at_ns)))
        }));
        if self.changes_left_out > 0 {
            document.both(line(format!("{} more.", count(self.changes_left_out, "change"))));
        }
        document.both(self.warnings.iter().map(|warning| line(format!("Warning: {warning}"))));
        document.both(match (self.changed, self.restored) {
            (false, _) => line("Nothing was changed."),
            (true, true) => line("Everything was undone."),
            (true, false) => bad("Not everything could be undone: run `gleaner restore`."),
        });
        document
    }
}

impl LlcHost {
    fn words(&self) -> Option<String> {
        let (ways, caches) = (self.ways_mask.as_ref()?, count(self.caches?, "L3 cache"));
        let devices = self.shared_with_devices_mask.as_deref().filter(|mask| *mask != "0");
        let more = [
            devices.map(|devices| format!(", {devices} of them filled by devices as well")),
            self.classes_free.map(|free| {
                let classes = if free == 1 { "class" } else { "classes" };
                format!(", {free} {classes} of service free")
            }),
            (self.cdp == Some(true)).then(|| ", code and data apart".to_owned()),
        ];
        Some(format!("Cache allocation: {caches}, ways {ways}{}.", more.into_iter().flatten().collect::<String>()))
    }
}

impl LlcVmResult {
    fn cells(&self) -> Row {
        let mib = |bytes: Option<u64>| bytes.map(|bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
        let told = if self.told { " (told)" } else { "" };
        let class = self.class.as_ref().map_or_else(|| "not known".to_owned(), |class| format!("{class}{told}"));
        Row::default()
            .text("VM", &self.name)
            .number("pid", self.pid)
            .number("threads", self.threads)
            .text("class", class)
            .fixed("accesses", self.accesses_pki, 1)
            .fixed("misses", self.misses_full_pki, 1)
            .fixed("with minimum", self.misses_minimal_pki, 1)
            .text("share", self.share.as_ref())
            .number("occupies", mib(self.occupancy_bytes))
            .number("memory", mib(self.memory_bytes))
    }
}
