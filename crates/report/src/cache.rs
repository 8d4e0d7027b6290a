//! `gleaner.cache/1`: contexts that took turns on simulated cores and caches.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner-lab cache run` simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheReport {
    /// `gleaner.cache/1`.
    pub schema: String,
    /// The machine.
    pub machine: CacheMachine,
    /// Why there is less than was asked for: `interrupt`, `max-time` or `max-accesses`; null: there is all of it.
    #[serde(default)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheMachine {
    /// Cores that share the last level.
    pub cores: u64,
    /// Clock.
    pub clock_hz: u64,
    /// Time slice.
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
    /// Its ways.
    pub llc_ways: u64,
    /// Whether it holds whatever the levels before it hold.
    pub inclusive: bool,
    /// Feeds what is decided by chance.
    pub seed: u64,
}

/// One context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheContext {
    /// Its trace, or the profile it was made up from.
    pub name: String,
    /// Where it ran.
    pub core: u64,
    /// Quanta it got.
    pub quanta: u64,
    /// Whether its trace ended before its quanta did.
    pub trace_over: bool,
    /// Instructions executed.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheLevel {
    /// Demand accesses.
    pub accesses: u64,
    /// Those that the level could not serve.
    pub misses: u64,
    /// Dirty lines that left it downwards.
    pub writebacks: u64,
}

/// Transfers of cache lines from and to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl CacheReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.cache/1";
}

impl fmt::Display for CacheReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        text::partial(f, self.stopped_by.as_deref())?;
        writeln!(
            f,
            "{} on {}, slices of {}, last-level cache of {} in {} ways, {}:",
            text::count(self.contexts.len() as u64, "context"),
            text::count(machine.cores, "core"),
            text::duration(Some(machine.slice_ns)),
            text::bytes(machine.llc_bytes),
            machine.llc_ways,
            machine.policy
        )?;
        if machine.prefetch != "none" {
            writeln!(f, "Context prefetching: {}.", machine.prefetch)?;
        }
        if !machine.colour_shares.is_empty() {
            let shares: Vec<String> = machine.colour_shares.iter().map(u64::to_string).collect();
            writeln!(f, "Page colours dealt out {}.", shares.join(":"))?;
        }
        let mut table = text::table(&[
            "context",
            "core",
            "quanta",
            "instructions",
            "CPI",
            "level",
            "accesses",
            "misses",
            "missed",
            "writebacks",
        ]);
        for context in &self.contexts {
            let levels = [("L1I", context.l1i), ("L1D", context.l1d), ("L2", context.l2), ("L3", context.l3)];
            for (at, (name, level)) in levels.into_iter().enumerate() {
                let once = |text: String| if at == 0 { text } else { String::new() };
                let missed = if level.accesses == 0 {
                    "-".to_owned()
                } else {
                    text::percent(level.misses as f64 / level.accesses as f64)
                };
                table.add_row([
                    once(context.name.clone()),
                    once(context.core.to_string()),
                    once(context.quanta.to_string()),
                    once(context.instructions.to_string()),
                    once(context.cpi.map_or_else(|| "-".to_owned(), |cpi| format!("{cpi:.3}"))),
                    name.to_owned(),
                    level.accesses.to_string(),
                    level.misses.to_string(),
                    missed,
                    level.writebacks.to_string(),
                ]);
            }
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "Memory: {} lines read, {} written{}; {}.",
            self.memory.reads,
            self.memory.writes,
            match self.machine.prefetch.as_str() {
                "none" => String::new(),
                _ => format!(", {} prefetched, {} of records", self.memory.prefetches, self.memory.metadata),
            },
            text::count(self.switches, "context switch")
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}
