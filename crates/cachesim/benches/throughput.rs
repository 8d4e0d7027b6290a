//! Accesses a second on one core through three levels (Table V's), by policy of the last level and by what the trace misses.
//!
//! `cargo bench -p gleaner-cachesim --bench throughput`
//!
//! The traces are made before the clock runs. `hierarchy` is the caches alone with paging; `machine` adds the
//! core model, memory's queue, time slices and the trace's hand-over. Each line prints the miss ratios it ran at.

#![allow(missing_docs, reason = "a benchmark")]

use divan::Bencher;
use divan::counter::ItemsCount;
use gleaner_cachesim::ContextId;
use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::{Hierarchy, HierarchyConfig};
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES};
use gleaner_cachesim::miss_ratio::{MissRatio, Sampling};
use gleaner_cachesim::paging::{Paging, PagingConfig};
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::trace::synthetic::{Band, Profile, Synthetic};
use gleaner_cachesim::trace::{Record, Shared, Trace};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const ACCESSES: u64 = 4_000_000;

/// Shares of accesses that miss the L1 and the L3, percent.
type Mix = (u32, u32);
const MIXES: [Mix; 3] = [(5, 1), (20, 5), (40, 20)];

fn main() {
    println!("miss ratios in percent of all accesses, as (L1, L3); 4,000,000 accesses each\n");
    divan::main();
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

/// As long again before what is measured, to fill the footprint. Made once for each mix: that takes longer than running it.
fn records(mix: Mix) -> Arc<[Record]> {
    static MADE: Mutex<BTreeMap<Mix, Arc<[Record]>>> = Mutex::new(BTreeMap::new());
    MADE.lock().expect("no panic").entry(mix).or_insert_with(|| make(mix).into()).clone()
}

fn make(mix: Mix) -> Vec<Record> {
    let mut trace = Synthetic::new(profile(mix), 0x1000_0000, 1, 2 * ACCESSES).expect("a profile");
    let mut records = Vec::new();
    while records.len() < 2 * usize::try_from(ACCESSES).expect("fits") {
        trace.fill(&mut records).expect("endless");
    }
    records
}

fn hierarchy(policy: PolicyKind) -> Hierarchy {
    Hierarchy::new(HierarchyConfig::table_v(1, 2, policy).expect("Table V"), ()).expect("Table V")
}

#[divan::bench(args = MIXES, consts = [0, 1, 2, 3, 4, 5, 6], sample_count = 5, sample_size = 1)]
fn caches_alone<const POLICY: usize>(bencher: Bencher<'_, '_>, mix: Mix) {
    let name = PolicyKind::NAMES[POLICY];
    let records = records(mix);
    let (warm_up, measured) = records.split_at(records.len() / 2);
    let mut hierarchy = hierarchy(PolicyKind::by_name(name).expect("named"));
    let l3 = hierarchy.l3().geometry();
    let mut paging = Paging::new(&PagingConfig::default(), l3).expect("Table V");
    let mut run = |records: &[Record]| {
        let mut now = 0;
        for record in records {
            let address = paging.translate(ContextId(0), record.address);
            now += 4;
            divan::black_box(hierarchy.access(0, ContextId(0), record.kind, address, now));
        }
        hierarchy.counters(ContextId(0))
    };
    let before = run(warm_up);
    let after = run(measured);
    let percent = |after: u64, before: u64| (after - before) as f64 * 100.0 / ACCESSES as f64;
    println!(
        "{name}: L1 {:.1} %, L2 {:.1} %, L3 {:.1} %",
        percent(after.l1d.misses, before.l1d.misses),
        percent(after.l2.misses, before.l2.misses),
        percent(after.l3.misses, before.l3.misses)
    );
    bencher.counter(ItemsCount::new(ACCESSES)).bench_local(|| run(measured));
}

#[divan::bench(args = MIXES, sample_count = 3, sample_size = 1)]
fn whole_machine(bencher: Bencher<'_, '_>, mix: Mix) {
    let records = records(mix);
    let trace = Shared::new(&records[records.len() / 2..]);
    let context = ContextConfig { core: 0, core_model: CoreConfig::default() };
    let config = MachineConfig {
        hierarchy: HierarchyConfig::table_v(1, 2, PolicyKind::Lru).expect("Table V"),
        paging: PagingConfig::default(),
        contexts: vec![context; 2],
        slice_cycles: 3_400_000,
        switch_cycles: SWITCH_CYCLES,
    };
    bencher.counter(ItemsCount::new(2 * ACCESSES)).bench_local(|| {
        let trace = || Box::new(trace.clone()) as Box<dyn Trace>;
        let mut machine = Machine::new(config.clone(), vec![trace(), trace()]).expect("Table V");
        machine.run_quanta(u64::MAX).expect("no file to fail");
        machine.outcome()
    });
}

#[divan::bench(args = [Sampling::Exact, Sampling::Lines(8192), Sampling::Rate(0.01)], sample_count = 3, sample_size = 1)]
fn miss_ratio_curve(bencher: Bencher<'_, '_>, sampling: Sampling) {
    let records = records((20, 5));
    bencher.counter(ItemsCount::new(records.len())).bench_local(|| {
        let mut curve = MissRatio::new(sampling);
        for record in &*records {
            curve.access(record.address / 64);
        }
        curve.curve(&[512, 4096, 32_768])
    });
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn synthetic_trace(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(2 * ACCESSES)).bench_local(|| make((20, 5)).len());
}
