//! What must hold in the whole machine, whatever runs on it.

use gleaner_cachesim::cache::Cache;
use gleaner_cachesim::core_model::{CoreClock, CoreConfig};
use gleaner_cachesim::hierarchy::{Hierarchy, HierarchyConfig, LevelConfig, Served};
use gleaner_cachesim::insertion::Insertion;
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, Outcome, SWITCH_CYCLES};
use gleaner_cachesim::paging::{PagingConfig, deal_colours};
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::trace::synthetic::{Profile, Synthetic};
use gleaner_cachesim::trace::{Kind, Record, Repeat, Shared, Trace};
use gleaner_cachesim::{ContextId, Geometry, Line};
use proptest::prelude::*;
use std::collections::HashSet;

/// Table V, but so small that everything is evicted all the time.
fn tiny(cores: usize, policy: PolicyKind) -> HierarchyConfig {
    let mut config = HierarchyConfig::table_v(cores, 4, policy).unwrap();
    let shrink =
        |level: &mut LevelConfig, size_bytes, ways| level.geometry = Geometry::new(size_bytes, ways, 64).unwrap();
    shrink(&mut config.l1i, 256, 2);
    shrink(&mut config.l1d, 512, 2);
    shrink(&mut config.l2, 1024, 4);
    shrink(&mut config.l3, 4096, 4);
    config
}

fn numbers(cache: &Cache) -> HashSet<u64> {
    cache.resident().map(Line::number).collect()
}

fn conserved(cache: &Cache) {
    let resident = numbers(cache);
    assert_eq!(resident.len(), cache.resident().count(), "a line is there twice");
    assert_eq!(cache.fills() - cache.evictions(), resident.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_conserved_after_every_access(
        seed in any::<u64>(), lru in any::<bool>(), cores in 1_usize..4,
    ) {
        let policy = if lru { PolicyKind::Lru } else { PolicyKind::PerContext(vec![Insertion::Lru; 2]) };
        let mut hierarchy = Hierarchy::new(tiny(cores, policy), ()).unwrap();
        let mut chance = fastrand::Rng::with_seed(seed);
        for now in 0..4000_u64 {
            let core = chance.usize(..cores);
            let kind = [Kind::Read, Kind::Write, Kind::Fetch][chance.usize(..3)];
            // Contexts share nothing: each core's has addresses of its own.
            let address = ((core as u64) << 30) + chance.u64(..200) * 64 + chance.u64(..64);
            let context = ContextId(u8::try_from(core).unwrap());
            if chance.u8(..20) == 0 {
                hierarchy.prefetch(context, address / 64, now);
            }
            let (served, done_at) = hierarchy.access(core, context, kind, address, now);
            prop_assert!(done_at > now && (served < Served::Memory || done_at >= now + 170));
            conserved(hierarchy.l3());
            for core in 0..cores {
                for cache in hierarchy.private_caches(core) {
                    conserved(cache);
                }
            }
        }
        let counters: Vec<_> = (0..cores).map(|c| hierarchy.counters(ContextId(u8::try_from(c).unwrap()))).collect();
        for counters in &counters {
            prop_assert_eq!(counters.l1i.misses + counters.l1d.misses, counters.l2.accesses);
            prop_assert_eq!(counters.l2.misses, counters.l3.accesses);
        }
        let dram = hierarchy.dram_counters();
        prop_assert_eq!(dram.reads, counters.iter().map(|counters| counters.l3.misses).sum::<u64>());
        prop_assert_eq!(dram.writes, counters.iter().map(|counters| counters.l3.writebacks).sum::<u64>());
    }
}

#[test]
fn every_store_reaches_memory_once_its_line_has_left_all_caches() {
    let mut hierarchy = Hierarchy::new(tiny(1, PolicyKind::Lru), ()).unwrap();
    (0..10).for_each(|line| {
        hierarchy.access(0, ContextId(0), Kind::Write, line * 64, 0);
    });
    (1000..3000).for_each(|line| {
        hierarchy.access(0, ContextId(0), Kind::Read, line * 64, 0);
    });
    assert_eq!(hierarchy.dram_counters().writes, 10);
    assert_eq!(hierarchy.counters(ContextId(0)).l1d.writebacks, 10);
}

fn machine(policy: PolicyKind, profiles: &[Profile], slice_cycles: u64) -> MachineConfig {
    MachineConfig {
        hierarchy: HierarchyConfig::table_v(1, profiles.len(), policy).unwrap(),
        paging: PagingConfig::default(),
        contexts: vec![ContextConfig { core: 0, core_model: CoreConfig::default() }; profiles.len()],
        slice_cycles,
        switch_cycles: SWITCH_CYCLES,
    }
}

fn traces(profiles: &[Profile]) -> Vec<Box<dyn Trace>> {
    let trace = |(seed, profile): (u64, &Profile)| {
        Box::new(Synthetic::new(profile.clone(), 0, seed, u64::MAX).unwrap()) as Box<dyn Trace>
    };
    (1..).zip(profiles).map(trace).collect()
}

fn run(config: MachineConfig, profiles: &[Profile], quanta: u64) -> Outcome {
    let mut machine = Machine::new(config, traces(profiles)).unwrap();
    machine.run_quanta(quanta).unwrap();
    machine.reset_counters();
    machine.run_quanta(quanta).unwrap();
    machine.outcome()
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let profiles = [Profile::cache_friendly(), Profile::thrashing()];
    for policy in [PolicyKind::Lru, PolicyKind::DipTime, PolicyKind::PerContext(vec![Insertion::Lru])] {
        let once = || run(machine(policy.clone(), &profiles, 340_000), &profiles, 5);
        let outcome = once();
        assert_eq!(outcome, once(), "{policy:?}");
        assert!(outcome.contexts.iter().all(|context| context.quanta == 5 && context.instructions > 0));
        assert_eq!(outcome.switches, 10);
    }
}

#[test]
fn the_three_types_miss_where_their_names_say() {
    let rates = |profile: Profile| {
        let profiles = [profile];
        let outcome = run(machine(PolicyKind::Lru, &profiles, 5_000_000), &profiles, 1);
        let counters = outcome.contexts[0].counters;
        let share = |misses: u64| misses as f64 / counters.l1d.accesses as f64;
        (share(counters.l2.misses), share(counters.l3.misses), outcome.contexts[0].cpi().unwrap())
    };
    let (cpu_l2, cpu_l3, cpu_cpi) = rates(Profile::cpu_bound());
    let (friendly_l2, friendly_l3, _) = rates(Profile::cache_friendly());
    let (thrashing_l2, thrashing_l3, thrashing_cpi) = rates(Profile::thrashing());
    assert!(cpu_l2 < 0.005 && cpu_l3 < 0.005, "{cpu_l2} {cpu_l3}");
    assert!(friendly_l2 > 0.03 && friendly_l3 < friendly_l2 / 3.0, "{friendly_l2} {friendly_l3}");
    assert!(thrashing_l2 > 0.07 && thrashing_l3 > 0.95 * thrashing_l2, "{thrashing_l2} {thrashing_l3}");
    assert!(thrashing_cpi > 2.0 * cpu_cpi, "{thrashing_cpi} {cpu_cpi}");
}

#[test]
fn a_thrashing_neighbour_costs_less_with_preservation_and_nothing_with_colours() {
    // A type-5 mix (Table VI) at a short slice: the friendly one's misses, by policy.
    let profiles = [Profile::cache_friendly(), Profile::thrashing()];
    let misses = |config: MachineConfig| {
        let counters = run(config, &profiles, 10).contexts[0].counters;
        counters.l3.misses as f64 / counters.l3.accesses as f64
    };
    let slice = 500_000;
    let lru = misses(machine(PolicyKind::Lru, &profiles, slice));
    let preserved = misses(machine(PolicyKind::DipTime, &profiles, slice));
    assert!(preserved < 0.8 * lru, "{preserved} {lru}");
    let mut coloured = machine(PolicyKind::Lru, &profiles, slice);
    coloured.paging.colours = deal_colours(coloured.hierarchy.l3.geometry, &[15, 1]).unwrap();
    let isolated = misses(coloured);
    assert!(isolated < lru, "{isolated} {lru}");
}

#[test]
fn cores_share_the_l3_and_memory() {
    let profiles = [Profile::thrashing(), Profile::thrashing()];
    let mut config = machine(PolicyKind::Lru, &profiles, 500_000);
    config.hierarchy.cores = 2;
    config.contexts[1].core = 1;
    let both = run(config.clone(), &profiles, 4);
    assert_eq!(both.switches, 0);
    let alone = run(machine(PolicyKind::Lru, &profiles[..1], 500_000), &profiles[..1], 4);
    let cpi = |outcome: &Outcome| outcome.contexts[0].cpi().unwrap();
    assert!(cpi(&both) > cpi(&alone), "two share one memory's bandwidth: {} {}", cpi(&both), cpi(&alone));
}

/// Two cores: the first context on core 1, the others on core 0.
fn first_on_a_core_of_its_own(policy: PolicyKind, profiles: &[Profile], slice_cycles: u64) -> Machine {
    let mut config = machine(policy, profiles, slice_cycles);
    config.hierarchy.cores = 2;
    config.contexts[0].core = 1;
    Machine::new(config, traces(profiles)).unwrap()
}

#[test]
fn a_context_alone_on_a_core_is_not_slowed_by_how_many_take_turns_on_another() {
    let cpi = |light: usize| {
        let profiles = [vec![Profile::thrashing()], vec![Profile::cpu_bound(); light]].concat();
        let mut machine = first_on_a_core_of_its_own(PolicyKind::Lru, &profiles, 500_000);
        // Their first accesses of all take bandwidth; then one at a time.
        machine.run_quanta(6).unwrap();
        machine.reset_counters();
        (0..8).for_each(|_| machine.run_quanta(1).unwrap());
        let outcome = machine.outcome();
        // Cores advance together in time, so the one alone gets the turns of all on the other.
        let [alone, others @ ..] = &outcome.contexts[..] else { panic!() };
        assert!(others.iter().all(|context| context.quanta.abs_diff(8) <= 1), "{outcome:?}");
        assert!(alone.quanta.abs_diff(8 * light as u64) <= 1, "{outcome:?}");
        assert!(
            others.iter().map(|context| context.cycles).sum::<u64>().abs_diff(alone.cycles) < 500_000,
            "{outcome:?}"
        );
        alone.cpi().unwrap()
    };
    let (one, two) = (cpi(1), cpi(2));
    assert!((two / one - 1.0).abs() < 0.05, "{one} {two}");
}

#[test]
fn one_quantum_at_a_time_and_a_reset_on_the_way_change_nothing() {
    let profiles = [Profile::thrashing(), Profile::cpu_bound(), Profile::cache_friendly()];
    let at_once = |policy: &PolicyKind, quanta: u64| {
        let mut machine = first_on_a_core_of_its_own(policy.clone(), &profiles, 100_000);
        machine.run_quanta(quanta).unwrap();
        machine.outcome()
    };
    for policy in [PolicyKind::Lru, PolicyKind::DipTime] {
        let whole = at_once(&policy, 24);
        let mut machine = first_on_a_core_of_its_own(policy.clone(), &profiles, 100_000);
        (0..24).for_each(|_| machine.run_quanta(1).unwrap());
        assert_eq!(machine.outcome(), whole);
        // A warm-up of seven, and what counts after it.
        let warm_up = at_once(&policy, 7);
        let mut machine = first_on_a_core_of_its_own(policy.clone(), &profiles, 100_000);
        machine.run_quanta(7).unwrap();
        machine.reset_counters();
        machine.run_quanta(17).unwrap();
        for ((after, whole), before) in machine.outcome().contexts.iter().zip(&whole.contexts).zip(&warm_up.contexts) {
            assert_eq!(before.instructions + after.instructions, whole.instructions);
            assert_eq!(before.cycles + after.cycles, whole.cycles);
            assert_eq!(before.quanta + after.quanta, whole.quanta);
            assert_eq!(before.counters.l3.misses + after.counters.l3.misses, whole.counters.l3.misses);
        }
    }
}

#[test]
fn a_trace_that_ends_leaves_the_core_to_the_others() {
    let records: Vec<Record> =
        (0..1000).map(|line| Record { address: line * 64, instructions: 3, kind: Kind::Read }).collect();
    let profiles = [Profile::cpu_bound(), Profile::cpu_bound()];
    let mut two = traces(&profiles);
    two[0] = Box::new(Shared::new(records));
    let mut machine = Machine::new(machine(PolicyKind::Lru, &profiles, 1_000_000), two).unwrap();
    machine.run_quanta(3).unwrap();
    let outcome = machine.outcome();
    let [short, long] = &outcome.contexts[..] else { panic!() };
    assert!(short.over && !long.over);
    assert_eq!((short.instructions, short.quanta, long.quanta), (3000, 1, 3));
    assert_eq!(short.counters.l1d.misses, 1000);
}

#[test]
fn a_machine_that_cannot_be_is_named() {
    let profiles = [Profile::cpu_bound()];
    let good = machine(PolicyKind::Lru, &profiles, 1);
    let said = |config: MachineConfig| Machine::new(config, traces(&profiles)).err().unwrap().to_string();
    let mut config = good.clone();
    config.contexts[0].core = 1;
    assert!(said(config).contains("a context on core 1: the machine has 1 cores"));
    let mut config = good.clone();
    config.contexts.push(config.contexts[0]);
    assert!(said(config).contains("2 contexts and 1 traces"));
    let mut config = good.clone();
    config.hierarchy.cores = 0;
    config.contexts[0].core = 0;
    assert!(said(config).contains("0 cores"));
    let mut config = good.clone();
    config.hierarchy.cores = 64;
    config.hierarchy.l2.geometry = Geometry::new(64 << 20, 8, 64).unwrap();
    assert!(said(config).contains("in the caches of 64 cores and the L3: more than 33554432"));
    let mut config = good;
    config.hierarchy.l2.geometry = Geometry::new(256 << 10, 8, 128).unwrap();
    assert!(said(config).contains("L2 lines of 128 bytes"));
}

/// Ten loads that miss, over and over, without an instruction among them: time has to pass all the same.
#[test]
fn time_passes_without_instructions_and_beyond_all_bounds() {
    for instructions in [0, u32::MAX] {
        let record = |n: u64| Record { address: 0x10_0000 + n * 4096, instructions, kind: Kind::Read };
        let records: Vec<Record> = (0..10).map(record).collect();
        let endless = Repeat::new(move || Ok(Shared::new(records.clone()))).unwrap();
        let profiles = [Profile::cpu_bound()];
        let mut machine = Machine::new(machine(PolicyKind::Lru, &profiles, 3_400), vec![Box::new(endless)]).unwrap();
        machine.run_quanta(3).unwrap();
        assert!(machine.outcome().contexts[0].instructions > 0);
        assert!(machine.outcome().contexts[0].quanta >= 3);
    }
    let mut clock = CoreClock::new(CoreConfig::default());
    (0..4).for_each(|_| clock.execute(u64::MAX / 2));
    clock.load(u64::MAX, true);
    clock.pass(u64::MAX);
    assert!(clock.has_reached(u64::MAX));
}
