//! Every replacement policy against a deliberately naive model of it, access by access: the same hits, the same
//! victims.
//!
//! The models share nothing with the simulator: recency is a time stamp in each line and not an order of lines.

use fastrand::Rng;
use gleaner_cachesim::cache::{Cache, Fill};
use gleaner_cachesim::insertion::{Insertion, Quantum};
use gleaner_cachesim::policy::{Policy, PolicyKind};
use gleaner_cachesim::{ContextId, Geometry, Line};
use proptest::prelude::*;

#[derive(Clone, Copy)]
struct NaiveLine {
    number: u64,
    dirty: bool,
    /// When it was used; below all others for an insertion at LRU.
    stamp: i64,
}

/// One cache with any of the policies, straight from their papers.
struct Naive {
    policy: PolicyKind,
    sets: Vec<Vec<Option<NaiveLine>>>,
    clock: i64,
    /// Time sampling: misses of every quantum that each context has had so far, the one under way last.
    quanta: [Vec<u64>; CONTEXTS],
}

impl Naive {
    fn new(policy: PolicyKind, sets: usize, ways: usize) -> Self {
        Self { policy, sets: vec![vec![None; ways]; sets], clock: 0, quanta: Default::default() }
    }

    fn position(&mut self, number: u64) -> (usize, Option<usize>) {
        let set = usize::try_from(number).unwrap() % self.sets.len();
        (set, self.sets[set].iter().position(|line| line.is_some_and(|line| line.number == number)))
    }

    fn access(&mut self, number: u64, write: bool, context: ContextId) -> (bool, Option<u64>) {
        self.clock += 1;
        let (set, found) = self.position(number);
        if let Some(way) = found {
            let line = self.sets[set][way].as_mut().unwrap();
            line.stamp = self.clock;
            line.dirty |= write;
            return (true, None);
        }
        *self.quanta[usize::from(context.0)].last_mut().unwrap() += 1;
        let way = self.victim(set);
        let evicted = self.sets[set][way].map(|line| line.number);
        self.sets[set][way] = None;
        let stamp = self.inserted(set, context);
        self.sets[set][way] = Some(NaiveLine { number, dirty: write, stamp });
        (false, evicted)
    }

    fn victim(&mut self, set: usize) -> usize {
        if let Some(empty) = self.sets[set].iter().position(Option::is_none) {
            return empty;
        }
        let stamps = self.sets[set].iter().map(|line| line.unwrap().stamp);
        stamps.enumerate().min_by_key(|(_, stamp)| *stamp).unwrap().0
    }

    /// Stamp of a new line.
    fn inserted(&mut self, set: usize, context: ContextId) -> i64 {
        let lowest = self.sets[set].iter().flatten().map(|line| line.stamp).min().unwrap_or(0) - 1;
        let at_lru = match &self.policy {
            PolicyKind::Lru => false,
            PolicyKind::DipTime => self.samples_or_follows_lru(context),
            PolicyKind::PerContext(insertions) => insertions.get(usize::from(context.0)) == Some(&Insertion::Lru),
        };
        if at_lru { lowest } else { self.clock }
    }

    /// MICRO'14, section IV-B: of ten quanta the first inserts at MRU, the second at LRU, the others as the one with
    /// fewer misses did; LRU where they are similar, which is here within a twentieth.
    fn samples_or_follows_lru(&self, context: ContextId) -> bool {
        let quanta = &self.quanta[usize::from(context.0)];
        let now = quanta.len() - 1;
        let period = now / 10 * 10;
        match now - period {
            0 => false,
            1 => true,
            _ => 100 * quanta[period] >= 95 * quanta[period + 1],
        }
    }

    fn write_back(&mut self, number: u64) -> bool {
        let (set, found) = self.position(number);
        found.map(|way| self.sets[set][way].as_mut().unwrap().dirty = true).is_some()
    }
}

const ACCESSES: usize = 60_000;
const CONTEXTS: usize = 3;

/// A number that is often small and of lines used lately: hits and misses, whatever the policy. The last context reuses
/// little.
fn draw(chance: &mut Rng, lines: u64, step: usize, context: ContextId) -> u64 {
    let circle = step as u64 % lines;
    if usize::from(context.0) == CONTEXTS - 1 {
        return circle;
    }
    match chance.u8(..8) {
        0..3 => chance.u64(..lines),
        3..5 => chance.u64(..=lines / 8),
        // A circle a little larger than the cache, on which LRU and BIP differ.
        _ => circle,
    }
}

/// Returns which insertions time sampling would have followed after its samples.
fn agree(policy: &PolicyKind, sets: usize, ways: u32, seed: u64) -> [bool; 2] {
    let geometry = Geometry::new(sets as u64 * u64::from(ways) * 64, ways, 64).unwrap();
    let mut cache = Cache::new(geometry, Policy::new(policy));
    let mut naive = Naive::new(policy.clone(), sets, geometry.ways());
    let mut chance = Rng::with_seed(seed ^ 0xace);
    let lines = geometry.lines() as u64 * 5 / 4 + 1;
    let (mut step, mut followed) = (0, [false; 2]);
    while step < ACCESSES {
        let context = ContextId(u8::try_from(chance.usize(..CONTEXTS)).unwrap());
        cache.policy_mut().quantum_started(context);
        naive.quanta[usize::from(context.0)].push(0);
        let is_sample = (naive.quanta[usize::from(context.0)].len() - 1) % 10 < 2;
        followed[usize::from(naive.samples_or_follows_lru(context))] |= !is_sample;
        for _ in 0..chance.usize(1..300) {
            step += 1;
            let number = draw(&mut chance, lines, step, context);
            match chance.u8(..64) {
                0 => assert_eq!(cache.write_back(number), naive.write_back(number)),
                _ => same_access(&mut cache, &mut naive, number, chance.bool(), context, step),
            }
        }
        let misses = *naive.quanta[usize::from(context.0)].last().unwrap();
        cache.policy_mut().quantum_ended(context, Quantum { misses, length: 1 });
    }
    check_contents(&cache, &naive);
    followed
}

fn same_access(cache: &mut Cache, naive: &mut Naive, number: u64, write: bool, context: ContextId, step: usize) {
    let expected = naive.access(number, write, context);
    let hit = cache.access(number, write);
    let why = if write { Fill::Dirty } else { Fill::Clean };
    let evicted = if hit { None } else { cache.fill(number, context, why) };
    assert_eq!((hit, evicted.map(Line::number)), expected, "{:?}, access {step}", naive.policy);
}

fn check_contents(cache: &Cache, naive: &Naive) {
    let mut found: Vec<_> = cache.resident().map(|line| (line.number(), line.is_dirty())).collect();
    let mut expected: Vec<_> = naive.sets.iter().flatten().flatten().map(|line| (line.number, line.dirty)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(cache.fills() - cache.evictions(), found.len() as u64, "lines are conserved");
}

proptest! {
    // Twenty shapes for each of the three, 60,000 accesses for each.
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_agrees_with_its_naive_model(sets_log in 0_u32..6, ways in 1_u32..20, seed in any::<u64>()) {
        let per_context = PolicyKind::PerContext(vec![Insertion::Lru, Insertion::Mru]);
        for policy in [PolicyKind::Lru, per_context, PolicyKind::DipTime] {
            agree(&policy, 1 << sets_log, ways, seed);
        }
    }
}

#[test]
fn time_sampling_has_followed_either_sample() {
    let time = PolicyKind::DipTime;
    assert_eq!(agree(&time, 8, 8, 1), [true; 2]);
}

#[test]
fn lru_hits_at_distances_below_its_ways_and_only_there() {
    let geometry = Geometry::new(16 * 64, 16, 64).unwrap();
    let mut cache = Cache::new(geometry, Policy::new(&PolicyKind::Lru));
    let mut stack: Vec<u64> = Vec::new();
    let mut chance = Rng::with_seed(9);
    for _ in 0..200_000 {
        let number = chance.u64(..30);
        let distance = stack.iter().position(|other| *other == number);
        let hit = cache.access(number, false);
        assert_eq!(hit, distance.is_some_and(|distance| distance < 16));
        if !hit {
            cache.fill(number, ContextId(0), Fill::Clean);
        }
        distance.map(|distance| stack.remove(distance));
        stack.insert(0, number);
    }
}
