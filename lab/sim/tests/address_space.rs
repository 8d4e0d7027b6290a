//! What threads of one address space do to each other in the kernel: its semaphore, and shootdowns of idle vCPUs. Each
//! with the arithmetic beside it.

use gleaner_sim::config::{Config, HostConfig, LazyTlb, Scheduler, VmConfig};
use gleaner_sim::program::{Builder, Op, Span, Writers};
use gleaner_sim::{Costs, SimResult, Simulation};

const MS: u64 = 1_000_000;
/// A halted vCPU is taken up in 1 ms.
const COSTS: Costs = Costs { vcpu_resume_ns: MS, ..Costs::FREE };

fn compute(time: u64) -> Op {
    Op::Compute(Span::Fixed(time))
}

/// Each program on a vCPU, and a pCPU, of its own.
fn run(mut b: Builder, programs: &[Vec<Op>], lazy_tlb: LazyTlb) -> SimResult {
    for (program, n) in programs.iter().zip(0..) {
        for op in program {
            b.op(*op);
        }
        b.threads(1, 1 << n);
    }
    let vcpus = u32::try_from(programs.len()).unwrap();
    let mut vm = VmConfig::new("vm", vcpus, COSTS, b.build());
    vm.guest.lazy_tlb = lazy_tlb;
    let config = Config::new(HostConfig::new(vcpus, Scheduler::Dedicated), vec![vm]);
    Simulation::new(config).and_then(Simulation::run).unwrap().0
}

/// A reader of 9 ms, a writer after 1 ms, a reader after 2, a second writer after `late` for 3 ms.
fn convoy(writers: Writers, late: Option<u64>) -> Option<u64> {
    let mut b = Builder::new();
    let sem = b.rwsem(writers);
    let read = |before, for_| vec![compute(before), Op::ReadLock(sem), compute(for_), Op::ReadUnlock(sem)];
    let write = |before, for_| vec![compute(before), Op::WriteLock(sem), compute(for_), Op::WriteUnlock(sem)];
    let mut programs = vec![read(0, 9 * MS), write(MS, MS), read(2 * MS, MS)];
    programs.extend(late.map(|late| write(late, 3 * MS)));
    run(b, &programs, LazyTlb::Spared).vms[0].totals.ended_at
}

#[test]
fn a_writer_that_sleeps_stops_readers_for_two_wake_ups() {
    // The first reads [0, 9). The writer sleeps from 1, the second reader behind it from 2, though others read. At 9
    // the writer is woken, is there at 10, writes until 11; the reader is woken then, is there at 12, reads until 13.
    // Without the writer it would have been done at 3.
    for writers in [Writers::Steal, Writers::InTurn] {
        assert_eq!(convoy(writers, None), Some(13 * MS), "{writers:?}");
    }
}

#[test]
fn a_writer_that_runs_overtakes_one_that_is_being_woken_since_linux_3_9() {
    // The second writer comes at 9.5, when the first is on its way. It has the semaphore until 12.5; the first is there
    // at 10, sleeps again, is woken at 12.5, writes [13.5, 14.5); the reader reads [15.5, 16.5).
    assert_eq!(convoy(Writers::Steal, Some(9_500_000)), Some(16_500_000));
    // In turn, the first has had it since 9 and writes [10, 11), the reader reads [12, 13), the second writer writes
    // [14, 17).
    assert_eq!(convoy(Writers::InTurn, Some(9_500_000)), Some(17 * MS));
}

#[test]
fn readers_share() {
    let mut b = Builder::new();
    let sem = b.rwsem(Writers::Steal);
    let reads = || vec![Op::ReadLock(sem), compute(5 * MS), Op::ReadUnlock(sem)];
    assert_eq!(run(b, &[reads(), reads(), reads()], LazyTlb::Spared).vms[0].totals.ended_at, Some(5 * MS));
}

#[test]
fn an_idle_vcpu_is_asked_once_in_an_idle_period() {
    let ended = |lazy_tlb| {
        let two = [compute(2 * MS), Op::Shootdown, compute(2 * MS), Op::Shootdown];
        run(Builder::new(), &[two.to_vec(), vec![compute(MS)]], lazy_tlb).vms[0].totals.ended_at
    };
    // The second vCPU idles from 1. If it is asked at 2, it has to be taken up for that, which takes 1 ms; at the next
    // shootdown it has left the address space.
    assert_eq!(ended(LazyTlb::Spared), Some(4 * MS));
    assert_eq!(ended(LazyTlb::Leaves), Some(5 * MS));
}

#[test]
fn an_idle_vcpu_that_has_not_answered_yet_is_asked_by_others_too() {
    let ended = |second| {
        let shoots = |at| vec![compute(at), Op::Shootdown];
        run(Builder::new(), &[shoots(2 * MS), shoots(second), vec![compute(MS)]], LazyTlb::Leaves).vms[0]
            .totals
            .ended_at
    };
    // The third vCPU, idle from 1, is asked at 2 and is there at 3. Whoever asks at 2.5 waits for that, too.
    assert_eq!(ended(2_500_000), Some(3 * MS));
    // At 3.5 it has left the address space; the first vCPU, idle since 3, is asked, and takes 1 ms.
    assert_eq!(ended(3_500_000), Some(4_500_000));
}
