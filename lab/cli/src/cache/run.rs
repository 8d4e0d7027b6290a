//! `gleaner-lab cache run`: contexts that take turns on simulated cores and caches.

use crate::count::{at_least_one, count};
use crate::sim::limits::{MaxTime, StoppedBy, Watch};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use gleaner_cachesim::Geometry;
use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::{HierarchyConfig, LevelCounters, LlcWatch};
use gleaner_cachesim::machine::{
    ContextConfig, ContextOutcome, Machine, MachineConfig, Outcome, SWITCH_CYCLES, SwitchHook, TABLE_V_HZ, cycles,
};
use gleaner_cachesim::paging::{PagingConfig, deal_colours};
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::prefetch::{PrefetchParams, Records, Restorer};
use gleaner_cachesim::trace::synthetic::{Profile, Synthetic};
use gleaner_cachesim::trace::{Format, Trace, TraceError, open, open_endless};
use gleaner_command::args::{JsonArg, duration, size};
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_model::Nanos;
use gleaner_report::{CacheContext, CacheLevel, CacheMachine, CacheMemory, CacheReport};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Contexts are dealt to the cores in turn: traces first, then made-up ones. The machine is Table V of \
                        the paper, except where an option says otherwise (docs/research/cachesim.md). The same options \
                        give the same result.\n\n\
                        Examples:\n\
                        \x20 gleaner-lab cache run --synthetic cache-friendly --synthetic thrashing --slice 1ms\n\
                        \x20 gleaner-lab cache run --trace bzip2.gltrace --trace libquantum.gltrace --slice 30ms \\\n\
                        \x20     --insertion dip-time --json\n\
                        \x20 gleaner-lab cache run --synthetic cache-friendly --synthetic thrashing \\\n\
                        \x20     --prefetch recap --colours 3:1"
)]
pub struct RunArgs {
    /// A context that runs this trace: a recording (`gleaner-lab cache record` makes one), R|W HEXADDR lines,
    /// ChampSim's, or the text of valgrind's lackey or of DynamoRIO's `drrun -t drmemtrace -tool view`; packed or not
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// What the traces are, instead of finding out
    #[arg(long, value_parser = PossibleValuesParser::new(Format::NAMES))]
    format: Option<String>,
    /// A context with a made-up program of this type of the paper's
    #[arg(long, value_name = "PROFILE", value_parser = PossibleValuesParser::new(PROFILES))]
    synthetic: Vec<String>,
    /// Let a context end with its trace; without this, a trace starts over
    #[arg(long)]
    once: bool,
    /// Time slice
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = duration)]
    slice: Duration,
    /// Quanta that count, for each context
    #[arg(long, value_name = "N", default_value = "30", value_parser = at_least_one)]
    quanta: u64,
    /// Quanta before those, which fill the caches and do not count
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    warmup: u64,
    /// Cores that share the last level
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: u16,
    /// Where the last level inserts new lines, from most (MRU) to least recently used (LRU, evicted next)
    #[arg(long, alias = "policy", value_name = "KIND", default_value = "lru")]
    #[arg(value_parser = PossibleValuesParser::new(PolicyKind::NAMES.map(insertion)))]
    insertion: String,
    /// Context prefetching: what a context lost from the last level while it waited is brought back when it runs again
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = PossibleValuesParser::new(PREFETCHERS.map(prefetcher)))]
    prefetch: String,
    /// Page colours of the last level, dealt out to the contexts in these shares, like 2:1 for two; without this,
    /// chance decides
    #[arg(long, value_name = "N:N:...", value_parser = shares)]
    colours: Option<Shares>,
    /// Size of the last level (k, M and G are 1024, 1024^2, 1024^3 bytes)
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    llc_size: u64,
    /// Ways of the last level
    #[arg(long, value_name = "N", default_value_t = 16)]
    llc_ways: u32,
    /// Cycles that an access of the last level adds
    #[arg(long, value_name = "N", default_value_t = 27, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    llc_latency: u64,
    /// The last level holds whatever the levels before it hold
    #[arg(long)]
    inclusive: bool,
    /// Feeds everything that is decided by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// End after so many accesses, of all contexts together and in steps of 65,536, with what is counted by then (k, M
    /// and G are understood)
    #[arg(long, value_name = "N", value_parser = at_least_one, alias = "max-events")]
    max_accesses: Option<u64>,
    #[command(flatten)]
    max_time: MaxTime,
    #[command(flatten)]
    json: JsonArg,
}

const PREFETCHERS: [&str; 3] = ["none", "daly-cain", "recap"];

/// A kind of prefetching with what it does.
fn prefetcher(name: &'static str) -> PossibleValue {
    PossibleValue::new(name).help(match name {
        "daly-cain" => "the lines that others evicted meanwhile (HPCA'12)",
        "recap" => "the regions it accessed in its last quantum and of which a line was hit (HPCA'13)",
        _ => "a context finds what the others left",
    })
}

/// Parts of a whole.
#[derive(Clone, Debug)]
struct Shares(Vec<u32>);

fn shares(text: &str) -> Result<Shares, String> {
    let parts: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    match parts {
        Ok(parts) if parts.iter().all(|part| (1..=1_000_000).contains(part)) => Ok(Shares(parts)),
        _ => Err("give a whole number of 1 or more for each context, with colons between them, like 2:1".to_owned()),
    }
}

const PROFILES: [&str; 3] = ["cpu-bound", "cache-friendly", "thrashing"];

/// A way of inserting lines with what it does.
fn insertion(name: &'static str) -> PossibleValue {
    PossibleValue::new(name).help(match name {
        "lru" => "new lines at MRU: plain least recently used",
        "lip" => "new lines at LRU: they stay only if used again",
        "bip" => "new lines at LRU, one in 32 at MRU",
        "dip-duel" => "as lru or as bip does, whichever misses less in sample sets (ISCA'07)",
        "srrip" => "new lines are expected to be used again late, those that were hit soon (ISCA'10)",
        "drrip" => "as srrip does, or expecting new lines last of all, whichever misses less in sample sets",
        "dip-time" => {
            "at MRU or LRU for each context, whichever missed less in its sample quanta (the micro-sliced paper's)"
        }
        _ => "",
    })
}

pub fn main(args: &RunArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let contexts = args.traces.len() + args.synthetic.len();
    if contexts == 0 {
        return Err(Failure::input("nothing to run: give --trace FILE or --synthetic PROFILE, once for each context"));
    }
    let (config, traces) = (config(args, contexts)?, traces(args)?);
    let watch = Watch::new("running", args.max_time)?;
    let outcome = match args.prefetch.as_str() {
        "none" => turns(Machine::new(config, traces).map_err(Failure::input)?, args, &watch)?,
        kind => {
            let params = if kind == "recap" { PrefetchParams::recap() } else { PrefetchParams::daly_cain() };
            let (records, restorer) = (Records::new(params), Restorer::new(usize::from(args.cores)));
            turns(Machine::with_hooks(config, traces, records, restorer).map_err(Failure::input)?, args, &watch)?
        }
    };
    let stopped = watch.stopped();
    if outcome.contexts.iter().all(|context| context.instructions == 0) && stopped.is_some() {
        let message = "ended within the warm-up: nothing is counted, and there is no result".to_owned();
        return Err(Failure { status: StoppedBy::status(stopped).max(1), message });
    }
    if outcome.contexts.iter().all(over_in_warmup) {
        return Err(Failure::input(format!(
            "with --once, the traces end within the {} quanta of --warmup, and nothing is left to count: give a smaller \
             --warmup, longer traces, or no --once",
            args.warmup
        )));
    }
    let report = report(args, &outcome, stopped);
    output.json(&report)?;
    output.text(&report);
    Ok(StoppedBy::status(stopped))
}

/// Lets the contexts take their turns.
fn turns<W: LlcWatch, H: SwitchHook<W>>(
    mut machine: Machine<W, H>,
    args: &RunArgs,
    watch: &Watch,
) -> Result<Outcome, Failure> {
    let quanta = args.warmup.saturating_add(args.quanta);
    let on_a_core = (args.traces.len() + args.synthetic.len()).div_ceil(usize::from(args.cores));
    let cycles_in_all = quanta as f64 * on_a_core as f64 * cycles(Nanos::from(args.slice), TABLE_V_HZ).max(1) as f64;
    // One turn of everybody at a time, for the warm-up's end and the traces'.
    for quantum in 0..quanta {
        if quantum == args.warmup {
            machine.reset_counters();
        }
        let go_on = |accesses: u64, cycle: u64| {
            if args.max_accesses.is_some_and(|most| accesses >= most) {
                watch.stop(StoppedBy::MaxCount);
            }
            watch.go_on(cycle as f64 / cycles_in_all)
        };
        let whole = machine.run_quanta_while(1, go_on).map_err(|error| trace_failure(&error))?;
        if !whole || !go_on(machine.accesses(), machine.cycle()) {
            if quantum < args.warmup {
                machine.reset_counters();
            }
            break;
        }
        if machine.outcome().contexts.iter().all(|context| context.over) {
            if quantum < args.warmup {
                machine.reset_counters();
            }
            break;
        }
    }
    watch.end();
    Ok(machine.outcome())
}

/// Whether nothing of a context counts, because its trace was over before.
fn over_in_warmup(context: &ContextOutcome) -> bool {
    context.over && context.counters.l1i.accesses + context.counters.l1d.accesses == 0
}

fn config(args: &RunArgs, contexts: usize) -> Result<MachineConfig, Failure> {
    let policy = PolicyKind::by_name(&args.insertion)
        .ok_or_else(|| Failure::input(format!("no insertion {}", args.insertion)))?;
    let mut hierarchy = HierarchyConfig::table_v(usize::from(args.cores), contexts, policy).map_err(Failure::input)?;
    hierarchy.l3.geometry = Geometry::new(args.llc_size, args.llc_ways, 64)
        .map_err(|error| Failure::input(format!("--llc-size and --llc-ways: {error}{}", fitting(args))))?;
    hierarchy.l3.latency_cycles = args.llc_latency;
    hierarchy.inclusive = args.inclusive;
    hierarchy.seed = args.seed;
    let colours = match &args.colours {
        None => Vec::new(),
        Some(Shares(shares)) if shares.len() != contexts => {
            return Err(Failure::input(format!(
                "--colours has {} shares for {contexts} contexts: give one for each, traces first",
                shares.len()
            )));
        }
        Some(Shares(shares)) => deal_colours(hierarchy.l3.geometry, shares)
            .map_err(|error| Failure::input(format!("--colours: {error}")))?,
    };
    let slice = Nanos::from(args.slice);
    Ok(MachineConfig {
        contexts: (0..contexts)
            .map(|context| ContextConfig { core: context % usize::from(args.cores), core_model: CoreConfig::default() })
            .collect(),
        hierarchy,
        paging: PagingConfig { seed: args.seed, colours, ..PagingConfig::default() },
        slice_cycles: cycles(slice, TABLE_V_HZ),
        switch_cycles: SWITCH_CYCLES,
    })
}

/// The sizes next to the one asked for that so many ways can have, in words.
fn fitting(args: &RunArgs) -> String {
    let sizes = (0..32).map(|power| (u64::from(args.llc_ways) * 64) << power);
    let (below, above): (Vec<u64>, Vec<u64>) = sizes
        .filter(|bytes| Geometry::new(*bytes, args.llc_ways, 64).is_ok() && size(&bytes.to_string()).is_ok())
        .partition(|bytes| *bytes < args.llc_size);
    let next: Vec<String> = below.last().into_iter().chain(above.first()).map(|bytes| written(*bytes)).collect();
    if next.is_empty() {
        return String::new();
    }
    format!(": with --llc-ways {}, --llc-size {} fits", args.llc_ways, next.join(" or "))
}

/// A size as the options take it.
fn written(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "k")].into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    units.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

fn traces(args: &RunArgs) -> Result<Vec<Box<dyn Trace>>, Failure> {
    let format = args.format.as_deref().and_then(Format::by_name);
    refuse_shared_pipes(&args.traces)?;
    let mut traces: Vec<Box<dyn Trace>> = Vec::new();
    for path in &args.traces {
        let opened = if args.once { open(path, format) } else { open_endless(path, format) };
        traces.push(opened.map_err(|error| trace_failure(&error))?);
    }
    for (at, name) in (1..).zip(&args.synthetic) {
        let profile = match name.as_str() {
            "cpu-bound" => Profile::cpu_bound(),
            "cache-friendly" => Profile::cache_friendly(),
            _ => Profile::thrashing(),
        };
        let seed = args.seed.wrapping_mul(1_000).wrapping_add(at);
        traces.push(Box::new(Synthetic::new(profile, 0, seed, u64::MAX).map_err(Failure::input)?));
    }
    Ok(traces)
}

/// Two contexts cannot both have what comes out of one pipe.
pub(super) fn refuse_shared_pipes(paths: &[PathBuf]) -> Result<(), Failure> {
    let pipe = |path: &PathBuf| {
        let is = std::fs::metadata(path).ok().filter(|is| !is.is_file() && !is.is_dir())?;
        Some((is.dev(), is.ino()))
    };
    let pipes: Vec<_> = paths.iter().map(pipe).collect();
    let twice = (1..paths.len()).find(|n| pipes[*n].is_some() && pipes[..*n].contains(&pipes[*n]));
    twice.map_or(Ok(()), |n| {
        Err(Failure::input(format!(
            "{} is named twice, and what comes from a pipe can be read once: give --once with one context for it, or a file",
            paths[n].display()
        )))
    })
}

fn report(args: &RunArgs, outcome: &Outcome, stopped: Option<StoppedBy>) -> CacheReport {
    let files = args.traces.iter().map(|path| name(path));
    let names = files.chain(args.synthetic.iter().cloned());
    let contexts: Vec<(String, &ContextOutcome)> = names.zip(&outcome.contexts).collect();
    let mut notes: Vec<String> =
        contexts.iter().filter_map(|(name, context)| early_end(name, context, args.quanta)).collect();
    if args.warmup == 0 {
        notes.push("the caches were empty at first; --warmup N leaves the first quanta out".to_owned());
    }
    CacheReport {
        schema: CacheReport::SCHEMA.to_owned(),
        machine: CacheMachine {
            cores: u64::from(args.cores),
            clock_hz: TABLE_V_HZ,
            slice_ns: Nanos::from(args.slice).0,
            quanta: args.quanta,
            warmup_quanta: args.warmup,
            policy: args.insertion.clone(),
            prefetch: args.prefetch.clone(),
            colour_shares: args
                .colours
                .iter()
                .flat_map(|Shares(shares)| shares)
                .map(|share| u64::from(*share))
                .collect(),
            llc_bytes: args.llc_size,
            llc_ways: u64::from(args.llc_ways),
            inclusive: args.inclusive,
            seed: args.seed,
        },
        contexts: (0..)
            .zip(contexts)
            .map(|(at, (name, context))| of(name, at % usize::from(args.cores), context))
            .collect(),
        memory: CacheMemory {
            reads: outcome.dram.reads,
            writes: outcome.dram.writes,
            prefetches: outcome.dram.prefetches,
            metadata: outcome.dram.metadata,
            read_wait_cycles: outcome.dram.read_wait_cycles,
        },
        switches: outcome.switches,
        stopped_by: stopped.map(|by| by.word("max-accesses")),
        notes,
    }
}

/// What has to be said of a context whose trace ended, where that could be taken for all the quanta asked for.
fn early_end(name: &str, context: &ContextOutcome, quanta: u64) -> Option<String> {
    if over_in_warmup(context) {
        return Some(format!("{name}: its trace ended within the warm-up, so nothing of it counts"));
    }
    let quantum = context.quanta;
    context.over.then(|| format!("{name}: its trace ended in quantum {quantum} of the {quanta} that count"))
}

/// A trace by its file's name.
pub(super) fn name(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    file.strip_suffix(".gltrace").map_or(file.clone(), str::to_owned)
}

fn of(name: String, core: usize, context: &ContextOutcome) -> CacheContext {
    let level = |counters: LevelCounters| CacheLevel {
        accesses: counters.accesses,
        misses: counters.misses,
        writebacks: counters.writebacks,
    };
    let counters = context.counters;
    let pki = |count: u64| count as f64 * 1000.0 / context.instructions as f64;
    CacheContext {
        name,
        core: core as u64,
        quanta: context.quanta,
        trace_over: context.over,
        instructions: context.instructions,
        cycles: context.cycles,
        cpi: context.cpi(),
        llc_misses_pki: (context.instructions > 0).then(|| pki(counters.l3.misses)),
        l1i: level(counters.l1i),
        l1d: level(counters.l1d),
        l2: level(counters.l2),
        l3: level(counters.l3),
    }
}

/// A trace that cannot be read is bad input.
pub(super) fn trace_failure(error: &TraceError) -> Failure {
    match error {
        TraceError::Write { .. } => Failure::work(error),
        _ => Failure::input(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{PolicyKind, insertion, size, written};

    #[test]
    fn every_policy_is_explained() {
        for name in PolicyKind::NAMES {
            assert!(insertion(name).get_help().is_some_and(|help| !help.to_string().is_empty()), "{name}");
        }
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for (bytes, words) in [(1 << 30, "1G"), (3 << 20, "3M"), (448 << 12, "1792k"), (8064, "8064")] {
            assert_eq!((written(bytes).as_str(), size(words)), (words, Ok(bytes)));
        }
    }
}
