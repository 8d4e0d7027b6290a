//! Accesses a second on one core through three levels (Table V's), by policy of the last level and by what the trace
//! misses.
//!
//! `cargo bench -p gleaner-cachesim --bench throughput [-- REPETITIONS [L1-PERCENT]]`
//!
//! Traces are made before the clock runs. Everything is measured in turn, and that again and again, so that a
//! disturbance hits all alike; the best of each is printed, by the clock on the wall and by CPU time. The two differ
//! where others wanted the CPU meanwhile, and both suffer from what others did to its caches.

use gleaner_cachesim::ContextId;
use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::{ContextCounters, Hierarchy, HierarchyConfig};
use gleaner_cachesim::insertion::{Insertion, Quantum};
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES};
use gleaner_cachesim::miss_ratio::{MissRatio, Sampling};
use gleaner_cachesim::paging::{Paging, PagingConfig};
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::trace::recording::{Recorder, Recording};
use gleaner_cachesim::trace::synthetic::{Band, Profile, Synthetic};
use gleaner_cachesim::trace::{Record, Shared, Trace};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Accesses of each measurement, and as many before it to fill the footprint.
const ACCESSES: usize = 4_000_000;
/// As long as a slice of 1 ms is, about.
const QUANTUM_ACCESSES: usize = 400_000;

/// Shares of accesses that miss the L1 and the L3, percent.
type Mix = (u32, u32);
const MIXES: [Mix; 3] = [(5, 1), (20, 5), (40, 20)];

fn main() {
    // `cargo test` only wants to see it run.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (accesses, default) = if is_bench { (ACCESSES, 5) } else { (10_000, 1) };
    let numbers: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let repetitions = numbers.first().copied().unwrap_or(default);
    println!("{accesses} accesses at a time, best of {repetitions} interleaved repetitions, million accesses a second");
    let mut all = Vec::new();
    for mix in MIXES.into_iter().filter(|mix| numbers.get(1).is_none_or(|l1_percent| *l1_percent == mix.0)) {
        let records = make(mix, 2 * accesses);
        let (before, records) = records.split_at(accesses);
        let records: Arc<[Record]> = records.into();
        all.extend(policies().map(|(name, policy)| caches(name, policy, before, &records)));
        all.push(machine(mix, &records));
        if mix == MIXES[1] {
            all.extend(others(mix, &records));
        }
    }
    for _ in 0..repetitions {
        all.iter_mut().for_each(Measured::once);
    }
    println!("| what | L1 misses | L2 | L3 | by the wall | by CPU time |\n| --- | --- | --- | --- | --- | --- |");
    for measured in &all {
        let [wall, cpu] = measured.best.map(|seconds| measured.accesses as f64 / seconds / 1e6);
        println!("| {} | {} | {wall:.1} | {cpu:.1} |", measured.name, measured.misses);
    }
}

/// Something that takes time.
struct Measured<'a> {
    name: String,
    /// The three columns.
    misses: String,
    accesses: usize,
    run: Box<dyn FnMut() + 'a>,
    /// By the wall and by CPU time, seconds.
    best: [f64; 2],
}

impl<'a> Measured<'a> {
    fn new(name: impl Into<String>, misses: String, accesses: usize, run: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), misses, accesses, run: Box::new(run), best: [f64::INFINITY; 2] }
    }

    fn once(&mut self) {
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        (self.run)();
        let taken = [wall.elapsed().as_secs_f64(), cpu_seconds() - cpu];
        self.best = [0, 1].map(|at| self.best[at].min(taken[at]));
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A profile that misses the L1 and the L3 about so often.
fn profile((l1_percent, l3_percent): Mix) -> Profile {
    let (l1, l3) = (f64::from(l1_percent) / 100.0, f64::from(l3_percent) / 100.0);
    let band = |weight, from_lines, to_lines| Band { weight, from_lines, to_lines };
    Profile {
        bands: vec![band(1.0 - l1, 0, 63), band(l1 - l3, 1_500, 12_000), band(l3, 60_000, 100_000)],
        footprint_lines: 100_000,
        ..Profile::cache_friendly()
    }
}

fn make(mix: Mix, count: usize) -> Vec<Record> {
    let mut trace = Synthetic::new(profile(mix), 0x1000_0000, 1, count as u64).expect("a profile");
    let mut records = Vec::new();
    while records.len() < count {
        trace.fill(&mut records).expect("no file to fail");
    }
    records
}

/// All by name, and what SIP-best tries.
fn policies() -> impl Iterator<Item = (&'static str, PolicyKind)> {
    let named = PolicyKind::NAMES.into_iter().filter_map(|name| Some((name, PolicyKind::by_name(name)?)));
    named.chain([("fixed at LRU", PolicyKind::PerContext(vec![Insertion::Lru]))])
}

/// The caches alone, with paging. Their policy is told of time slices.
fn caches(name: &str, policy: PolicyKind, before: &[Record], records: &Arc<[Record]>) -> Measured<'static> {
    let config = HierarchyConfig::table_v(1, 2, policy).expect("Table V");
    let mut paging = Paging::new(&PagingConfig::default(), config.l3.geometry).expect("Table V");
    let mut hierarchy = Hierarchy::new(config, ()).expect("Table V");
    let context = ContextId(0);
    let mut run = move |records: &[Record]| {
        for slice in records.chunks(QUANTUM_ACCESSES) {
            let started = hierarchy.counters(context).l3.misses;
            hierarchy.quantum_started(context);
            let mut now = 0;
            for record in slice {
                let address = paging.translate(context, record.address);
                now += 4;
                black_box(hierarchy.access(0, context, record.kind, address, now));
            }
            let misses = hierarchy.counters(context).l3.misses - started;
            hierarchy.quantum_ended(context, Quantum { misses, length: now });
        }
        hierarchy.counters(context)
    };
    let (first, second) = (run(before), run(records));
    let of = |level: fn(&ContextCounters) -> u64| {
        format!("{:.1} %", (level(&second) - level(&first)) as f64 * 100.0 / records.len() as f64)
    };
    let misses = [of(|all| all.l1d.misses), of(|all| all.l2.misses), of(|all| all.l3.misses)].join(" | ");
    let records = Arc::clone(records);
    Measured::new(name, misses, records.len(), move || {
        black_box(run(&records));
    })
}

/// Adds the core model, memory's queue, time slices and the trace's hand-over: two contexts of the same trace, from
/// empty caches.
fn machine(mix: Mix, records: &Arc<[Record]>) -> Measured<'static> {
    let context = ContextConfig { core: 0, core_model: CoreConfig::default() };
    let config = MachineConfig {
        hierarchy: HierarchyConfig::table_v(1, 2, PolicyKind::Lru).expect("Table V"),
        paging: PagingConfig::default(),
        contexts: vec![context; 2],
        slice_cycles: 3_400_000,
        switch_cycles: SWITCH_CYCLES,
    };
    let trace = Shared::new(Arc::clone(records));
    let misses = format!("about {} % | | {} %", mix.0, mix.1);
    Measured::new("lru, whole machine, two contexts", misses, 2 * records.len(), move || {
        let trace = || Box::new(trace.clone()) as Box<dyn Trace>;
        let mut machine = Machine::new(config.clone(), vec![trace(), trace()]).expect("Table V");
        machine.run_quanta(u64::MAX).expect("no file to fail");
        black_box(machine.outcome());
    })
}

/// What else is done with a trace.
fn others(mix: Mix, records: &Arc<[Record]>) -> Vec<Measured<'static>> {
    let curve = |sampling: Sampling| {
        let records = Arc::clone(records);
        Measured::new(format!("miss-ratio curve, {sampling:?}"), " | | ".to_owned(), records.len(), move || {
            let mut curve = MissRatio::new(sampling);
            records.iter().for_each(|record| curve.access(record.address / 64));
            black_box(curve.curve(&[512, 4096, 32_768]));
        })
    };
    let mut recorder = Recorder::new(Path::new("memory"), Vec::new()).expect("memory");
    records.iter().for_each(|record| recorder.push(*record).expect("memory"));
    let bytes = recorder.finish().expect("memory");
    let count = records.len();
    vec![
        curve(Sampling::Exact),
        curve(Sampling::Lines(16_384)),
        Measured::new("reading a recording", " | | ".to_owned(), count, move || {
            let mut recording = Recording::new(Path::new("memory"), bytes.as_slice()).expect("whole");
            let mut batch = Vec::new();
            while recording.fill(&mut batch).is_ok() && !batch.is_empty() {
                black_box(&batch);
                batch.clear();
            }
        }),
        Measured::new("making up a trace", " | | ".to_owned(), count, move || drop(black_box(make(mix, count)))),
    ]
}
