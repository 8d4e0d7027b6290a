//! Table 2: what waking a thread takes, in four settings, on a physical and a virtual machine.
//!
//! The costs are the table's: RT = A, IPI = B - A, RV = C - B, PV = D - C. So its rows are all inputs; that they come
//! out again to the nanosecond says that a wake-up in the simulator consists of the operations of which the paper says
//! that it does. What is predicted is the paper's sentence after it: a vCPU scheduling policy may delay the switch
//! further.

use super::machine::{CORES, MS, S, Setting, Time, US, dedicated, gleaner, grouped_cfs, matmul, run};
use crate::Costs;
use crate::config::{Config, HostConfig, IdleLoop, Scheduler, VmConfig, WindowParams};
use crate::program::{Builder, Op, Span, Workload};
use crate::reproduce::result::{ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;

/// Unlocks happen at a time that is no multiple of the host's tick.
const ASLEEP: Time = 101_300 * US;

/// A waker that holds a mutex, sleeps, and unlocks; a waiter that blocks on it; threads that keep other vCPUs busy all
/// the while.
fn waker_and_waiter(waiter_vcpu: u32, busy: std::ops::Range<u32>) -> Workload {
    let mut b = Builder::new();
    let (mutex, queue) = (b.mutex(), b.queue());
    let compute = |time| Op::Compute(Span::Fixed(time));
    b.op(Op::Lock(mutex)).op(Op::Sleep(Span::Fixed(ASLEEP))).op(Op::Stamp).op(Op::Push(queue)).op(Op::Unlock(mutex));
    // On the same vCPU the waker makes room at once.
    b.op(if waiter_vcpu == 0 { Op::Exit } else { compute(MS) });
    b.threads(1, 1);
    b.op(compute(MS)).op(Op::Lock(mutex)).op(Op::Pop(queue)).op(Op::Done).op(Op::Unlock(mutex));
    b.threads(1, 1 << waiter_vcpu);
    for vcpu in busy {
        b.op(compute(2 * ASLEEP)).threads(1, 1 << vcpu);
    }
    b.build()
}

/// From the unlock until the waiter runs, microseconds.
fn wake_up(case: &str, host: HostConfig, vm: VmConfig, neighbour: Option<VmConfig>) -> Result<f64, ReproduceError> {
    let config = Config::new(host, std::iter::once(vm).chain(neighbour).collect());
    let result = run(case, config)?;
    Ok(result.vms[0].totals.latency.sum().0 as f64 / US as f64)
}

fn vm(costs: Costs, vcpus: u32, waiter_vcpu: u32) -> VmConfig {
    VmConfig::new("app", vcpus, costs, waker_and_waiter(waiter_vcpu, 0..0))
}

fn hogs(costs: Costs, pcpus: u32) -> VmConfig {
    VmConfig::new("matmul", pcpus, costs, matmul(pcpus)).background().pinned(0..pcpus)
}

fn preempting(pcpus: u32) -> HostConfig {
    HostConfig::new(pcpus, Scheduler::Window(WindowParams::CFS))
}

fn virtual_rows() -> Result<[f64; 4], ReproduceError> {
    let kvm = Costs::KVM_2014;
    let mut retained = vm(kvm, 2, 1);
    let mut managed = gleaner(false);
    managed.policy = gleaner_model::Policy::Retain;
    managed.timeout = Some(S);
    retained.gleaner = Some(managed);
    Ok([
        wake_up("A", dedicated(2), vm(kvm, 2, 0), None)?,
        wake_up("B", dedicated(2), retained, None)?,
        wake_up("C", dedicated(2), vm(kvm, 2, 1), None)?,
        wake_up("D", preempting(2), vm(kvm, 2, 1).pinned(0..2), Some(hogs(kvm, 2)))?,
    ])
}

fn physical_rows() -> Result<[f64; 4], ReproduceError> {
    let native = Costs::NATIVE_2014;
    let polling = VmConfig { idle: IdleLoop::Poll, ..vm(native, 2, 1) };
    Ok([
        wake_up("A", dedicated(2), vm(native, 2, 0), None)?,
        wake_up("B", dedicated(2), polling, None)?,
        wake_up("C", dedicated(2), vm(native, 2, 1), None)?,
        // Another application's thread on each core: another "virtual machine" on this one.
        wake_up("D", preempting(2), vm(native, 2, 1).pinned(0..2), Some(hogs(native, 2)))?,
    ])
}

pub(super) fn reproduce() -> Result<Reproduced, ReproduceError> {
    let on_vm = virtual_rows()?;
    let physical = physical_rows()?;
    let mut found = Found::default();
    for (machine, figures) in [("PM", physical), ("VM", on_vm)] {
        for (setting, figure) in ["A", "B", "C", "D"].iter().zip(figures) {
            found.put(format!("{machine} {setting}"), figure);
        }
    }
    let [_, b, c, d] = on_vm;
    found.put("VM C / PM C", c / physical[2]);
    found.put("VM D / VM C", d / c);
    found.put("VM D / VM B", d / b);
    found.put("VM D / PM D", d / physical[3]);
    let kvm = Costs::KVM_2014;
    let delayed = VmConfig::new("app", CORES, kvm, waker_and_waiter(1, 2..CORES)).pinned(0..CORES);
    found.put("delayed", wake_up("D", grouped_cfs(CORES), delayed, Some(hogs(kvm, CORES)))?);
    let parameters = Setting::Native.costs().described().into_iter().zip(Costs::KVM_2014.described());
    let parameters = parameters.filter(|(pm, vm)| pm.ns + vm.ns > 0).take(8);
    let parameters =
        parameters.map(|(pm, vm)| (vm.name.to_owned(), format!("PM {}, VM {} ({})", pm.ns, vm.ns, vm.source)));
    Ok(reproduced("gleaner:table2", parameters.collect(), &found))
}
