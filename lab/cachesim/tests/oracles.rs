//! Every replacement policy against a deliberately naive model of it, access by access: the same hits, the same
//! victims.
//!
//! The models share nothing with the simulator but the coin's seed. Recency is a time stamp in each line and not an
//! order of lines; leaders are compared bit by bit.

use fastrand::Rng;
use gleaner_cachesim::cache::{Cache, Fill};
use gleaner_cachesim::insertion::{Insertion, Quantum};
use gleaner_cachesim::policy::{Policy, PolicyKind, Replacement};
use gleaner_cachesim::{ContextId, Geometry, Line};
use proptest::prelude::*;

#[derive(Clone, Copy)]
struct NaiveLine {
    number: u64,
    dirty: bool,
    /// Recency policies: when it was used; below all others for an insertion at LRU.
    stamp: i64,
    /// RRIP policies.
    rrpv: u8,
}

/// One cache with any of the policies, straight from their papers.
struct Naive {
    policy: PolicyKind,
    sets: Vec<Vec<Option<NaiveLine>>>,
    clock: i64,
    selector: i32,
    coin: Rng,
    /// Time sampling: misses of every quantum that each context has had so far, the one under way last.
    quanta: [Vec<u64>; CONTEXTS],
}

impl Naive {
    fn new(policy: PolicyKind, sets: usize, ways: usize, seed: u64) -> Self {
        let coin = Rng::with_seed(seed);
        Self { policy, sets: vec![vec![None; ways]; sets], clock: 0, selector: 512, coin, quanta: Default::default() }
    }

    fn is_rrip(&self) -> bool {
        matches!(self.policy, PolicyKind::Srrip | PolicyKind::Drrip)
    }

    fn duels(&self) -> bool {
        matches!(self.policy, PolicyKind::DipDuel | PolicyKind::Drrip)
    }

    /// +1 where LRU or SRRIP leads, -1 where BIP or BRRIP does: complement-select (ISCA'07, section 4.3).
    fn leads(&self, set: usize) -> i32 {
        let bits = self.sets.len().trailing_zeros() as usize;
        let bit = |value: usize, at: usize| value >> at & 1;
        let (constituency, offset_bits) = (set >> (bits - 5), bits - 5);
        let equal = (0..offset_bits).all(|at| bit(set, at) == if at < 5 { bit(constituency, at) } else { 0 });
        let opposite = (0..offset_bits).all(|at| bit(set, at) == 1 - if at < 5 { bit(constituency, at) } else { 0 });
        i32::from(equal) - i32::from(opposite)
    }

    /// Whether the set uses LRU or SRRIP and not the bimodal policy.
    fn uses_first(&self, set: usize) -> bool {
        match self.leads(set) {
            0 => self.selector < 512,
            leads => leads > 0,
        }
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
            (line.stamp, line.rrpv) = (self.clock, 0);
            line.dirty |= write;
            return (true, None);
        }
        *self.quanta[usize::from(context.0)].last_mut().unwrap() += 1;
        if self.duels() {
            self.selector = (self.selector + self.leads(set)).clamp(0, 1023);
        }
        let way = self.victim(set);
        let evicted = self.sets[set][way].map(|line| line.number);
        self.sets[set][way] = None;
        let (stamp, rrpv) = self.inserted(set, context);
        self.sets[set][way] = Some(NaiveLine { number, dirty: write, stamp, rrpv });
        (false, evicted)
    }

    fn victim(&mut self, set: usize) -> usize {
        if let Some(empty) = self.sets[set].iter().position(Option::is_none) {
            return empty;
        }
        if !self.is_rrip() {
            let stamps = self.sets[set].iter().map(|line| line.unwrap().stamp);
            return stamps.enumerate().min_by_key(|(_, stamp)| *stamp).unwrap().0;
        }
        loop {
            if let Some(distant) = self.sets[set].iter().position(|line| line.unwrap().rrpv == 3) {
                return distant;
            }
            self.sets[set].iter_mut().for_each(|line| line.as_mut().unwrap().rrpv += 1);
        }
    }

    /// Stamp and prediction of a new line.
    fn inserted(&mut self, set: usize, context: ContextId) -> (i64, u8) {
        let lowest = self.sets[set].iter().flatten().map(|line| line.stamp).min().unwrap_or(0) - 1;
        let (top, bottom) = ((self.clock, 2), (lowest, 3));
        let first = self.duels() && self.uses_first(set);
        match &self.policy {
            PolicyKind::DipTime if self.samples_or_follows_lru(context) => bottom,
            PolicyKind::Lru | PolicyKind::Srrip | PolicyKind::DipTime => top,
            PolicyKind::Lip => bottom,
            PolicyKind::PerContext(insertions) => match insertions.get(usize::from(context.0)) {
                Some(Insertion::Lru) => bottom,
                _ => top,
            },
            _ if first || self.coin.u32(..32) == 0 => top,
            _ => bottom,
        }
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

    fn invalidate(&mut self, number: u64) -> bool {
        let (set, found) = self.position(number);
        found.map(|way| self.sets[set][way] = None).is_some()
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
    let mut cache = Cache::new(geometry, policy.build(geometry, seed).unwrap());
    let mut naive = Naive::new(policy.clone(), sets, geometry.ways(), seed);
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
                0 => assert_eq!(cache.invalidate(number).is_some(), naive.invalidate(number)),
                1 => assert_eq!(cache.write_back(number), naive.write_back(number)),
                _ => same_access(&mut cache, &mut naive, number, chance.bool(), context, step),
            }
        }
        let misses = *naive.quanta[usize::from(context.0)].last().unwrap();
        cache.policy_mut().quantum_ended(context, Quantum { misses, length: 1 });
    }
    check_contents(&cache, &naive);
    followed
}

fn same_access(
    cache: &mut Cache<Policy>,
    naive: &mut Naive,
    number: u64,
    write: bool,
    context: ContextId,
    step: usize,
) {
    let expected = naive.access(number, write, context);
    let hit = cache.access(number, write);
    let why = if write { Fill::Dirty } else { Fill::Clean };
    let evicted = if hit { None } else { cache.fill(number, context, why) };
    assert_eq!((hit, evicted.map(Line::number)), expected, "{:?}, access {step}", naive.policy);
}

fn check_contents<P: Replacement>(cache: &Cache<P>, naive: &Naive) {
    let mut found: Vec<_> = cache.resident().map(|line| (line.number(), line.is_dirty())).collect();
    let mut expected: Vec<_> = naive.sets.iter().flatten().flatten().map(|line| (line.number, line.dirty)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(cache.fills() - cache.evictions(), found.len() as u64, "lines are conserved");
}

proptest! {
    // Twenty shapes for each of the ten, 1.2 million accesses for each: 12 million in all.
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_agrees_with_its_naive_model(
        sets_log in 0_u32..6, duel_sets_log in 7_u32..12, ways in 1_u32..20, seed in any::<u64>(),
    ) {
        let per_context = PolicyKind::PerContext(vec![Insertion::Lru, Insertion::Mru]);
        let time = PolicyKind::DipTime;
        for policy in [PolicyKind::Lru, PolicyKind::Lip, PolicyKind::Bip, PolicyKind::Srrip, per_context, time] {
            agree(&policy, 1 << sets_log, ways, seed);
        }
        for policy in [PolicyKind::DipDuel, PolicyKind::Drrip, PolicyKind::Srrip, PolicyKind::Bip] {
            agree(&policy, 1 << duel_sets_log, ways.min(8), seed);
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
    let mut cache = Cache::new(geometry, PolicyKind::Lru.build(geometry, 0).unwrap());
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

/// Misses of a policy on the 2 MB L3 when `lines` are used in a circle, after the first rounds, as a share of all.
fn circle(policy: &PolicyKind, lines: u64) -> f64 {
    let geometry = Geometry::new(2 << 20, 16, 64).unwrap();
    let mut cache = Cache::new(geometry, policy.build(geometry, 5).unwrap());
    let (mut misses, mut accesses) = (0_u64, 0_u64);
    for round in 0..60 {
        for number in 0..lines {
            let hit = cache.access(number, false);
            if !hit {
                cache.fill(number, ContextId(0), Fill::Clean);
            }
            if round >= 30 {
                misses += u64::from(!hit);
                accesses += 1;
            }
        }
    }
    misses as f64 / accesses as f64
}

/// Misses of a policy on the 2 MB L3, as a share of all, when a working set of three quarters of it is used ten times
/// over and then another: everything but the first time is LRU's to hit.
fn changing(policy: &PolicyKind) -> f64 {
    const ROUNDS: u64 = 10;
    let geometry = Geometry::new(2 << 20, 16, 64).unwrap();
    let mut cache = Cache::new(geometry, policy.build(geometry, 5).unwrap());
    let (mut misses, mut accesses) = (0_u64, 0_u64);
    for phase in 0..8 {
        for number in (0..ROUNDS).flat_map(|_| phase << 20..(phase << 20) + 12 * 2048) {
            let hit = cache.access(number, false);
            if !hit {
                cache.fill(number, ContextId(0), Fill::Clean);
            }
            // The first phase finds an empty cache, in which no policy has to choose.
            if phase > 0 {
                misses += u64::from(!hit);
                accesses += 1;
            }
        }
    }
    misses as f64 / accesses as f64
}

#[test]
fn dip_loses_next_to_nothing_to_lru_where_lip_and_bip_lose_much() {
    let lru = changing(&PolicyKind::Lru);
    assert!((lru - 0.1).abs() < 1e-9, "{lru}");
    for policy in [PolicyKind::Lip, PolicyKind::Bip] {
        let missed = changing(&policy);
        assert!(missed > 4.0 * lru, "{policy:?}: {missed}");
    }
    // 32 of 2,048 sets insert as BIP does, whatever is better.
    let dip = changing(&PolicyKind::DipDuel);
    assert!(dip < lru + 0.03, "{dip}");
}

#[test]
fn dip_beats_lru_on_a_circle_slightly_over_capacity_and_nobody_misses_on_one_that_fits() {
    // ISCA'07, section 3: on a circle of T lines in a cache of K, LRU never hits and LIP hits K-1 of T in each set.
    let over = 17 * 2048;
    let measured = |policy| circle(&policy, over);
    assert!(measured(PolicyKind::Lru) > 0.999);
    let lip = measured(PolicyKind::Lip);
    assert!((lip - 2.0 / 17.0).abs() < 1e-9, "{lip}");
    for (policy, at_most) in [(PolicyKind::Bip, 0.3), (PolicyKind::DipDuel, 0.3), (PolicyKind::Drrip, 0.4)] {
        let missed = measured(policy.clone());
        assert!(missed < at_most, "{policy:?}: {missed}");
    }
    for policy in [PolicyKind::Lru, PolicyKind::DipDuel, PolicyKind::Drrip] {
        let missed = circle(&policy, 15 * 2048);
        assert!(missed < 1e-3, "{policy:?}: {missed}");
    }
}
