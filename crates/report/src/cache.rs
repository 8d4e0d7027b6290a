//! `gleaner.cache/1`: contexts that took turns on simulated cores and caches.

use crate::show::{Document, Row, Shown, line, notes, table};
use crate::text::{bytes, count, fixed, partial, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `gleaner-lab cache run` simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheReport {
    pub schema: String,
    pub machine: CacheMachine,
    /// Why there is less than was asked for: `interrupt`, `max-time` or `max-accesses`; null: there is all of it.
    pub stopped_by: Option<String>,
    /// One for each trace, in their order.
    pub contexts: Vec<CacheContext>,
    /// What memory was asked for, all contexts together.
    pub memory: CacheMemory,
    /// Context switches, all cores together.
    pub switches: u64,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// The machine that was simulated; what is not here is Table V's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheMachine {
    /// Cores that share the last level.
    pub cores: u64,
    pub clock_hz: u64,
    pub slice_ns: u64,
    /// Quanta of that length that count, for each context.
    pub quanta: u64,
    /// Quanta before those, which do not count.
    pub warmup_quanta: u64,
    /// Insertion policy of the last level.
    pub policy: String,
    /// Context prefetching: `none`, `daly-cain` or `recap`.
    #[serde(default = "none")]
    pub prefetch: String,
    /// In which shares page colours were dealt out to the contexts; empty: left to chance.
    #[serde(default)]
    pub colour_shares: Vec<u64>,
    /// Size of the last level.
    pub llc_bytes: u64,
    pub llc_ways: u64,
    /// Whether it holds whatever the levels before it hold.
    pub inclusive: bool,
    /// Feeds what is decided by chance.
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheContext {
    /// Its trace, or the profile it was made up from.
    pub name: String,
    /// Where it ran.
    pub core: u64,
    /// Quanta it got.
    pub quanta: u64,
    /// Whether its trace ended before its quanta did.
    pub trace_over: bool,
    pub instructions: u64,
    /// Cycles on its core, switches not included.
    pub cycles: u64,
    /// Cycles per instruction; null if it executed none.
    pub cpi: Option<f64>,
    /// Misses of the last level per 1,000 instructions; null if it executed none.
    pub llc_misses_pki: Option<f64>,
    /// First-level instruction cache.
    pub l1i: CacheLevel,
    /// First-level data cache.
    pub l1d: CacheLevel,
    /// Second level.
    pub l2: CacheLevel,
    /// Last level.
    pub l3: CacheLevel,
}

/// What a context did at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheLevel {
    /// Demand accesses.
    pub accesses: u64,
    /// Those that the level could not serve.
    pub misses: u64,
    /// Dirty lines that left it downwards.
    pub writebacks: u64,
}

/// Transfers of cache lines from and to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheMemory {
    /// Because a demand access missed.
    pub reads: u64,
    /// Written back.
    pub writes: u64,
    /// Read ahead of need by context prefetching.
    #[serde(default)]
    pub prefetches: u64,
    /// Written and read for the prefetcher's records.
    #[serde(default)]
    pub metadata: u64,
    /// Cycles that reads waited for the channel.
    pub read_wait_cycles: u64,
}

/// Results of before there was a choice.
fn none() -> String {
    "none".to_owned()
}

impl Shown for CacheReport {
    fn document(&self) -> Document {
        let mut document = Document::new("Simulated caches");
        let CacheMachine { cores, slice_ns, llc_bytes, llc_ways, policy, prefetch, colour_shares, .. } = &self.machine;
        let (contexts, cores) = (count(self.contexts.len() as u64, "context"), count(*cores, "core"));
        let (slice, llc) = (time(*slice_ns), bytes(*llc_bytes));
        document.both(self.stopped_by.as_deref().map(|by| line(partial(by))));
        document.both(line(format!(
            "{contexts} on {cores}, slices of {slice}, last-level cache of {llc} in {llc_ways} ways, {policy}:"
        )));
        let prefetches = prefetch != "none";
        document.both(prefetches.then(|| line(format!("Context prefetching: {prefetch}."))));
        let shares: Vec<String> = colour_shares.iter().map(u64::to_string).collect();
        document.both((!shares.is_empty()).then(|| line(format!("Page colours dealt out {}.", shares.join(":")))));
        document.both(table("", self.contexts.iter().flat_map(CacheContext::cells)));
        let CacheMemory { reads, writes, prefetches: ahead, metadata, .. } = &self.memory;
        let ahead = if prefetches { format!(", {ahead} prefetched, {metadata} of records") } else { String::new() };
        let switches = count(self.switches, "context switch");
        document.both(line(format!("Memory: {reads} lines read, {writes} written{ahead}; {switches}.")));
        document.both(notes(&self.notes));
        document
    }
}

impl CacheContext {
    /// A row for each level; what is said of all of them stands in the first.
    fn cells(&self) -> impl Iterator<Item = Row> {
        let levels = [("L1I", self.l1i), ("L1D", self.l1d), ("L2", self.l2), ("L3", self.l3)];
        levels.into_iter().enumerate().map(|(at, (name, level))| {
            let once = |text: String| if at == 0 { text } else { String::new() };
            Row::default()
                .text("context", once(self.name.clone()))
                .number("core", once(self.core.to_string()))
                .number("quanta", once(self.quanta.to_string()))
                .number("instructions", once(self.instructions.to_string()))
                .number("CPI", once(fixed(self.cpi, 3)))
                .text("level", name)
                .number("accesses", level.accesses)
                .number("misses", level.misses)
                .percent("missed", (level.accesses > 0).then(|| level.misses as f64 / level.accesses as f64))
                .number("writebacks", level.writebacks)
        })
    }
}
