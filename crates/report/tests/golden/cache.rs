//! `gleaner.cache/1`, `gleaner.cache-record/1`, `gleaner.cache-class/1`.

use super::{check, has};
use gleaner_report::{
    CacheClassPoint, CacheClassProgram, CacheClassReport, CacheContext, CacheLevel, CacheMachine, CacheMemory,
    CacheRecordReport, CacheReport,
};

fn context(name: &str, instructions: u64) -> CacheContext {
    let ran = instructions > 0;
    let level = |accesses, misses| CacheLevel { accesses, misses, writebacks: misses / 4 };
    CacheContext {
        name: name.to_owned(),
        core: 0,
        quanta: u64::from(ran) * 10,
        trace_over: !ran,
        instructions,
        cycles: instructions / 2,
        cpi: ran.then_some(0.5),
        llc_misses_pki: ran.then_some(2.5),
        l1i: CacheLevel::default(),
        l1d: level(instructions / 3, instructions / 30),
        l2: level(instructions / 30, instructions / 100),
        l3: level(instructions / 100, instructions / 400),
    }
}

#[test]
fn cache() {
    let report = CacheReport {
        stopped_by: None,
        schema: CacheReport::SCHEMA.to_owned(),
        machine: CacheMachine {
            cores: 1,
            clock_hz: 3_400_000_000,
            slice_ns: 1_000_000,
            quanta: 10,
            warmup_quanta: 0,
            policy: "dip-time".to_owned(),
            prefetch: "recap".to_owned(),
            colour_shares: vec![2, 1],
            llc_bytes: 2 << 20,
            llc_ways: 16,
            inclusive: false,
            seed: 1,
        },
        contexts: vec![context("bzip2", 1_000_000), context("over at once", 0)],
        memory: CacheMemory { reads: 2_500, writes: 625, prefetches: 310, metadata: 24, read_wait_cycles: 17 },
        switches: 9,
        notes: vec!["the caches were empty at first".to_owned()],
    };
    let json = check("cache", &report);
    // The design's.
    has(
        &json,
        &[
            "contexts[].cycles",
            "contexts[].cpi",
            "contexts[].l3.accesses",
            "contexts[].l3.misses",
            "contexts[].l3.writebacks",
        ],
    );
}

#[test]
fn cache_record() {
    let report = CacheRecordReport {
        schema: CacheRecordReport::SCHEMA.to_owned(),
        command: vec!["bzip2".to_owned(), "-k".to_owned()],
        file: "bzip2.gltrace".to_owned(),
        file_bytes: 1_500_000,
        accesses: 3_000_000,
        reads: 1_600_000,
        writes: 800_000,
        fetches: 600_000,
        instructions: 5_500_000,
        skipped: 0,
        ended_by: "limit".to_owned(),
        exit_status: None,
        notes: vec!["the program was ended after 3000000 accesses; --max-accesses takes more".to_owned()],
    };
    check("cache_record", &report);
}

fn program(name: &str, class: &str, curve: &[f64]) -> CacheClassProgram {
    let sizes = (18..).map(|bits| 1_u64 << bits);
    CacheClassProgram {
        name: name.to_owned(),
        class: class.to_owned(),
        accesses: 10_000_000,
        instructions: 20_000_000,
        warmup_accesses: 4_194_304,
        footprint_bytes: 8 << 20,
        accesses_pki: 500.0,
        llc_accesses_pki: curve[0],
        llc_misses_pki: curve[3],
        saved_ratio: (curve[0] > 0.0).then(|| 1.0 - curve[3] / curve[0]),
        curve: sizes.zip(curve).map(|(size_bytes, &misses_pki)| CacheClassPoint { size_bytes, misses_pki }).collect(),
    }
}

fn classes(programs: Vec<CacheClassProgram>) -> CacheClassReport {
    let classes: Vec<&str> = programs.iter().map(|program| program.class.as_str()).collect();
    let (partition, verdict) = CacheClassReport::partition(&classes);
    CacheClassReport {
        stopped_by: None,
        schema: CacheClassReport::SCHEMA.to_owned(),
        llc_bytes: 2 << 20,
        l2_bytes: 256 << 10,
        llc_from: "table-v".to_owned(),
        without_pki_min: 1.0,
        saved_ratio_min: 0.5,
        partition: partition.to_owned(),
        verdict: verdict.to_owned(),
        programs,
        notes: Vec::new(),
    }
}

#[test]
fn cache_class() {
    let friendly = || program("bzip2", "cache_friendly", &[5.0, 3.0, 2.0, 1.0, 0.5]);
    check("cache_class_one", &classes(vec![friendly()]));
    let thrashing = program("libquantum", "thrashing", &[20.0; 5]);
    let idle = program("spin", "cpu_bound", &[0.0; 5]);
    check("cache_class_several", &classes(vec![friendly(), thrashing, idle]));
}
