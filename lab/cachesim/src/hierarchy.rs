//! Private L1 instruction, L1 data and L2 caches for each core, one shared L3, memory.
//!
//! ```text
//! core 0: L1I  L1D      core 1: L1I  L1D
//!           L2                    L2
//!           +---------- L3 ---------+      replacement policy by choice; the private levels are LRU
//!                      DRAM
//! ```
//!
//! A demand miss fills every level on its way. No level is inclusive of another: an inclusive L3 that inserts at LRU
//! would take lines out of the L1 that are used all the time, and nothing in the paper says that its caches were. A
//! dirty line that is evicted is written to the level below, which allocates it if it is
//! not there, and keeps its place in the recency stack if it is: a write-back is no reuse.
//!
//! A context runs on one core, and contexts share no memory, so there is no coherence.

use crate::cache::{Cache, Fill};
use crate::dram::{Dram, DramConfig, DramCounters, Transfer};
use crate::geometry::{Geometry, GeometryError, LINES_MAX};
use crate::line::{ContextId, Line};
use crate::policy::{Policy, PolicyKind};
use crate::trace::Kind;

/// Shape and latency of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelConfig {
    /// Its shape.
    pub geometry: Geometry,
    /// Cycles that an access to this level adds to those of the levels above.
    pub latency_cycles: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HierarchyConfig {
    /// Cores, each with an L1I, L1D and L2 of its own. 1 to 64.
    pub cores: usize,
    /// Contexts whose accesses are counted apart, 1 to 256.
    pub contexts: usize,
    /// First-level instruction cache.
    pub l1i: LevelConfig,
    /// First-level data cache.
    pub l1d: LevelConfig,
    /// Second level.
    pub l2: LevelConfig,
    /// Last level, shared.
    pub l3: LevelConfig,
    /// Replacement policy of the last level.
    pub l3_policy: PolicyKind,
    /// Main memory.
    pub dram: DramConfig,
}

impl HierarchyConfig {
    /// Table V for `cores` cores that share the L3: L1I/L1D 32 KB 4-way 2/4 cycles, L2 256 KB 8-way 6 cycles, L3 2 MB
    /// 16-way 27 cycles, 64-byte lines, DDR3-1600. The latencies are taken to add up from level to level.
    pub fn table_v(cores: usize, contexts: usize, l3_policy: PolicyKind) -> Result<Self, GeometryError> {
        let level = |size_bytes, ways, latency_cycles| {
            Geometry::new(size_bytes, ways, 64).map(|geometry| LevelConfig { geometry, latency_cycles })
        };
        Ok(Self {
            cores,
            contexts,
            l1i: level(32 << 10, 4, 2)?,
            l1d: level(32 << 10, 4, 4)?,
            l2: level(256 << 10, 8, 6)?,
            l3: level(2 << 20, 16, 27)?,
            l3_policy,
            dram: DramConfig::default(),
        })
    }

    fn validate(&self) -> Result<(), GeometryError> {
        let in_range = |what: &str, count: usize, most: usize| {
            if (1..=most).contains(&count) {
                return Ok(());
            }
            Err(GeometryError::new(format!("{count} {what}"), "out of range", format!("give 1 to {most}")))
        };
        in_range("cores", self.cores, 64)?;
        in_range("contexts", self.contexts, 256)?;
        let lines = |level: LevelConfig| level.geometry.lines() as u64;
        let private = lines(self.l1i) + lines(self.l1d) + lines(self.l2);
        let all = lines(self.l3) + self.cores as u64 * private;
        if all > LINES_MAX {
            return Err(GeometryError::new(
                format!("{all} lines in the caches of {} cores and the L3", self.cores),
                format!("more than {LINES_MAX}, which would take too much memory"),
                "give fewer cores or smaller caches",
            ));
        }
        let line_bytes = self.l3.geometry.line_bytes();
        for (name, level) in [("L1I", self.l1i), ("L1D", self.l1d), ("L2", self.l2)] {
            if level.geometry.line_bytes() != line_bytes {
                return Err(GeometryError::new(
                    format!("{name} lines of {} bytes", level.geometry.line_bytes()),
                    format!("the L3's have {line_bytes}"),
                    "give all levels the same line length",
                ));
            }
        }
        Ok(())
    }
}

/// What one context did at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Demand accesses.
    pub accesses: u64,
    /// Demand accesses that the level could not serve.
    pub misses: u64,
    /// Dirty lines of this context's that left the level downwards.
    pub writebacks: u64,
}

/// What one context did at each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextCounters {
    /// Instruction fetches.
    pub l1i: LevelCounters,
    /// Loads and stores.
    pub l1d: LevelCounters,
    /// Second level.
    pub l2: LevelCounters,
    /// Last level.
    pub l3: LevelCounters,
    /// First demand hits on lines that a prefetch had brought into the last level.
    pub prefetches_used: u64,
}

/// Where an access found its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// In the first level.
    L1,
    /// In the second.
    L2,
    /// In the last.
    L3,
    Memory,
}

/// Somebody who wants to see what the last level does, such as a context prefetcher.
pub trait LlcWatch {
    /// `line` had to go for a line of `by`.
    fn evicted(&mut self, _line: Line, _by: ContextId) {}
    /// A demand access of `by` found its line.
    fn hit(&mut self, _number: u64, _by: ContextId) {}
    /// A line is brought in for `by`.
    fn filled(&mut self, _number: u64, _by: ContextId, _why: Fill) {}
}

/// Nobody.
impl LlcWatch for () {}

struct Private {
    l1i: Cache,
    l1d: Cache,
    l2: Cache,
}

/// The caches and memory.
pub struct Hierarchy<W = ()> {
    config: HierarchyConfig,
    line_bits: u32,
    private: Vec<Private>,
    l3: Cache,
    dram: Dram,
    counters: Vec<ContextCounters>,
    watch: W,
}

impl<W: LlcWatch> Hierarchy<W> {
    /// Empty caches.
    pub fn new(config: HierarchyConfig, watch: W) -> Result<Self, GeometryError> {
        config.validate()?;
        let private = (0..config.cores).map(|_| Private {
            l1i: Cache::new(config.l1i.geometry, Policy::new(&PolicyKind::Lru)),
            l1d: Cache::new(config.l1d.geometry, Policy::new(&PolicyKind::Lru)),
            l2: Cache::new(config.l2.geometry, Policy::new(&PolicyKind::Lru)),
        });
        Ok(Self {
            line_bits: config.l3.geometry.line_bits(),
            private: private.collect(),
            l3: Cache::new(config.l3.geometry, Policy::new(&config.l3_policy)),
            dram: Dram::new(config.dram),
            counters: vec![ContextCounters::default(); config.contexts],
            watch,
            config,
        })
    }

    /// An access by `context`, running on `core`, to a physical address at cycle `now`. Returns where the line was and
    /// the cycle at which its data is there.
    #[inline]
    pub fn access(&mut self, core: usize, context: ContextId, kind: Kind, address: u64, now: u64) -> (Served, u64) {
        let number = address >> self.line_bits;
        let private = &mut self.private[core];
        let counters = &mut self.counters[usize::from(context.0)];
        let (l1, level, latency_cycles) = match kind {
            Kind::Fetch => (&mut private.l1i, &mut counters.l1i, self.config.l1i.latency_cycles),
            Kind::Read | Kind::Write => (&mut private.l1d, &mut counters.l1d, self.config.l1d.latency_cycles),
        };
        level.accesses += 1;
        if l1.access(number, kind == Kind::Write) {
            return (Served::L1, now + latency_cycles);
        }
        level.misses += 1;
        self.beyond_l1(core, context, kind, number, now + latency_cycles)
    }

    fn beyond_l1(&mut self, core: usize, context: ContextId, kind: Kind, number: u64, now: u64) -> (Served, u64) {
        let after_l2 = now + self.config.l2.latency_cycles;
        let after_l3 = after_l2 + self.config.l3.latency_cycles;
        let index = usize::from(context.0);
        self.counters[index].l2.accesses += 1;
        let answer = if self.private[core].l2.access(number, false) {
            (Served::L2, after_l2)
        } else {
            self.counters[index].l2.misses += 1;
            let answer = if self.access_l3(context, number) {
                (Served::L3, after_l3)
            } else {
                let ready_at = self.dram.transfer(after_l3, Transfer::Read);
                self.fill_l3(number, context, Fill::Clean, after_l3);
                (Served::Memory, ready_at)
            };
            self.fill_l2(core, number, context, Fill::Clean, after_l3);
            answer
        };
        let private = &mut self.private[core];
        let (l1, why) = match kind {
            Kind::Fetch => (&mut private.l1i, Fill::Clean),
            Kind::Read => (&mut private.l1d, Fill::Clean),
            Kind::Write => (&mut private.l1d, Fill::Dirty),
        };
        if let Some(evicted) = l1.fill(number, context, why).filter(|line| line.is_dirty()) {
            self.counters[usize::from(evicted.context().0)].l1d.writebacks += 1;
            if !self.private[core].l2.write_back(evicted.number()) {
                self.fill_l2(core, evicted.number(), evicted.context(), Fill::Dirty, after_l2);
            }
        }
        answer
    }

    fn access_l3(&mut self, context: ContextId, number: u64) -> bool {
        let counters = &mut self.counters[usize::from(context.0)];
        counters.l3.accesses += 1;
        let Some(before) = self.l3.access_line(number, false) else {
            counters.l3.misses += 1;
            return false;
        };
        counters.prefetches_used += u64::from(before.is_prefetched());
        self.watch.hit(number, context);
        true
    }

    fn fill_l2(&mut self, core: usize, number: u64, context: ContextId, why: Fill, now: u64) {
        let evicted = self.private[core].l2.fill(number, context, why);
        let Some(evicted) = evicted.filter(|line| line.is_dirty()) else { return };
        self.counters[usize::from(evicted.context().0)].l2.writebacks += 1;
        if !self.l3.write_back(evicted.number()) {
            self.fill_l3(evicted.number(), evicted.context(), Fill::Dirty, now);
        }
    }

    fn fill_l3(&mut self, number: u64, context: ContextId, why: Fill, now: u64) {
        let evicted = self.l3.fill(number, context, why);
        self.watch.filled(number, context, why);
        let Some(evicted) = evicted else { return };
        self.watch.evicted(evicted, context);
        if evicted.is_dirty() {
            self.counters[usize::from(evicted.context().0)].l3.writebacks += 1;
            self.dram.transfer(now, Transfer::Write);
        }
    }

    /// Brings a line into the last level ahead of need, at cycle `now`: to where a hit would have moved it, whatever
    /// the policy does with new lines. One that is there already goes there too: then it is false, and no traffic.
    pub fn prefetch(&mut self, context: ContextId, number: u64, now: u64) -> bool {
        let fetched = !self.l3.contains(number);
        if fetched {
            self.dram.transfer(now, Transfer::Prefetch);
            self.fill_l3(number, context, Fill::Prefetch, now);
        }
        self.l3.promote(number);
        fetched
    }

    /// The last level.
    pub fn l3(&self) -> &Cache {
        &self.l3
    }

    /// Memory.
    pub fn dram(&self) -> &Dram {
        &self.dram
    }

    /// Memory, for traffic that is no line of a program's.
    pub fn dram_mut(&mut self) -> &mut Dram {
        &mut self.dram
    }

    /// Whoever watches the last level.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Whoever watches the last level.
    pub fn watch_mut(&mut self) -> &mut W {
        &mut self.watch
    }

    /// What a context did.
    pub fn counters(&self, context: ContextId) -> ContextCounters {
        self.counters[usize::from(context.0)]
    }

    /// What memory was asked for.
    pub fn dram_counters(&self) -> DramCounters {
        self.dram.counters()
    }

    /// Counts from zero again; what is cached stays. For the end of a warm-up.
    pub fn reset_counters(&mut self) {
        self.counters.fill(ContextCounters::default());
        self.dram.reset_counters();
    }

    /// A core's L1I, L1D and L2, for whoever checks their contents.
    pub fn private_caches(&self, core: usize) -> [&Cache; 3] {
        let private = &self.private[core];
        [&private.l1i, &private.l1d, &private.l2]
    }

    /// Tells the last level's policy that a context gets a core.
    pub fn quantum_started(&mut self, context: ContextId) {
        self.l3.policy_mut().quantum_started(context);
    }

    /// Tells the last level's policy what a quantum was like.
    pub fn quantum_ended(&mut self, context: ContextId, quantum: crate::insertion::Quantum) {
        self.l3.policy_mut().quantum_ended(context, quantum);
    }
}
