use super::*;
use CacheClass::{CacheFriendly, CpuBound, Thrashing};

/// A VM's nature: accesses per 1,000 instructions, and how many of them miss with a whole cache and with the minimal
/// one.
#[derive(Clone, Copy)]
struct Nature {
    accesses: u64,
    full: u64,
    minimal: u64,
    /// Instructions in an interval, in millions.
    speed: u64,
}

const FRIENDLY: Nature = Nature { accesses: 20, full: 2, minimal: 18, speed: 100 };
const THRASHING: Nature = Nature { accesses: 30, full: 28, minimal: 30, speed: 100 };
const CPU: Nature = Nature { accesses: 0, full: 0, minimal: 0, speed: 100 };

/// A host: while a thrashing VM is not confined, everybody else misses as with the minimal allocation.
struct Host {
    policy: LlcPolicy,
    vms: Vec<Nature>,
    shares: Vec<LlcShare>,
    polluted: bool,
    log: Vec<(u32, u32, LlcShare, LlcReason)>,
    interval: u32,
}

impl Host {
    fn new(vms: &[Nature], polluted: bool) -> Self {
        let mut policy = LlcPolicy::new(LlcParams::default());
        (0..).zip(vms).for_each(|(vm, _)| policy.add(LlcVm(vm), None));
        Self {
            policy,
            vms: vms.to_vec(),
            shares: vec![LlcShare::Untouched; vms.len()],
            polluted,
            log: vec![],
            interval: 0,
        }
    }

    fn counts(&self, at: usize) -> LlcCounts {
        let vm = self.vms[at];
        let others = self.vms.iter().zip(&self.shares).enumerate();
        let thrashed = others
            .clone()
            .any(|(other, (nature, share))| other != at && nature.full > 20 && *share != LlcShare::Minimal);
        let lost = self.shares[at] == LlcShare::Minimal || (self.polluted && thrashed);
        let misses = if lost { vm.minimal } else { vm.full };
        let thousands = vm.speed * 1000;
        LlcCounts { instructions: thousands * 1000, accesses: thousands * vm.accesses, misses: thousands * misses }
    }

    fn run(&mut self, intervals: u32) -> &mut Self {
        for _ in 0..intervals {
            self.interval += 1;
            let counts = (0..).map(LlcVm).zip((0..self.vms.len()).map(|at| self.counts(at))).collect();
            let moves = self.policy.step(&counts);
            let confined = moves.iter().filter(|m| m.reason == LlcReason::Class(Thrashing)).count();
            assert!(confined <= 1, "one at a time: {moves:?}");
            for change in moves {
                let at = usize::try_from(change.vm.0).unwrap();
                assert_ne!(self.shares[at], change.to, "a move is a change: {change:?}");
                self.shares[at] = change.to;
                self.log.push((self.interval, change.vm.0, change.to, change.reason));
            }
        }
        self
    }
}

#[test]
fn each_gets_what_its_class_deserves() {
    let mut host = Host::new(&[CPU, FRIENDLY, THRASHING], false);
    host.run(2);
    assert_eq!(host.shares, [LlcShare::Untouched, LlcShare::Rest, LlcShare::Minimal]);
    let classes = [0, 1, 2].map(|vm| host.policy.class(LlcVm(vm)).0);
    assert_eq!(classes, [Some(CpuBound), Some(CacheFriendly), Some(Thrashing)]);
}

#[test]
fn one_interval_is_not_enough() {
    let mut host = Host::new(&[THRASHING], false);
    host.run(1);
    assert_eq!(host.log, []);
    // It changes its mind at once: counted from the beginning.
    host.vms[0] = FRIENDLY;
    host.run(1);
    assert_eq!(host.log, []);
    host.run(1);
    assert_eq!(host.log, [(3, 0, LlcShare::Rest, LlcReason::Class(CacheFriendly))]);
}

#[test]
fn a_friendly_vm_in_bad_company_is_not_confined() {
    // The friendly one looks thrashing until the other is confined: 18 of 20 accesses miss.
    let mut host = Host::new(&[FRIENDLY, THRASHING], true);
    host.run(9);
    assert_eq!(host.shares, [LlcShare::Rest, LlcShare::Minimal]);
    assert!(host.log.iter().all(|(_, vm, to, _)| *vm != 0 || *to != LlcShare::Minimal), "{:?}", host.log);
}

#[test]
fn several_in_bad_company_are_confined_worst_first() {
    let slow = Nature { speed: 70, ..THRASHING };
    let mut host = Host::new(&[slow, FRIENDLY, THRASHING, slow], true);
    host.run(40);
    let first: Vec<u32> =
        host.log.iter().filter(|(_, _, _, why)| *why == LlcReason::Class(Thrashing)).map(|(_, vm, _, _)| *vm).collect();
    assert_eq!(first[0], 2);
    let classes = [0, 1, 2, 3].map(|vm| host.policy.class(LlcVm(vm)).0);
    assert_eq!(classes, [Some(Thrashing), Some(CacheFriendly), Some(Thrashing), Some(Thrashing)]);
    assert!(!first.contains(&1), "{:?}", host.log);
}

#[test]
fn a_friendly_vm_that_was_confined_in_bad_company_comes_back_and_stays() {
    // It misses more than the two slow ones that thrash, and is confined before them.
    let slow = Nature { speed: 50, ..THRASHING };
    let mut host = Host::new(&[slow, FRIENDLY, THRASHING, slow], true);
    host.run(40);
    assert!(host.log.iter().any(|(_, vm, to, _)| *vm == 1 && *to == LlcShare::Minimal), "{:?}", host.log);
    host.log.clear();
    host.run(200);
    assert_eq!(host.log.iter().filter(|(_, vm, _, _)| *vm == 1).count(), 0, "{:?}", host.log);
    assert_eq!(host.policy.class(LlcVm(1)).0, Some(CacheFriendly));
}

#[test]
fn a_confined_vm_is_sampled_two_intervals_of_ten() {
    let mut host = Host::new(&[THRASHING], false);
    host.run(102);
    let with_rest: u32 = {
        let mut at = None;
        host.log.iter().fold(0, |sum, (interval, _, to, _)| match (to, at.take()) {
            (LlcShare::Rest, _) => {
                at = Some(*interval);
                sum
            }
            (_, Some(began)) => sum + interval - began,
            _ => sum,
        })
    };
    assert_eq!(with_rest, 20, "{:?}", host.log);
    assert_eq!(host.policy.class(LlcVm(0)).0, Some(Thrashing));
}

#[test]
fn samples_are_taken_one_vm_at_a_time() {
    let mut host = Host::new(&[THRASHING; 4], false);
    let mut sampled_ever = [false; 4];
    for _ in 0..200 {
        host.run(1);
        let sampled: Vec<usize> = (0..4).filter(|at| host.shares[*at] == LlcShare::Rest).collect();
        assert!(sampled.len() <= 1, "{sampled:?}");
        for at in sampled {
            sampled_ever[at] = true;
        }
    }
    assert_eq!(sampled_ever, [true; 4]);
}

#[test]
fn who_changes_is_given_the_cache_back_within_a_period() {
    for (new, share) in [(FRIENDLY, LlcShare::Rest), (CPU, LlcShare::Untouched)] {
        let mut host = Host::new(&[THRASHING], false);
        host.run(20);
        host.vms[0] = new;
        host.run(11);
        assert_eq!(host.shares[0], share, "{:?}", host.log);
        host.run(30);
        assert_eq!(host.shares[0], share, "and stays: {:?}", host.log);
    }
    let mut host = Host::new(&[FRIENDLY], false);
    host.run(20);
    host.vms[0] = THRASHING;
    host.run(3);
    assert_eq!(host.shares[0], LlcShare::Minimal);
}

#[test]
fn a_vm_that_does_nothing_stays_what_it_was() {
    let idle = Nature { speed: 0, ..THRASHING };
    let mut host = Host::new(&[idle], false);
    host.run(30);
    assert!(host.log.is_empty() && host.policy.class(LlcVm(0)).0.is_none());
    host.vms[0] = THRASHING;
    host.run(5);
    assert_eq!(host.shares[0], LlcShare::Minimal);
    host.vms[0] = idle;
    host.run(50);
    assert_eq!(host.policy.class(LlcVm(0)).0, Some(Thrashing));
}

#[test]
fn an_idle_vms_sample_does_not_keep_the_others_from_theirs() {
    let mut host = Host::new(&[THRASHING, THRASHING], false);
    host.run(10);
    host.vms[0] = Nature { speed: 0, ..THRASHING };
    host.log.clear();
    host.run(60);
    let samples = |vm: u32| host.log.iter().filter(|(_, of, _, why)| *of == vm && *why == LlcReason::Sample).count();
    assert!(samples(0) >= 2 && samples(1) >= 2, "{:?}", host.log);
}

#[test]
fn what_is_told_is_not_judged() {
    let mut policy = LlcPolicy::new(LlcParams::default());
    policy.add(LlcVm(0), Some(Thrashing));
    policy.add(LlcVm(1), Some(Thrashing));
    policy.add(LlcVm(2), Some(CacheFriendly));
    policy.add(LlcVm(3), Some(CpuBound));
    let none = BTreeMap::new();
    let moves = policy.step(&none);
    let to: Vec<(u32, LlcShare)> = moves.iter().map(|change| (change.vm.0, change.to)).collect();
    assert_eq!(to, [(0, LlcShare::Minimal), (1, LlcShare::Minimal), (2, LlcShare::Rest)]);
    let friendly = LlcCounts { instructions: 1 << 30, accesses: 1 << 25, misses: 1 << 10 };
    for _ in 0..50 {
        assert_eq!(policy.step(&[(LlcVm(0), friendly)].into()), []);
    }
    policy.remove(LlcVm(0));
    assert_eq!(policy.class(LlcVm(0)), (None, CacheUse::default()));
}

#[test]
fn absurd_parameters_and_counters_do_no_harm() {
    let params = LlcParams { period: 0, settle: 0, agree: 0, instructions_min: 0, ..LlcParams::default() };
    let mut policy = LlcPolicy::new(params);
    policy.add(LlcVm(0), None);
    for counts in [(0, 0, 0), (0, 5, 5), (u64::MAX, u64::MAX, u64::MAX), (1, 0, u64::MAX)] {
        let (instructions, accesses, misses) = counts;
        for _ in 0..5 {
            policy.step(
                &[
                    (LlcVm(0), LlcCounts { instructions, accesses, misses }),
                    (LlcVm(9), LlcCounts { instructions, accesses, misses }),
                ]
                .into(),
            );
        }
    }
}
