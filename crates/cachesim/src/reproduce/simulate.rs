//! One mix under one technique.

use super::ReproduceError;
use super::programs::Program;
use super::source::Source;
use crate::hierarchy::{HierarchyConfig, LlcWatch};
use crate::line::ContextId;
use crate::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES, SwitchHook, TABLE_V_HZ, cycles};
use crate::paging::{PagingConfig, deal_colours};
use crate::policy::PolicyKind;
use crate::prefetch::{PrefetchParams, Records, RestoreCounters, Restorer};
use gleaner_decide::host::{Insertion, InsertionParams};
use gleaner_model::Nanos;

/// What is done about the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Preservation {
    /// Nothing: insertion at MRU.
    None,
    /// The paper's time sampling.
    DipTime(InsertionParams),
    /// A fixed insertion for each context.
    Fixed(Vec<Insertion>),
}

/// How a mix is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Time slice.
    pub slice: Nanos,
    /// Quanta of each context before counting begins.
    pub warm_up_quanta: u64,
    /// Quanta of each context that are counted.
    pub quanta: u64,
    /// Insertion.
    pub preservation: Preservation,
    /// Context prefetching.
    pub prefetch: Option<PrefetchParams>,
    /// Shares of the page colours; none: every context has all.
    pub colour_shares: Vec<u32>,
}

/// What one context got done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextResult {
    /// Instructions executed.
    pub instructions: u64,
    /// Cycles per instruction.
    pub cpi: f64,
    /// Those of them that the core waited for memory.
    pub memory_cpi: f64,
    /// Demand misses of the last level and write-backs, lines per instruction.
    pub demand_per_instruction: f64,
    /// Lines prefetched, per instruction.
    pub prefetches_per_instruction: f64,
    /// Lines that records took, per instruction.
    pub records_per_instruction: f64,
}

/// Runs it.
pub fn simulate(
    programs: &[&'static Program],
    setup: &Setup,
    source: &Source,
) -> Result<Vec<ContextResult>, ReproduceError> {
    let policy = match &setup.preservation {
        Preservation::None => PolicyKind::Lru,
        Preservation::DipTime(params) => PolicyKind::DipTime(*params),
        Preservation::Fixed(insertions) => PolicyKind::PerContext(insertions.clone()),
    };
    let hierarchy = HierarchyConfig::table_v(1, programs.len(), policy)?;
    let colours = match setup.colour_shares.as_slice() {
        [] => Vec::new(),
        shares => deal_colours(hierarchy.l3.geometry, shares)?,
    };
    let context = |program: &&Program| ContextConfig { core: 0, core_model: program.core_model() };
    let config = MachineConfig {
        hierarchy,
        paging: PagingConfig { colours, ..PagingConfig::default() },
        contexts: programs.iter().map(context).collect(),
        slice_cycles: cycles(setup.slice, TABLE_V_HZ),
        switch_cycles: SWITCH_CYCLES,
    };
    let turn = |index: usize| programs[..index].iter().filter(|before| before.name == programs[index].name).count();
    let traces = programs.iter().enumerate().map(|(index, program)| source.open(program, turn(index)));
    let traces = traces.collect::<Result<Vec<_>, _>>()?;
    match setup.prefetch {
        None => run(Machine::new(config, traces)?, setup, 0, |(), _| RestoreCounters::default()),
        Some(params) => {
            let machine = Machine::with_hooks(config, traces, Records::new(params), Restorer::new(1))?;
            run(machine, setup, params.entry_bytes, Restorer::counters)
        }
    }
}

fn run<W: LlcWatch, H: SwitchHook<W>>(
    mut machine: Machine<W, H>,
    setup: &Setup,
    entry_bytes: u64,
    counters: impl Fn(&H, ContextId) -> RestoreCounters,
) -> Result<Vec<ContextResult>, ReproduceError> {
    machine.run_quanta(setup.warm_up_quanta)?;
    machine.reset_counters();
    let contexts = (0..=u8::MAX).map(ContextId);
    let before: Vec<_> = contexts.map(|context| counters(machine.hook(), context)).collect();
    machine.run_quanta(setup.quanta)?;
    let outcome = machine.outcome();
    let results = (0..=u8::MAX).map(ContextId).zip(&outcome.contexts).zip(before).map(|((id, context), before)| {
        let after = counters(machine.hook(), id);
        let per_instruction = |count: u64| count as f64 / context.instructions.max(1) as f64;
        let l3 = context.counters.l3;
        ContextResult {
            instructions: context.instructions,
            cpi: per_instruction(context.cycles),
            memory_cpi: per_instruction(context.memory_stall_cycles),
            demand_per_instruction: per_instruction(l3.misses + l3.writebacks),
            prefetches_per_instruction: per_instruction(after.restored_lines - before.restored_lines),
            records_per_instruction: per_instruction(
                (after.metadata_bytes(entry_bytes) - before.metadata_bytes(entry_bytes)) / 64,
            ),
        }
    });
    Ok(results.collect())
}
