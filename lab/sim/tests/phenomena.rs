//! The four ways in which a vCPU that vanishes hurts, and how a pCPU does that sleeps, each out of the mechanisms
//! alone, with the arithmetic.
//!
//! Nothing costs anything here, a hog shares one pCPU, and the host gives fixed slices of 10 ms in turn, the virtual
//! machine first: its vCPU on the shared pCPU runs in [0, 10), [20, 30) ms and so on.

mod common;
use common::{MS, US, compute, hog, round_robin, run, sleep, threads};
use gleaner_sim::config::{Config, CreditParams, HostConfig, IdleStates, PauseLoop, Scheduler, VmConfig};
use gleaner_sim::program::{Builder, Op, Span};
use gleaner_sim::{Costs, SimResult, Simulation, Time};

const SLICE: Time = 10 * MS;

fn mean(of: &gleaner_model::Distribution) -> Time {
    of.sum().0 / of.count()
}

/// The holder's vCPU shares pCPU 0; the waiter's is alone on pCPU 1.
fn lock_holder(slice: Time, shared: bool, ple: Option<PauseLoop>) -> SimResult {
    let mut builder = Builder::new();
    let lock = builder.spinlock();
    let section = |before, held| vec![compute(before), Op::SpinLock(lock), compute(held), Op::SpinUnlock(lock)];
    let work = threads(&mut builder, vec![(0, section(5 * MS, 8 * MS)), (1, section(6 * MS, 0))]);
    let vm = VmConfig::new("vm", 2, Costs::FREE, work).pinned([0, 1]);
    let vms = if shared { vec![vm, hog([0])] } else { vec![vm] };
    run(HostConfig { ple, ..round_robin(2, slice) }, vms)
}

#[test]
fn a_preempted_lock_holder_makes_the_waiter_spin() {
    // Takes the lock at 5, has it until 13; the waiter comes at 6.
    let alone = lock_holder(SLICE, false, None);
    assert_eq!(alone.vms[0].totals.spin_waits.sum().0, 7 * MS);
    assert_eq!(mean(&alone.vms[0].totals.spin_holds), 4 * MS);
    // 5 of the 8 ms are done when the slice ends at 10; the rest from 20 to 23. The waiter spins from 6 to 23.
    let shared = lock_holder(SLICE, true, None);
    assert_eq!(shared.vms[0].totals.spin_waits.sum().0, 17 * MS);
    assert_eq!(shared.vms[0].totals.ended_at, Some(23 * MS));
    assert_eq!(shared.vms[0].spun_ns, 17 * MS);
    // Slices of 1 ms: the holder's k-th ms of work is done at 2k - 1. It takes the lock at 9 (5 ms done), gives it up
    // at 25 (13 ms done); the waiter spins from 6 to 25: longer in all, for the hog gets its half while the lock is
    // held...
    let fine = lock_holder(MS, true, None);
    assert_eq!(fine.vms[0].totals.ended_at, Some(25 * MS));
}

#[test]
fn short_slices_shorten_what_a_waiter_loses_to_one_preemption() {
    // The section is short (0.5 ms) and meets the end of a slice: taken at 9.8, preempted at 10, goes on at 20: waits
    // 10.3 - 0.1.
    let run_with = |slice: Time| {
        let mut builder = Builder::new();
        let lock = builder.spinlock();
        let section = |before, held| vec![compute(before), Op::SpinLock(lock), compute(held), Op::SpinUnlock(lock)];
        // With slices of 1 ms, 9.8 ms of work are done at 18.8: 9 full slices, and 0.8 of the tenth.
        let work = threads(&mut builder, vec![(0, section(9_800_000, 500_000)), (1, section(0, 0))]);
        let work_late = {
            let mut late = work.clone();
            late.programs[1][0] = sleep(if slice == MS { 18_900_000 } else { 9_900_000 });
            late
        };
        run(round_robin(2, slice), vec![VmConfig::new("vm", 2, Costs::FREE, work_late).pinned([0, 1]), hog([0])])
    };
    // 20.3 - 9.9.
    assert_eq!(run_with(SLICE).vms[0].totals.spin_waits.sum().0, 10_400_000);
    // Preempted at 19 with 0.3 left, on again at 20: 20.3 - 18.9.
    assert_eq!(run_with(MS).vms[0].totals.spin_waits.sum().0, 1_400_000);
}

#[test]
fn a_preempted_ticket_holder_makes_all_behind_it_wait() {
    // A (alone on pCPU 0) holds from 0 to 12. B (pCPU 1, shared) asks at 1, C (alone on pCPU 2) at 2.
    let mut builder = Builder::new();
    let lock = builder.spinlock();
    let section = |before, held| {
        vec![compute(before), Op::SpinLock(lock), compute(held), Op::SpinUnlock(lock), Op::Stamp, Op::Done]
    };
    let work = threads(&mut builder, vec![(0, section(0, 12 * MS)), (1, section(MS, MS)), (2, section(2 * MS, 0))]);
    let vm = VmConfig::new("vm", 3, Costs::FREE, work).pinned([0, 1, 2]);
    let alone = run(round_robin(3, SLICE), vec![vm.clone()]);
    // B has it from 12 to 13; C waits 11 ms.
    assert_eq!(alone.vms[0].totals.spin_waits.sum().0, (11 + 11) * MS);
    assert_eq!(alone.vms[0].totals.ended_at, Some(13 * MS));
    // B's vCPU is away from 10 to 20. The lock is B's from 12 on, and nobody's work: B has it from 20 to 21, then C,
    // which has been running all the time.
    let shared = run(round_robin(3, SLICE), vec![vm, hog([1])]);
    assert_eq!(shared.vms[0].totals.spin_waits.sum().0, (19 + 19) * MS);
    assert_eq!(shared.vms[0].totals.ended_at, Some(21 * MS));
    assert_eq!(shared.vms[0].vcpus[2].ready, 0);
}

/// One vCPU asks all to flush their TLBs after `at` of work; the other computes on a shared pCPU.
fn shootdown(slice: Time, at: Time) -> Time {
    let mut builder = Builder::new();
    let work = threads(&mut builder, vec![(0, vec![compute(at), Op::Shootdown]), (1, vec![compute(100 * MS)])]);
    let vm = VmConfig::new("vm", 2, Costs::FREE, work).pinned([0, 1]);
    let result = run(round_robin(2, slice), vec![vm, hog([1])]);
    result.vms[0].totals.shootdowns.sum().0
}

#[test]
fn an_ipi_waits_for_its_vcpu_to_come_back() {
    // Sent at 8, the target runs: answered at once. Sent at 12, it is away until 20.
    assert_eq!(shootdown(SLICE, 8 * MS), 0);
    assert_eq!(shootdown(SLICE, 12 * MS), 8 * MS);
    // Slices of 1 ms: sent at 11.5, it is away until 12.
    assert_eq!(shootdown(MS, 11_500_000), 500_000);
}

/// A thread asks a device that answers after 3 ms, over and over; `mixed`: another thread of its vCPU computes.
fn device(scheduler: Scheduler, mixed: bool) -> SimResult {
    let mut builder = Builder::new();
    let again = builder.label();
    let rounds = builder.counter(100);
    let out = builder.label();
    builder.here(again);
    builder.claim(rounds, out);
    builder.op(Op::Stamp).op(Op::Io(Span::Fixed(3 * MS))).op(Op::Done).jump(again);
    builder.here(out);
    builder.threads(1, 0);
    let mut vms = vec![];
    if mixed {
        let forever = builder.label_here();
        builder.op(compute(1_000 * MS)).jump(forever);
        builder.threads(1, 0);
    }
    let work = builder.build();
    vms.push(VmConfig::new("vm", 1, Costs::FREE, work).pinned([0]));
    vms.push(hog([0]));
    let mut config = Config::new(HostConfig::new(1, scheduler), vms);
    config.end = 2_000 * MS;
    Simulation::new(config).unwrap().run().unwrap().0
}

#[test]
fn an_interrupt_for_a_preempted_vcpu_waits_for_its_slice() {
    // Alone in its virtual machine, the thread's vCPU halts, and wakes behind the hog's slice of 10 ms: asked at 0,
    // answered at 3, handled at 10; then asked at 10, answered at 13, handled at 20; and so on.
    let fixed = device(Scheduler::RoundRobin { slice: SLICE }, false);
    assert_eq!(mean(&fixed.vms[0].totals.latency), SLICE);
    // Xen boosts whoever wakes with credit left: at once, but for the ratelimit, which has passed after 3 ms.
    let xen = device(Scheduler::Credit(CreditParams::XEN), false);
    assert_eq!(mean(&xen.vms[0].totals.latency), 3 * MS);
}

#[test]
fn xens_boost_does_not_help_a_virtual_machine_that_computes_too() {
    // Its vCPU does not wake: it waits in the queue like any other, so an interrupt waits for its turn. In each 60 ms
    // it has the pCPU for 30: nine requests of 3 ms fit, the tenth is answered 30 ms late: (9 * 3 + 33) / 10.
    let mixed = device(Scheduler::Credit(CreditParams::XEN), true);
    assert_eq!(mean(&mixed.vms[0].totals.latency), 6 * MS);
    // Slices of 1 ms: away in [1, 2), [3, 4) and so on. Every answer comes as the vCPU goes away or comes back: a wait
    // of 1 ms.
    let fine = device(Scheduler::Credit(CreditParams { slice: MS, ..CreditParams::XEN }), true);
    assert!(mean(&fine.vms[0].totals.latency) <= 4 * MS);
}

#[test]
fn a_pause_loop_exit_gives_the_pcpu_to_the_lock_holder() {
    // Both vCPUs on one pCPU: the waiter would spin for its whole slice. With exits after 1 ms it makes room at once.
    let on_one = |ple| {
        let mut builder = Builder::new();
        let lock = builder.spinlock();
        let section = |before, held| vec![compute(before), Op::SpinLock(lock), compute(held), Op::SpinUnlock(lock)];
        let work = threads(&mut builder, vec![(0, section(5 * MS, 8 * MS)), (1, section(0, 0))]);
        run(HostConfig { ple, ..round_robin(1, SLICE) }, vec![VmConfig::new("vm", 2, Costs::FREE, work).pinned([0, 0])])
    };
    // Holder [0, 10): 5 of 8 ms done. Waiter [10, 20) spins. Holder [20, 23).
    let without = on_one(None);
    assert_eq!(without.vms[0].totals.ended_at, Some(23 * MS));
    // Waiter spins [10, 11), exits; holder [11, 14); the waiter then has the lock.
    let with = on_one(Some(PauseLoop { window: MS, window_max: MS, directed: true }));
    assert_eq!(with.vms[0].totals.ended_at, Some(14 * MS));
    assert_eq!(with.vms[0].vcpus[1].pause_exits, 1);
}

#[test]
fn only_a_directed_yield_helps_a_lock_holder_on_another_pcpu() {
    // Holder [0, 10), 5 of 8 ms done, then the hog's turn until 20. The waiter, alone on its pCPU, spins from 6 and
    // exits each 0.9 ms. The exit at 10.5 is the first that finds the holder waiting.
    let exits = |directed| PauseLoop { window: 900_000, window_max: 900_000, directed };
    let ended = |directed| lock_holder(SLICE, true, Some(exits(directed))).vms[0].totals.ended_at;
    assert_eq!(ended(true), Some(13_500_000));
    // Xen's exits make room on the waiter's own pCPU, where nobody waits.
    assert_eq!(ended(false), Some(23 * MS));
}

#[test]
fn the_longer_a_pcpu_idles_the_later_it_is_back() {
    // Six sleeps of 1 ms. Of the next one is expected, in us: 0, 125, 234, 330, 414, 487; C3 takes 211 of them and 80
    // to leave, C6 345 and 104.
    let asleep = |idle_states: IdleStates| {
        let mut builder = Builder::new();
        let work = threads(&mut builder, vec![(0, vec![sleep(MS); 6])]);
        let host = HostConfig { idle_states, ..HostConfig::new(1, Scheduler::Dedicated) };
        run(host, vec![VmConfig::new("vm", 1, Costs::FREE, work)]).vms[0].totals.ended_at
    };
    assert_eq!(asleep(IdleStates::SHALLOW), Some(6 * MS));
    assert_eq!(asleep(IdleStates::SANDY_BRIDGE), Some(6 * MS + 2 * 80 * US + 2 * 104 * US));
}
