//! One mix under one technique.

use super::programs::Program;
use super::result::{Extent, ReproduceError};
use super::source::Source;
use crate::hierarchy::{HierarchyConfig, LlcWatch};
use crate::line::ContextId;
use crate::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES, SwitchHook, TABLE_V_HZ, cycles};
use crate::paging::{PagingConfig, deal_colours};
use crate::policy::PolicyKind;
use crate::prefetch::{PrefetchParams, Records, RestoreCounters, Restorer};
use crate::trace::Trace;
use gleaner_model::Nanos;

/// How a mix is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Time slice.
    pub slice: Nanos,
    /// Quanta of each context before counting begins.
    pub warm_up_quanta: u64,
    /// Quanta of each context that are counted.
    pub quanta: u64,
    pub insertion: PolicyKind,
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
    let hierarchy = HierarchyConfig::table_v(1, programs.len(), setup.insertion.clone())?;
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
    let traces = traces(programs, source)?;
    match setup.prefetch {
        None => run(Machine::new(config, traces)?, setup, 0, |(), _| RestoreCounters::default()),
        Some(params) => {
            let machine = Machine::with_hooks(config, traces, Records::new(params), Restorer::new(1))?;
            run(machine, setup, params.entry_bytes, Restorer::counters)
        }
    }
}

/// One trace for each program. Where a trace is used more than once, be it for two programs that share a stand-in, each
/// use starts elsewhere: contexts in lockstep would be no two contexts.
fn traces(programs: &[&'static Program], source: &Source) -> Result<Vec<Box<dyn Trace>>, ReproduceError> {
    let turn = |index: usize| {
        let same = |before: &&&'static Program| source.plays_the_same(before, programs[index]);
        programs[..index].iter().filter(same).count()
    };
    programs.iter().enumerate().map(|(index, program)| source.open(program, turn(index))).collect()
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

/// The two slices that the paper compares.
pub(super) const LONG: Nanos = Nanos(30_000_000);
pub(super) const SHORT: Nanos = Nanos(1_000_000);

/// A run with the long slice, one quantum each before counting.
pub(super) fn long(extent: &Extent) -> Setup {
    Setup {
        slice: LONG,
        warm_up_quanta: 1,
        quanta: extent.quanta.max(1),
        insertion: PolicyKind::Lru,
        prefetch: None,
        colour_shares: Vec::new(),
    }
}

/// A run with the short slice over the same time, two of the sampler's periods each before counting.
pub(super) fn short(extent: &Extent) -> Setup {
    Setup { slice: SHORT, warm_up_quanta: 20, quanta: extent.quanta.max(1) * (LONG.0 / SHORT.0), ..long(extent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The first address that each context of these programs uses.
    fn first(names: &[&str], source: &Source) -> Vec<u64> {
        let programs: Vec<_> = names.iter().map(|name| Program::by_name(name).unwrap()).collect();
        let first = |mut trace: Box<dyn Trace>| {
            let mut batch = Vec::new();
            trace.fill(&mut batch).unwrap();
            batch[0].address
        };
        traces(&programs, source).unwrap().into_iter().map(first).collect()
    }

    #[test]
    fn contexts_of_one_recording_start_at_different_places() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x264", "libquantum", "sjeng"] {
            let file = std::fs::File::create(folder.path().join(format!("{name}.lackey.zst"))).unwrap();
            let mut recording = zstd::Encoder::new(file, 1).unwrap().auto_finish();
            (0..1_000_003_u64).for_each(|line| writeln!(recording, " L {:x},1", line * 64).unwrap());
        }
        let recorded = Source::new(Some(folder.path().to_owned()));
        // Mixes 2 and 17: two names, one recording. Mix 1: two recordings. Then four contexts.
        for (names, same) in [
            (&["namd", "h264"][..], false),
            (&["milc", "libquantum"], false),
            (&["namd", "sjeng"], true),
            (&["namd", "h264", "namd", "h264"], false),
        ] {
            let places = first(names, &recorded);
            let place = |turn: u64| if same { 0 } else { turn * 4_000_037 % 1_000_003 * 64 };
            assert_eq!(places, (0..names.len() as u64).map(place).collect::<Vec<_>>(), "{names:?}");
        }
    }

    #[test]
    fn made_up_programs_are_told_apart_by_name() {
        let made_up = Source::default();
        let places = first(&["namd", "h264", "namd"], &made_up);
        assert_eq!(places[1], first(&["h264"], &made_up)[0]);
        assert_ne!(places[2], places[0]);
    }
}
