//! Table 2 of the Gleaner paper out of the mechanisms: the time to wake a thread blocked on a mutex, in its four
//! settings.

mod common;
use common::{MS, S, US, compute, hog, managed, run, sleep, threads};
use gleaner_model::Policy;
use gleaner_sim::config::{HostConfig, IdleLoop, Managed, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::{Builder, Op, Workload};
use gleaner_sim::{Costs, Time};

/// A waker that holds a mutex, sleeps, and unlocks; a waiter that blocks on it. Latency: from the unlock until the
/// waiter runs.
fn waker_and_waiter(waiter_vcpu: u32) -> Workload {
    let mut builder = Builder::new();
    let (mutex, queue) = (builder.mutex(), builder.queue());
    // The waker goes on after the unlock unless it has to make room.
    let after = if waiter_vcpu == 0 { Op::Exit } else { compute(MS) };
    let waker = vec![Op::Lock(mutex), sleep(100 * MS), Op::Stamp, Op::Push(queue), Op::Unlock(mutex), after];
    let waiter = vec![compute(MS), Op::Lock(mutex), Op::Pop(queue), Op::Done, Op::Unlock(mutex)];
    threads(&mut builder, vec![(0, waker), (waiter_vcpu, waiter)])
}

fn latency(host: HostConfig, vm: VmConfig, others: Vec<VmConfig>) -> Time {
    let result = run(host, std::iter::once(vm).chain(others).collect());
    let latency = &result.vms[0].totals.latency;
    assert_eq!(latency.count(), 1);
    latency.sum().0
}

fn vm(costs: Costs, waiter_vcpu: u32) -> VmConfig {
    VmConfig::new("vm", 2, costs, waker_and_waiter(waiter_vcpu))
}

fn dedicated() -> HostConfig {
    HostConfig::new(2, Scheduler::Dedicated)
}

#[test]
fn a_on_the_same_vcpu_it_is_a_switch_of_threads() {
    // RT = 6 us.
    assert_eq!(latency(dedicated(), vm(Costs::KVM_2014, 0), vec![]), 6 * US);
    assert_eq!(latency(dedicated(), vm(Costs::NATIVE_2014, 0), vec![]), 4 * US);
}

#[test]
fn b_on_a_retained_vcpu_an_interrupt_comes_before_it() {
    // IPI + RT = 11 + 6 us. The yielding thread is Gleaner's own, with a time-out longer than the wait.
    let retain = Managed { timeout: Some(S), ..Managed::new(Policy::Retain) };
    assert_eq!(latency(dedicated(), managed(vm(Costs::KVM_2014, 1), retain), vec![]), 17 * US);
    // A physical machine whose idle task polls: 8 us.
    let polling = VmConfig { idle: IdleLoop::Poll, ..vm(Costs::NATIVE_2014, 1) };
    assert_eq!(latency(dedicated(), polling, vec![]), 8 * US);
}

#[test]
fn c_on_a_halted_vcpu_the_host_takes_it_up_first() {
    // IPI + RV + RT = 11 + 20 + 6 us; C1 on a physical machine: 8 us.
    assert_eq!(latency(dedicated(), vm(Costs::KVM_2014, 1), vec![]), 37 * US);
    assert_eq!(latency(dedicated(), vm(Costs::NATIVE_2014, 1), vec![]), 8 * US);
}

#[test]
fn d_beside_another_virtual_machine_its_vcpu_is_preempted_first() {
    // IPI + PV + RV + RT = 11 + 59 + 20 + 6 us: CFS places the sleeper behind, so it preempts at once.
    let host = HostConfig::new(2, Scheduler::Window(WindowParams::CFS));
    assert_eq!(latency(host, vm(Costs::KVM_2014, 1).pinned([0, 1]), vec![hog([0, 1])]), 96 * US);
}
