//! Xen's credit scheduler, to the nanosecond: who steals, who is told, who goes on, and what that does to a lock
//! holder.
//!
//! Nothing costs anything unless a test says so. Xen's values: slices and periods of 30 ms, ticks of 10, a ratelimit of
//! 1. vCPUs may go anywhere; number n of all together begins on pCPU n, round and round.

mod common;
use common::{MS, S, US, compute, run, run_config, sleep, threads};
use gleaner_sim::config::{Config, CreditParams, HaltPoll, HostConfig, PauseLoop, Scheduler, VmConfig};
use gleaner_sim::program::catalogue::{self, Plan};
use gleaner_sim::program::{Builder, Op, Span, Workload};
use gleaner_sim::{Costs, SimResult, Time};

fn xen(pcpus: u32) -> HostConfig {
    HostConfig::new(pcpus, Scheduler::Credit(CreditParams::XEN))
}

/// A virtual machine with one vCPU each.
fn singles(programs: Vec<Vec<Op>>) -> Vec<VmConfig> {
    let vm = |(n, ops)| VmConfig::new(&format!("vm-{n}"), 1, Costs::FREE, threads(&mut Builder::new(), vec![(0, ops)]));
    programs.into_iter().enumerate().map(vm).collect()
}

fn ended(result: &SimResult) -> Vec<Option<Time>> {
    result.vms.iter().map(|vm| vm.totals.ended_at).collect()
}

#[test]
fn a_pcpu_that_has_nobody_steals() {
    // 0 and 2 are on pCPU 0. 1 ends at 5 and leaves pCPU 1 to 2: [5, 15).
    let result = run(xen(2), singles(vec![vec![compute(20 * MS)], vec![compute(5 * MS)], vec![compute(10 * MS)]]));
    assert_eq!(ended(&result), [Some(20 * MS), Some(5 * MS), Some(15 * MS)]);
    assert_eq!((result.vms[2].vcpus[0].ready, result.vms[0].vcpus[0].ready), (5 * MS, 0));
}

#[test]
fn who_wakes_preempts_where_it_was_and_an_idle_pcpu_takes_who_made_room() {
    // 0 sleeps at once, 2 then has pCPU 0. At 12 it wakes there, boosted; 2 goes on at once on pCPU 1, where 1 has
    // ended.
    let programs = vec![vec![sleep(12 * MS), compute(4 * MS)], vec![compute(3 * MS)], vec![compute(20 * MS)]];
    let result = run(xen(2), singles(programs));
    assert_eq!(ended(&result), [Some(16 * MS), Some(3 * MS), Some(20 * MS)]);
    assert_eq!((result.vms[2].vcpus[0].preemptions, result.vms[2].vcpus[0].ready), (1, 0));
    // After half a millisecond the ratelimit keeps 2 where it is, and the idle pCPU takes who woke.
    let programs = vec![vec![sleep(500 * US), compute(4 * MS)], vec![compute(100 * US)], vec![compute(20 * MS)]];
    let result = run(xen(2), singles(programs));
    assert_eq!(ended(&result), [Some(4_500 * US), Some(100 * US), Some(20 * MS)]);
    assert_eq!(result.vms[2].vcpus[0].preemptions, 0);
}

#[test]
fn the_ratelimit_runs_from_the_moment_somebody_wakes() {
    // Wakes at 0.5, too early; 4.2 looks again 1 ms after that: [1.5, 5.5). Then the other has the rest of its 20: 24.
    let programs = vec![vec![sleep(500 * US), compute(4 * MS)], vec![compute(20 * MS)]];
    assert_eq!(ended(&run(xen(1), singles(programs))), [Some(5_500 * US), Some(24 * MS)]);
}

#[test]
fn who_is_in_debt_makes_room_for_who_waits_elsewhere() {
    // Two compute without end on a pCPU each. Three more come after 200 and 500 ms and want to: five on two pCPUs, 0.4
    // each, though one pCPU has three and the other two. Who is on the fuller one gets less than its credit and stays
    // UNDER, who is on the other one is OVER at times, and its pCPU then takes somebody from the fuller one.
    let forever = compute(100 * S);
    let late = || vec![sleep(200 * MS), forever];
    let vms = singles(vec![vec![forever], vec![forever], late(), late(), vec![sleep(500 * MS), forever]]);
    let mut config = Config::new(xen(2), vms);
    config.end = 40 * S;
    let result = run_config(config);
    // Without stealing it would be 0.33 and 0.5.
    for vm in &result.vms {
        let share = vm.cpu_ns as f64 / result.end_ns as f64;
        assert!((share - 0.4).abs() < 0.02, "{}: {share}", vm.name);
    }
}

/// A posts to B in a section of 2 ms under a kernel lock, which B takes 3 ms later.
fn wakes_in_a_section(pcpus: u32) -> SimResult {
    let mut b = Builder::new();
    let (lock, wake) = (b.spinlock(), 0);
    let section = vec![compute(5 * MS), Op::SpinLock(lock), Op::Post(wake), compute(2 * MS), Op::SpinUnlock(lock)];
    let woken = vec![Op::Wait(wake), compute(3 * MS), Op::SpinLock(lock), Op::SpinUnlock(lock)];
    let mut work = threads(&mut b, vec![(0, section), (1, woken)]);
    work.shared.semaphores = 1;
    let costs = Costs { ipi_ns: 11 * US, ipi_send_ns: 830, ..Costs::FREE };
    run(xen(pcpus), vec![VmConfig::new("vm", 2, costs, work)])
}

#[test]
fn a_woken_sibling_preempts_the_lock_holder_on_its_pcpu() {
    // Sent at 5 ms, from the same pCPU: B is there when the sender's exit is over, at 5.000 83, and preempts A in its
    // section. B spins from
    // 8.000 83 until its slice is over, at 35.000 83. A: [35.000 83, 37.000 83). B has waited for 29 ms.
    let together = wakes_in_a_section(1);
    assert_eq!(together.vms[0].totals.spin_waits.sum().0, 29 * MS);
    assert_eq!(together.vms[0].totals.ended_at, Some(37 * MS + 830));
    assert_eq!(together.vms[0].vcpus[0].preemptions, 1);
    // On pCPUs of their own A gives the lock back at 7.000 83, and B, awake at 5.011, finds it free.
    let apart = wakes_in_a_section(2);
    assert_eq!(apart.vms[0].totals.spin_waits.sum().0, 0);
    assert_eq!(apart.vms[0].totals.ended_at, Some(8 * MS + 11 * US));
}

#[test]
fn a_pause_loop_exit_obeys_the_ratelimit() {
    // A holds the lock for 40 ms, 30 of them in its first slice. B spins from 30 on and exits each 0.1 ms, in vain
    // until it has run for 1 ms. A: [31, 41).
    let mut b = Builder::new();
    let lock = b.spinlock();
    let section = |held| vec![Op::SpinLock(lock), compute(held), Op::SpinUnlock(lock)];
    let work = threads(&mut b, vec![(0, section(40 * MS)), (1, section(0))]);
    let ple = Some(PauseLoop { window: 100 * US, window_max: 100 * US, directed: false });
    let result = run(HostConfig { ple, ..xen(1) }, vec![VmConfig::new("vm", 2, Costs::FREE, work)]);
    assert_eq!(result.vms[0].totals.ended_at, Some(41 * MS));
    assert_eq!(result.vms[0].vcpus[1].pause_exits, 10);
}

#[test]
fn nobody_who_is_over_runs_before_who_is_not_though_a_spinner_would_prefer_it() {
    // Four that wait for one lock all the time on two pCPUs, with KVM's pause-loop exits, and two that compute: a third
    // each. With directed yields the four had both pCPUs for themselves.
    let mut b = Builder::new();
    let lock = b.spinlock();
    let again = b.label_here();
    b.op(Op::SpinLock(lock)).op(compute(3 * MS)).op(Op::SpinUnlock(lock)).jump(again);
    b.threads(4, 0);
    let spinners = VmConfig::new("spinners", 4, Costs::FREE, b.build());
    let mut config = Config::new(HostConfig { ple: Some(PauseLoop::KVM), ..xen(2) }, vec![spinners]);
    config.vms.extend(singles(vec![vec![compute(100 * S)], vec![compute(100 * S)]]));
    config.end = 6 * S;
    let result = run_config(config);
    for vm in &result.vms[1..] {
        let share = vm.cpu_ns as f64 / result.end_ns as f64;
        assert!(share > 0.3, "{}: {share}", vm.name);
    }
}

#[test]
fn who_waits_gets_no_credit_and_may_wait_long_for_those_that_wake() {
    // Five vCPUs wake each other all the time and are BOOST. One more computes, and waits as soon as its credit has put
    // it out of the accounting: no tick finds it, and the five share all that there is. A third would be its part.
    let vm = |name: &str, vcpus, granularity| {
        let plan = Plan { threads: vcpus, items: None, granularity: Span::Fixed(granularity) };
        let program = catalogue::by_name(name).expect("a built-in program");
        VmConfig::new(name, vcpus, Costs::XEN_2014, (program.build)(&plan))
    };
    let host = HostConfig { halt_poll: HaltPoll::KVM, ple: Some(PauseLoop::XEN), ..xen(2) };
    let mut config = Config::new(host, vec![vm("relay", 5, 5 * US), vm("pipeline", 1, 40 * US)]);
    config.end = 4 * S;
    let result = run_config(config);
    let waited = result.vms[1].vcpus[0].ready;
    assert!(waited > 3 * S, "{:?}", result.vms[1].vcpus);
}

#[test]
fn whatever_runs_beside_whatever_classes_go_in_order() {
    // Checked whenever a pCPU chooses, in debug builds.
    for (one, other) in catalogue::ALL.iter().flat_map(|one| catalogue::ALL.iter().map(move |other| (one, other))) {
        let vm = |program: &catalogue::Description, vcpus| {
            let plan = Plan { threads: vcpus, items: None, granularity: Span::Fixed(program.granularity) };
            VmConfig::new(program.name, vcpus, Costs::XEN_2014, (program.build)(&plan))
        };
        let host = HostConfig { halt_poll: HaltPoll::KVM, ple: Some(PauseLoop::XEN), ..xen(2) };
        let mut config = Config::new(host, vec![vm(one, 4), vm(other, 2)]);
        config.end = 200 * MS;
        assert_eq!(run_config(config).end_ns, 200 * MS, "{} beside {}", one.name, other.name);
    }
}

/// Four threads that compute and sleep at random.
fn restless() -> Workload {
    let mut b = Builder::new();
    let again = b.label_here();
    b.op(Op::Compute(Span::Exponential { mean: 5 * MS })).op(Op::Sleep(Span::Exponential { mean: 2 * MS })).jump(again);
    b.threads(4, 0);
    b.build()
}

#[test]
fn free_vcpus_do_not_pile_up() {
    // That no pCPU idles while a vCPU waits anywhere is checked after every event, in debug builds. Here: all pCPUs are
    // as busy as each other, and so are the machines, though vCPUs go where they like.
    let vms = ["a", "b", "c"].map(|name| VmConfig::new(name, 4, Costs::KVM_2014, restless()));
    let mut config = Config::new(xen(4), vms.into());
    config.end = 10 * S;
    let result = run_config(config);
    for busy in &result.pcpu_busy_ns {
        assert!(*busy > 95 * result.end_ns / 100, "{:?} of {}", result.pcpu_busy_ns, result.end_ns);
    }
    for vm in &result.vms {
        let share = vm.cpu_ns as f64 / (4.0 * result.end_ns as f64);
        assert!((share - 1.0 / 3.0).abs() < 0.04, "{}: {share}", vm.name);
    }
}
