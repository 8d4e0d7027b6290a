//! A virtual machine's limit, as CFS bandwidth has it: so much pCPU time in every 100 ms, to the nanosecond; and as Xen
//! has it, by credit.
//!
//! Nothing costs anything; half a CPU is 50 ms of each period.

mod common;
use common::{MS, compute, hog, round_robin, run, sleep, threads};
use gleaner_sim::config::{Config, CreditParams, FairParams, HostConfig, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::{Builder, Op};
use gleaner_sim::{Costs, SimResult, Time};

fn capped(cap_permille: u32, programs: Vec<(u32, Vec<Op>)>, vcpus: u32) -> VmConfig {
    let mut vm = VmConfig::new("vm", vcpus, Costs::FREE, threads(&mut Builder::new(), programs)).pinned(0..vcpus);
    vm.cap_permille = cap_permille;
    vm
}

fn ended(result: &SimResult) -> Time {
    result.vms[0].totals.ended_at.expect("the program ends")
}

fn dedicated(pcpus: u32) -> HostConfig {
    HostConfig::new(pcpus, Scheduler::Dedicated)
}

#[test]
fn half_a_cpu_is_half_of_every_period() {
    // 120 ms of work: [0, 50), [100, 150), [200, 220).
    let result = run(dedicated(1), vec![capped(500, vec![(0, vec![compute(120 * MS)])], 1)]);
    assert_eq!(ended(&result), 220 * MS);
    let vcpu = &result.vms[0].vcpus[0];
    assert_eq!((vcpu.work, vcpu.ready, vcpu.ready_max), (120 * MS, 100 * MS, 50 * MS));
    assert_eq!((vcpu.preemptions, result.pcpu_busy_ns[0]), (2, 120 * MS));
    // No limit, and one that is never met.
    for cap in [0, 1_000] {
        let free = run(dedicated(1), vec![capped(cap, vec![(0, vec![compute(120 * MS)])], 1)]);
        assert_eq!((ended(&free), free.vms[0].vcpus[0].ready), (120 * MS, 0), "{cap}");
    }
}

#[test]
fn vcpus_share_one_quota() {
    // Two at a time use up 100 ms in 50: [0, 50), [100, 130) each.
    let both = vec![(0, vec![compute(80 * MS)]), (1, vec![compute(80 * MS)])];
    assert_eq!(ended(&run(dedicated(2), vec![capped(1_000, both, 2)])), 130 * MS);
    // A uses up 50 ms alone. B's sleep ends at 70: it waits for the period's end as A does, then both run until B has
    // done its one ms at 101, and A its last ten at 110.
    let late = vec![(0, vec![compute(60 * MS)]), (1, vec![sleep(70 * MS), compute(MS)])];
    let result = run(dedicated(2), vec![capped(500, late, 2)]);
    assert_eq!((ended(&result), result.vms[0].vcpus[1].ready), (110 * MS, 30 * MS));
}

#[test]
fn what_is_not_used_is_lost() {
    // 10 ms of the first period, none of the second, 50 of the third from 210 on, the last 10 of the fourth.
    let program = vec![compute(10 * MS), sleep(200 * MS), compute(60 * MS)];
    assert_eq!(ended(&run(dedicated(1), vec![capped(500, vec![(0, program)], 1)])), 310 * MS);
}

#[test]
fn others_have_what_a_capped_one_may_not() {
    // A quarter of a CPU, slices of 10 ms in turn with a hog: [0, 10), [20, 30), [40, 45). The hog has the rest of the
    // period, its slice is used up at its end: [100, 105).
    let vm = capped(250, vec![(0, vec![compute(30 * MS)])], 1);
    let result = run(round_robin(1, 10 * MS), vec![vm, hog([0])]);
    assert_eq!(ended(&result), 105 * MS);
    assert_eq!(result.vms[1].vcpus[0].work, 75 * MS);
}

#[test]
fn under_every_scheduler_a_capped_machine_gets_its_cap_and_no_more() {
    for scheduler in
        [Scheduler::RoundRobin { slice: MS }, Scheduler::Window(WindowParams::CFS), Scheduler::Fair(FairParams::EEVDF)]
    {
        let result = beside_a_hog(scheduler);
        assert_eq!(result.vms[0].cpu_ns, 600 * MS, "{scheduler:?}");
        assert_eq!(result.vms[1].cpu_ns, 3_400 * MS, "{scheduler:?}");
    }
    // Xen's holds on average.
    let result = beside_a_hog(Scheduler::Credit(CreditParams::XEN));
    assert!(result.vms[0].cpu_ns.abs_diff(600 * MS) < 60 * MS, "{}", result.vms[0].cpu_ns);
    assert_eq!(result.vms[0].cpu_ns + result.vms[1].cpu_ns, 4_000 * MS);
}

fn beside_a_hog(scheduler: Scheduler) -> SimResult {
    let forever = || vec![compute(10_000 * MS)];
    let vms = vec![capped(300, vec![(0, forever()), (1, forever())], 2), hog([0, 1])];
    common::run_config(Config { end: 2_000 * MS, ..Config::new(HostConfig::new(2, scheduler), vms) })
}

#[test]
fn xen_parks_at_the_accounting_who_owes_more_than_its_part() {
    // Half of one pCPU: 15 ms of credit in 30. Ticks at 10 and 20 have seen 20 ms at the accounting at 30: -5. At 60 it
    // owes 20, more than 15: parked, and pays for the last 10 ms, too. -15 at 90, 0 at 120. [0, 60), [120, 160).
    let xen = |pcpus| HostConfig::new(pcpus, Scheduler::Credit(CreditParams::XEN));
    let one = run(xen(1), vec![capped(500, vec![(0, vec![compute(100 * MS)])], 1)]);
    assert_eq!((ended(&one), one.vms[0].vcpus[0].ready), (160 * MS, 60 * MS));
    // One CPU of two. A alone has it all until the tick at 55 sees B, which woke at 50; from then on 15 ms each. A: 10
    // at 30, -5 at 60, -20 at 90: parked until it has nothing to pay at 150. B: 10 at 60, -5 at 90, -20 at 120: parked,
    // pays 5 more; -10 at 150, 5 at 180. Each by itself.
    let programs = vec![(0, vec![compute(100 * MS)]), (1, vec![sleep(50 * MS), compute(80 * MS)])];
    let two = run(xen(2), vec![capped(1_000, programs, 2)]);
    assert_eq!(two.vms[0].vcpus.iter().map(|vcpu| vcpu.ready).collect::<Vec<_>>(), [60 * MS, 60 * MS]);
    // A: [0, 90), [150, 160). B: [50, 120), [180, 190).
    assert_eq!(ended(&two), 190 * MS);
}
