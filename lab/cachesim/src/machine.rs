//! Contexts that take turns on cores, each with its trace.
//!
//! Every core runs its contexts round robin, a slice each, as the paper's fixed-slice scheduler does (section V-A:
//! 102,000,000 cycles for 30 ms and 3,400,000 for 1 ms at 3.4 GHz). A switch waits for what is under way, costs a fixed
//! number of cycles, and leaves the caches as they are; what they have lost is then paid miss by miss. Cores that share
//! the L3 and memory advance together, the one that is behind first, and none stops before all may: one that did would
//! find memory booked in its own future later on.

use crate::core_model::{CoreClock, CoreConfig, TICKS_PER_CYCLE};
use crate::dram::DramCounters;
use crate::geometry::GeometryError;
use crate::hierarchy::{ContextCounters, Hierarchy, HierarchyConfig, LlcWatch, Served};
use crate::insertion::Quantum;
use crate::line::ContextId;
use crate::paging::{Paging, PagingConfig};
use crate::trace::{BATCH, Kind, Record, Trace, TraceError};
use gleaner_model::Nanos;

/// The clock of Table V, Hz.
pub const TABLE_V_HZ: u64 = 3_400_000_000;

/// So many nanoseconds in cycles.
pub fn cycles(time: Nanos, clock_hz: u64) -> u64 {
    u64::try_from(u128::from(time.0) * u128::from(clock_hz) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextConfig {
    /// The core it runs on, from 0.
    pub core: usize,
    /// How this program runs on it.
    pub core_model: CoreConfig,
}

/// The whole machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineConfig {
    /// Caches and memory; its `cores` and `contexts` are the machine's.
    pub hierarchy: HierarchyConfig,
    /// Address mapping.
    pub paging: PagingConfig,
    /// One for each context, in the order of their numbers.
    pub contexts: Vec<ContextConfig>,
    /// Time slice, cycles, at least 1.
    pub slice_cycles: u64,
    /// Direct cost of a switch between two contexts, cycles. The paper gives none; ours is 3,400, 1 us at 3.4 GHz.
    pub switch_cycles: u64,
}

/// The default direct cost of a switch, cycles.
pub const SWITCH_CYCLES: u64 = 3_400;

/// Cores that run beside each other may be this far apart, cycles: fine against a slice, coarse against the cost of
/// changing between them.
const SKEW_CYCLES: u64 = 200;

/// More records in a row than one instruction makes: whoever filters a trace may have left its instructions out, and
/// time has to pass. The longest, an XSAVE, has 256 lines, which lackey may call a load and a store each.
const RECORDS_PER_INSTRUCTION_MAX: u32 = 512;

/// Told when contexts change; what a context prefetcher needs besides [`LlcWatch`].
pub trait SwitchHook<W> {
    /// `context` is about to run on `core`, at `cycle`.
    fn switched_in(&mut self, _hierarchy: &mut Hierarchy<W>, _core: usize, _context: ContextId, _cycle: u64) {}
    /// `context` has just left `core`.
    fn switched_out(&mut self, _hierarchy: &mut Hierarchy<W>, _core: usize, _context: ContextId, _cycle: u64) {}
    /// The cycle at which [`Self::running`] is to be called for `core`; `u64::MAX` for never. Asked again after each
    /// call.
    fn due_cycle(&self, _core: usize) -> u64 {
        u64::MAX
    }
    /// `context` is running on `core` and `due_cycle` is reached. Must move `due_cycle` beyond `cycle`.
    fn running(&mut self, _hierarchy: &mut Hierarchy<W>, _core: usize, _context: ContextId, _cycle: u64) {}
}

/// Nobody is told.
impl<W> SwitchHook<W> for () {}

/// What became of one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOutcome {
    /// Instructions executed.
    pub instructions: u64,
    /// Cycles on a core, switches not included.
    pub cycles: u64,
    /// Those of them in which the core stood still for data from memory.
    pub memory_stall_cycles: u64,
    /// Quanta begun, since the last reset if there was one.
    pub quanta: u64,
    /// Whether its trace is over.
    pub over: bool,
    /// What it did at each level.
    pub counters: ContextCounters,
}

impl ContextOutcome {
    /// Cycles per instruction; `None` if it has not run.
    pub fn cpi(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.cycles as f64 / self.instructions as f64)
    }
}

/// What became of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By context number.
    pub contexts: Vec<ContextOutcome>,
    /// Memory's counters.
    pub dram: DramCounters,
    /// Switches, all cores together.
    pub switches: u64,
}

struct Context {
    config: ContextConfig,
    trace: Box<dyn Trace>,
    batch: Vec<Record>,
    at: usize,
    /// Records since one with an instruction.
    without_instruction: u32,
    /// Since the start, whatever has been reset.
    quanta_ended: u64,
    done: ContextOutcome,
}

/// A quantum under way.
#[derive(Clone, Copy)]
struct Running {
    context: usize,
    started_cycle: u64,
    started_misses: u64,
    /// Misses that a reset has taken out of the counters: they are none of the outcome's, but the policy's all the
    /// same.
    misses_before_reset: u64,
    end_cycle: u64,
    /// The core's clock when counting began: at the start, or at a reset since.
    counted_from: Reading,
}

/// What a core's clock says.
#[derive(Clone, Copy)]
struct Reading {
    cycle: u64,
    instructions: u64,
    stall_cycles: u64,
}

impl Reading {
    fn of(clock: &CoreClock) -> Self {
        Self { cycle: clock.cycle(), instructions: clock.instructions(), stall_cycles: clock.memory_stall_cycles() }
    }
}

struct Core {
    clock: CoreClock,
    contexts: Vec<usize>,
    /// Whose turn is next, an index into `contexts`.
    turn: usize,
    running: Option<Running>,
    last: Option<usize>,
}

/// A machine that can be run piece by piece.
pub struct Machine<W = (), H = ()> {
    hierarchy: Hierarchy<W>,
    paging: Paging,
    contexts: Vec<Context>,
    cores: Vec<Core>,
    slice_cycles: u64,
    switch_cycles: u64,
    switches: u64,
    /// So many quanta every context is to have had, since the start.
    quanta_due: u64,
    hook: H,
}

impl Machine {
    /// A machine with empty caches; one trace for each context.
    pub fn new(config: MachineConfig, traces: Vec<Box<dyn Trace>>) -> Result<Self, GeometryError> {
        Self::with_hooks(config, traces, (), ())
    }
}

impl<W: LlcWatch, H: SwitchHook<W>> Machine<W, H> {
    /// As [`Machine::new`], with somebody who watches the last level and the switches.
    pub fn with_hooks(
        config: MachineConfig,
        traces: Vec<Box<dyn Trace>>,
        watch: W,
        hook: H,
    ) -> Result<Self, GeometryError> {
        let MachineConfig { mut hierarchy, paging, contexts, slice_cycles, switch_cycles } = config;
        if contexts.len() != traces.len() {
            return Err(GeometryError::new(
                format!("{} contexts and {} traces", contexts.len(), traces.len()),
                "each context runs one trace",
                "give as many of one as of the other",
            ));
        }
        if let Some(lost) = contexts.iter().find(|context| context.core >= hierarchy.cores) {
            return Err(GeometryError::new(
                format!("a context on core {}", lost.core),
                format!("the machine has {} cores", hierarchy.cores),
                "number cores from 0",
            ));
        }
        hierarchy.contexts = contexts.len();
        let cores = (0..hierarchy.cores).map(|core| Core {
            clock: CoreClock::new(CoreConfig::default()),
            contexts: (0..contexts.len()).filter(|context| contexts[*context].core == core).collect(),
            turn: 0,
            running: None,
            last: None,
        });
        Ok(Self {
            cores: cores.collect(),
            paging: Paging::new(&paging, hierarchy.l3.geometry)?,
            hierarchy: Hierarchy::new(hierarchy, watch)?,
            contexts: contexts.into_iter().zip(traces).map(|(config, trace)| Context::new(config, trace)).collect(),
            slice_cycles: slice_cycles.max(1),
            switch_cycles,
            switches: 0,
            quanta_due: 0,
            hook,
        })
    }

    /// Gives every context so many more quanta, or runs it to the end of its trace; on a core with fewer contexts one
    /// gets more. A trace's error ends the run, and what was counted is no result.
    pub fn run_quanta(&mut self, quanta: u64) -> Result<(), TraceError> {
        self.quanta_due = self.quanta_due.saturating_add(quanta);
        while self.contexts.iter().any(|context| !context.done.over && context.quanta_ended < self.quanta_due) {
            let Some(core) = self.hindmost() else { break };
            if self.cores[core].running.is_none() {
                self.switch_in(core);
            }
            let others = (0..self.cores.len()).filter(|other| *other != core && self.is_live(*other));
            let next = others.map(|other| self.cores[other].clock.cycle()).min();
            let until = next.map_or(u64::MAX, |next| next.saturating_add(SKEW_CYCLES));
            self.advance(core, until)?;
        }
        Ok(())
    }

    /// Whether one of the core's contexts has a trace left.
    fn is_live(&self, core: usize) -> bool {
        self.cores[core].contexts.iter().any(|context| !self.contexts[*context].done.over)
    }

    /// The core with something left to do that is furthest behind.
    fn hindmost(&self) -> Option<usize> {
        let live = (0..self.cores.len()).filter(|core| self.is_live(*core));
        live.min_by_key(|core| self.cores[*core].clock.now())
    }

    /// Begins the next context's quantum, if this core has one whose trace is not over.
    fn switch_in(&mut self, index: usize) {
        let core = &mut self.cores[index];
        let turns = core.contexts.len();
        let Some(turn) = (0..turns)
            .map(|ahead| (core.turn + ahead) % turns)
            .find(|turn| !self.contexts[core.contexts[*turn]].done.over)
        else {
            return;
        };
        core.turn = (turn + 1) % turns;
        let context = core.contexts[turn];
        if core.last != Some(context) {
            if core.last.is_some() {
                core.clock.pass(self.switch_cycles);
                self.switches += 1;
            }
            core.clock.adopt(self.contexts[context].config.core_model);
            core.last = Some(context);
        }
        let id = context_id(context);
        let started_cycle = core.clock.cycle();
        self.hook.switched_in(&mut self.hierarchy, index, id, started_cycle);
        self.hierarchy.quantum_started(id);
        self.contexts[context].done.quanta += 1;
        core.running = Some(Running {
            context,
            started_cycle,
            started_misses: self.hierarchy.counters(id).l3.misses,
            misses_before_reset: 0,
            end_cycle: started_cycle.saturating_add(self.slice_cycles),
            counted_from: Reading::of(&core.clock),
        });
    }

    /// Runs a core to a cycle, the end of its quantum, or the end of its trace.
    fn advance(&mut self, index: usize, until_cycle: u64) -> Result<(), TraceError> {
        let core = &mut self.cores[index];
        let Some(running) = core.running else { return Ok(()) };
        let context = &mut self.contexts[running.context];
        let id = context_id(running.context);
        let until_cycle = running.end_cycle.min(until_cycle);
        loop {
            let until = until_cycle.min(self.hook.due_cycle(index)).saturating_mul(TICKS_PER_CYCLE);
            while core.clock.now() < until {
                let Some(record) = context.next()? else {
                    context.done.over = true;
                    break;
                };
                core.clock.execute(u64::from(record.instructions));
                let address = self.paging.translate(id, record.address);
                let start = core.clock.load_start();
                let (served, done_at) = self.hierarchy.access(index, id, record.kind, address, start);
                if served != Served::L1 {
                    let from_memory = served == Served::Memory;
                    match record.kind {
                        Kind::Read => core.clock.load(done_at, from_memory),
                        Kind::Fetch => core.clock.stall_until(done_at, from_memory),
                        Kind::Write => {}
                    }
                }
            }
            if context.done.over || core.clock.has_reached(until_cycle) {
                break;
            }
            self.hook.running(&mut self.hierarchy, index, id, core.clock.cycle());
        }
        if context.done.over || core.clock.has_reached(running.end_cycle) {
            self.switch_out(index, running);
        }
        Ok(())
    }

    fn switch_out(&mut self, index: usize, running: Running) {
        let core = &mut self.cores[index];
        core.clock.drain();
        let id = context_id(running.context);
        let cycle = core.clock.cycle();
        let quantum = Quantum {
            misses: running.misses_before_reset + self.hierarchy.counters(id).l3.misses - running.started_misses,
            length: cycle - running.started_cycle,
        };
        let context = &mut self.contexts[running.context];
        context.quanta_ended += 1;
        context.done = running.counted(&core.clock, context.done);
        self.hierarchy.quantum_ended(id, quantum);
        self.hook.switched_out(&mut self.hierarchy, index, id, cycle);
        core.running = None;
    }

    /// What became of all since the start, or the last [`Self::reset_counters`], quanta under way included.
    pub fn outcome(&self) -> Outcome {
        let mut contexts: Vec<ContextOutcome> = (0..self.contexts.len())
            .map(|index| ContextOutcome {
                counters: self.hierarchy.counters(context_id(index)),
                ..self.contexts[index].done
            })
            .collect();
        for core in &self.cores {
            if let Some(running) = core.running {
                contexts[running.context] = running.counted(&core.clock, contexts[running.context]);
            }
        }
        Outcome { contexts, dram: self.hierarchy.dram_counters(), switches: self.switches }
    }

    /// Counts from zero again, for the end of a warm-up. Caches, clocks, traces and quanta under way go on.
    pub fn reset_counters(&mut self) {
        for core in &mut self.cores {
            if let Some(running) = &mut core.running {
                let misses = self.hierarchy.counters(context_id(running.context)).l3.misses;
                running.misses_before_reset += misses - running.started_misses;
                running.started_misses = 0;
                running.counted_from = Reading::of(&core.clock);
            }
        }
        self.hierarchy.reset_counters();
        self.switches = 0;
        for context in &mut self.contexts {
            context.done = ContextOutcome { over: context.done.over, ..ContextOutcome::default() };
        }
    }

    /// The caches and memory.
    pub fn hierarchy(&self) -> &Hierarchy<W> {
        &self.hierarchy
    }

    /// Whoever is told of switches.
    pub fn hook(&self) -> &H {
        &self.hook
    }
}

impl Running {
    /// `before`, with what has been counted in this quantum.
    fn counted(&self, clock: &CoreClock, before: ContextOutcome) -> ContextOutcome {
        let (now, from) = (Reading::of(clock), self.counted_from);
        ContextOutcome {
            instructions: before.instructions + now.instructions - from.instructions,
            cycles: before.cycles + now.cycle - from.cycle,
            memory_stall_cycles: before.memory_stall_cycles + now.stall_cycles - from.stall_cycles,
            ..before
        }
    }
}

impl Context {
    fn new(config: ContextConfig, trace: Box<dyn Trace>) -> Self {
        Self {
            config,
            trace,
            batch: Vec::with_capacity(BATCH),
            at: 0,
            without_instruction: 0,
            quanta_ended: 0,
            done: ContextOutcome::default(),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if self.at == self.batch.len() {
            self.batch.clear();
            self.at = 0;
            self.trace.fill(&mut self.batch)?;
        }
        let Some(record) = self.batch.get(self.at).copied() else { return Ok(None) };
        self.at += 1;
        Ok(Some(self.counted(record)))
    }

    /// With an instruction where too many records have had none.
    #[inline]
    fn counted(&mut self, record: Record) -> Record {
        if record.instructions > 0 {
            self.without_instruction = 0;
            return record;
        }
        self.without_instruction += 1;
        if self.without_instruction <= RECORDS_PER_INSTRUCTION_MAX {
            return record;
        }
        self.without_instruction = 0;
        Record { instructions: 1, ..record }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a hierarchy has at most 256 contexts")]
fn context_id(index: usize) -> ContextId {
    ContextId(index as u8)
}
