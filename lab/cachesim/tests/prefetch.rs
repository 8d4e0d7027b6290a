//! Context prefetching: exact on caches small enough to follow by hand, and what must hold on any.

use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::{Hierarchy, HierarchyConfig, LevelConfig};
use gleaner_cachesim::insertion::Insertion;
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, SwitchHook};
use gleaner_cachesim::paging::PagingConfig;
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::prefetch::{PrefetchParams, RecordKind, Records, Restorer};
use gleaner_cachesim::trace::synthetic::{Band, Profile, Synthetic};
use gleaner_cachesim::trace::{Kind, Trace};
use gleaner_cachesim::{ContextId, Geometry, Line};
use proptest::prelude::*;
use std::collections::HashSet;

const A: ContextId = ContextId(0);
const B: ContextId = ContextId(1);

/// A bus that never makes anybody wait.
const ALL_AT_ONCE: u64 = u64::MAX;

/// L1 and L2 of one line; an L3 of so many lines in sets of four.
fn config(l3_lines: u64) -> HierarchyConfig {
    let mut config = HierarchyConfig::table_v(2, 4, PolicyKind::Lru).unwrap();
    let shrink = |level: &mut LevelConfig, lines, ways| level.geometry = Geometry::new(lines * 64, ways, 64).unwrap();
    shrink(&mut config.l1i, 1, 1);
    shrink(&mut config.l1d, 1, 1);
    shrink(&mut config.l2, 1, 1);
    shrink(&mut config.l3, l3_lines, 4);
    config
}

/// Two contexts on core 0, driven by hand.
struct Bench {
    hierarchy: Hierarchy<Records>,
    restorer: Restorer,
    now: u64,
}

impl Bench {
    fn new(params: PrefetchParams, l3_lines: u64) -> Self {
        let hierarchy = Hierarchy::new(config(l3_lines), Records::new(params)).unwrap();
        Self { hierarchy, restorer: Restorer::new(1), now: 0 }
    }

    /// A quantum that reads these lines, after restoring whatever can be restored at its start.
    fn quantum(&mut self, context: ContextId, lines: impl IntoIterator<Item = u64>) {
        self.begin(context);
        self.restorer.running(&mut self.hierarchy, 0, context, self.now);
        self.read(context, lines);
        self.restorer.switched_out(&mut self.hierarchy, 0, context, self.now);
    }

    /// Long after the last one, so that memory is idle.
    fn begin(&mut self, context: ContextId) {
        self.now += 1_000_000;
        self.restorer.switched_in(&mut self.hierarchy, 0, context, self.now);
    }

    fn read(&mut self, context: ContextId, lines: impl IntoIterator<Item = u64>) {
        for line in lines {
            self.hierarchy.access(0, context, Kind::Read, line * 64, self.now);
        }
    }

    /// The L3's lines by number.
    fn resident(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.hierarchy.l3().resident().map(Line::number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// (lines prefetched, lines of records) so far.
    fn traffic(&self) -> (u64, u64) {
        let counters = self.hierarchy.dram_counters();
        (counters.prefetches, counters.metadata)
    }
}

fn lost() -> PrefetchParams {
    PrefetchParams { backlog_cycles_max: ALL_AT_ONCE, ..PrefetchParams::daly_cain() }
}

fn accessed() -> PrefetchParams {
    PrefetchParams { backlog_cycles_max: ALL_AT_ONCE, ..PrefetchParams::recap() }
}

#[test]
fn what_others_evicted_comes_back_and_its_list_is_paid_for() {
    let mut bench = Bench::new(lost(), 4);
    bench.quantum(A, 0..4);
    bench.quantum(B, 100..104);
    assert_eq!((bench.resident(), bench.traffic()), (vec![100, 101, 102, 103], (0, 0)));
    bench.quantum(A, []);
    // Four entries of 8 bytes: one line written, one read.
    assert_eq!((bench.resident(), bench.traffic()), (vec![0, 1, 2, 3], (4, 2)));
    let counters = bench.restorer.counters(A);
    assert_eq!((counters.restored_lines, counters.entries, counters.metadata_bytes(8)), (4, 4, 64));
}

#[test]
fn a_list_of_lost_lines_pushes_out_what_was_not_lost_and_a_table_of_accesses_does_not() {
    // B leaves line 3 of A at the bottom of the stack. The list restores 0, 1 and 2, and the first of them takes its
    // place.
    let mut bench = Bench::new(lost(), 4);
    bench.quantum(A, 0..4);
    bench.quantum(B, 100..103);
    bench.quantum(A, []);
    assert_eq!((bench.resident(), bench.traffic()), (vec![0, 1, 2, 102], (3, 2)));
    // The table asks for every line in use, and so for 3 too.
    let mut bench = Bench::new(accessed(), 4);
    bench.quantum(A, (0..4).chain([0]));
    bench.quantum(B, 100..103);
    bench.quantum(A, []);
    assert_eq!(bench.resident(), [0, 1, 2, 3]);
}

#[test]
fn a_line_that_is_still_there_moves_up_and_costs_nothing() {
    let mut bench = Bench::new(accessed(), 4);
    bench.quantum(A, [1, 2, 1]);
    bench.quantum(B, [100, 101]);
    bench.quantum(A, []);
    assert_eq!((bench.resident(), bench.traffic()), (vec![1, 2, 100, 101], (0, 2)));
    assert_eq!(bench.restorer.counters(A).already_there_lines, 2);
    // Now B's lines are the oldest.
    bench.quantum(B, [102, 103]);
    assert_eq!(bench.resident(), [1, 2, 102, 103]);
}

#[test]
fn regions_without_a_hit_are_left_out_and_their_entries_are_paid_for() {
    for (hit_filter, expected) in [(true, 1), (false, 3)] {
        let kind = RecordKind::Accessed { region_lines: 2, hit_filter };
        let mut bench = Bench::new(PrefetchParams { kind, entry_bytes: 32, ..accessed() }, 4);
        // Lines 0 and 1 are one region, of which 0 is hit after 7 and 9 have driven it out of the L2; 7 and 9 are two.
        bench.quantum(A, [0, 7, 9, 0]);
        bench.quantum(B, 100..104);
        bench.quantum(A, []);
        // Three entries of 32 bytes are two lines, there and back.
        assert_eq!(bench.traffic(), (expected, 4), "hit filter {hit_filter}");
        let counters = bench.restorer.counters(A);
        assert_eq!((counters.filtered_lines, counters.metadata_bytes(32)), (3 - expected, 192));
    }
}

#[test]
fn only_what_the_last_quantum_used_is_in_the_table() {
    let mut bench = Bench::new(accessed(), 8);
    bench.quantum(A, [0, 128, 0, 128]);
    bench.quantum(A, [128, 256, 128]);
    bench.quantum(B, (1000..1016).collect::<Vec<_>>());
    bench.begin(A);
    bench.restorer.running(&mut bench.hierarchy, 0, A, bench.now);
    let resident = bench.resident();
    assert!(resident.contains(&128) && !resident.contains(&0) && !resident.contains(&256), "{resident:?}");
}

#[test]
fn a_full_list_drops_the_oldest() {
    let mut bench = Bench::new(PrefetchParams { entries_max: 2, ..lost() }, 4);
    bench.quantum(A, 0..4);
    bench.quantum(B, 100..104);
    assert_eq!(bench.hierarchy.watch().entries(A), 2);
    bench.quantum(A, []);
    let counters = bench.restorer.counters(A);
    assert_eq!((counters.restored_lines, counters.dropped_lines, counters.entries), (2, 2, 2));
    assert_eq!(bench.resident(), [2, 3, 102, 103]);
}

#[test]
fn it_never_makes_memory_wait_longer_than_it_may() {
    // A line takes the bus 17 cycles. At 0, 17 and 34 cycles of backlog there is room, at 51 there is none.
    let mut bench = Bench::new(PrefetchParams { backlog_cycles_max: 34, ..lost() }, 16);
    bench.quantum(A, 0..16);
    bench.quantum(B, 100..116);
    bench.begin(A);
    let mut sent = Vec::new();
    for _ in 0..4 {
        assert_eq!(bench.restorer.due_cycle(0), bench.now);
        bench.restorer.running(&mut bench.hierarchy, 0, A, bench.now);
        let (prefetches, metadata) = bench.traffic();
        sent.push(prefetches + metadata);
        assert!(bench.hierarchy.dram().backlog_cycles(bench.now) <= 34 + 17);
        bench.now += 34;
    }
    // Two lines of record first, then lines; after the first call the bus has room for two in 34 cycles.
    assert_eq!(sent, [3, 5, 7, 9]);
    // A demand miss waits for what is on its way, not for what is still to come.
    let waited = bench.hierarchy.dram_counters().read_wait_cycles;
    bench.read(A, [5000]);
    assert!(bench.hierarchy.dram_counters().read_wait_cycles - waited <= 34 + 17);
    bench.restorer.switched_out(&mut bench.hierarchy, 0, A, bench.now);
    assert_eq!(bench.restorer.counters(A).unfinished_lines, 16 - 7);
    assert_eq!(bench.traffic(), (7, 4), "what was written is paid for, finished or not");
}

#[test]
fn what_a_context_evicts_itself_and_what_it_loses_while_it_runs_is_not_restored() {
    for params in
        [lost(), PrefetchParams { kind: RecordKind::Accessed { region_lines: 64, hit_filter: false }, ..accessed() }]
    {
        let mut bench = Bench::new(params, 4);
        bench.quantum(A, 0..12);
        bench.quantum(A, []);
        assert_eq!((bench.resident(), bench.traffic().0), (vec![8, 9, 10, 11], 0));
    }
    // Both run at the same time.
    let mut records = Records::new(lost());
    records.switched_in(A);
    let mut hierarchy = Hierarchy::new(config(4), records).unwrap();
    for line in (0..4).chain(100..104) {
        let context = if line < 100 { A } else { B };
        hierarchy.access(usize::from(context.0), context, Kind::Read, line * 64, line);
    }
    assert_eq!(hierarchy.watch().entries(A), 0);
}

#[test]
fn restored_lines_go_where_a_hit_would_have_moved_them() {
    let config = HierarchyConfig { l3_policy: PolicyKind::PerContext(vec![Insertion::Lru]), ..config(4) };
    let hierarchy = Hierarchy::new(config, Records::new(lost())).unwrap();
    let mut bench = Bench { hierarchy, restorer: Restorer::new(1), now: 0 };
    bench.quantum(A, 0..4);
    bench.quantum(B, 100..104);
    bench.quantum(A, []);
    assert_eq!(bench.resident(), [0, 1, 2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_restored_that_was_not_lost_and_records_stay_bounded(
        seed in any::<u64>(), entries_max in 1_usize..24, region_lines in 0_u32..7, by_region in any::<bool>(),
        filter in any::<bool>(),
    ) {
        let kind = if by_region {
            RecordKind::Accessed { region_lines: 1 << region_lines, hit_filter: filter }
        } else {
            RecordKind::Lost
        };
        let params = PrefetchParams { kind, entries_max, entry_bytes: 16, ..lost() };
        let mut bench = Bench::new(params, 16);
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut lost: [HashSet<u64>; 3] = Default::default();
        let mut used: [HashSet<u64>; 3] = Default::default();
        let mut record_lines = 0;
        for _ in 0..60 {
            let index = chance.usize(..3);
            let context = ContextId(u8::try_from(index).unwrap());
            let entries = bench.hierarchy.watch().entries(context) as u64;
            prop_assert!(entries <= entries_max as u64);
            record_lines += 2 * (entries * 16).div_ceil(64);
            let before = bench.resident();
            bench.begin(context);
            bench.restorer.running(&mut bench.hierarchy, 0, context, bench.now);
            prop_assert_eq!(bench.traffic().1, record_lines);
            let fetched: Vec<u64> = bench.resident().into_iter().filter(|line| !before.contains(line)).collect();
            let may = if by_region { &used[index] } else { &lost[index] };
            prop_assert!(fetched.iter().all(|line| may.contains(line)), "{:?} of {:?}", fetched, may);
            // What others lose to what is restored.
            let mut resident = before;
            let mut note = |bench: &Bench, lost: &mut [HashSet<u64>; 3]| {
                let now = bench.resident();
                for line in resident.iter().filter(|line| !now.contains(line)) {
                    lost[usize::try_from(line / 100).unwrap()].insert(*line);
                }
                resident = now;
            };
            note(&bench, &mut lost);
            lost[index].clear();
            used[index].clear();
            for _ in 0..chance.usize(..30) {
                let line = index as u64 * 100 + chance.u64(..20);
                bench.read(context, [line]);
                used[index].insert(line);
                note(&bench, &mut lost);
            }
            lost[index].clear();
            bench.restorer.switched_out(&mut bench.hierarchy, 0, context, bench.now);
        }
    }
}

/// Two contexts in turn: one comes back to 300 lines of an L3 of 1,024, the other pushes them all out.
fn shared(params: Option<PrefetchParams>) -> (u64, u64) {
    let profile = |from_lines, to_lines| Profile {
        bands: vec![Band { weight: 1.0, from_lines, to_lines }],
        footprint_lines: to_lines + 1,
        // A program that asks for its lines as fast as the bus brings them needs nobody to bring them sooner.
        accesses_per_instruction: 0.01,
        store_ratio: 0.25,
    };
    let trace = |profile| Box::new(Synthetic::new(profile, 0, 1, u64::MAX).unwrap()) as Box<dyn Trace>;
    let machine = MachineConfig {
        hierarchy: HierarchyConfig { cores: 1, ..config(1024) },
        paging: PagingConfig::default(),
        contexts: vec![ContextConfig { core: 0, core_model: CoreConfig::default() }; 2],
        slice_cycles: 100_000,
        switch_cycles: 100,
    };
    let traces = vec![trace(profile(10, 299)), trace(profile(2_999, 2_999))];
    let outcome = match params {
        None => {
            let mut machine = Machine::new(machine, traces).unwrap();
            machine.run_quanta(40).unwrap();
            machine.outcome()
        }
        Some(params) => {
            let mut machine = Machine::with_hooks(machine, traces, Records::new(params), Restorer::new(1)).unwrap();
            machine.run_quanta(40).unwrap();
            machine.outcome()
        }
    };
    let friendly = outcome.contexts[0];
    (friendly.counters.l3.misses, friendly.instructions)
}

#[test]
fn a_friendly_context_misses_less_with_either_and_gets_more_done() {
    let (misses, instructions) = shared(None);
    for params in [PrefetchParams::daly_cain(), PrefetchParams::recap()] {
        let (fewer, more) = shared(Some(params));
        assert!(
            fewer * 5 < misses * 3 && more > instructions,
            "{params:?}: {fewer} of {misses}, {more} over {instructions}"
        );
        assert_eq!(shared(Some(params)), (fewer, more), "the same every time");
    }
}
