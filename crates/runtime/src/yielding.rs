//! Yielding threads as the runtime wants them: with decide's state machine in them, told by BPF, outside of the
//! program's quota.

use gleaner_act::{ActError, BusyWait, CgroupRoots, IdleGroup, IdleMeans, YieldingThreads, own_group};
use gleaner_decide::guest::{ContentionGuard, GuestParams, YieldingThread};
use gleaner_model::{CpuSet, Order, VcpuId, YieldMachine};
use gleaner_observe::Observer;
use gleaner_sys::cpu_quota;
use std::collections::BTreeMap;

/// Starts yielding threads that run decide's state machine, asleep. `busy_wait`: how one learns that its vCPU is busy
/// again.
///
/// # Errors
/// As [`YieldingThreads::start`].
pub fn start_yielding(
    vcpus: &CpuSet,
    group: &IdleGroup,
    params: &GuestParams,
    busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
) -> Result<YieldingThreads, ActError> {
    let mut yields = prepare_yielding(vcpus, group, params, busy_wait)?;
    vcpus.iter().try_for_each(|vcpu| yields.begin(vcpu))?;
    Ok(yields)
}

/// The same, each when it is to retain first.
pub(crate) fn prepare_yielding(
    vcpus: &CpuSet,
    group: &IdleGroup,
    params: &GuestParams,
    mut busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
) -> Result<YieldingThreads, ActError> {
    let mut waits: Vec<(VcpuId, Option<BusyWait>)> = vcpus.iter().map(|vcpu| (vcpu, busy_wait(vcpu))).collect();
    let signalled: Vec<VcpuId> = waits.iter().filter(|(_, wait)| wait.is_some()).map(|(vcpu, _)| *vcpu).collect();
    YieldingThreads::prepare(
        vcpus,
        group,
        ContentionGuard::STOLEN_GAP,
        |vcpu| {
            let machine = YieldingThread::new(Order::Sleep, signalled.contains(&vcpu), params);
            Box::new(machine) as Box<dyn YieldMachine>
        },
        |vcpu| waits.iter_mut().find(|(id, _)| *id == vcpu).and_then(|(_, wait)| wait.take()),
    )
}

/// Whether yielding threads run outside of the program's limit of CPU time; else why there are to be none: the program
/// would be throttled. `means`: their cgroup, if they have one.
pub(crate) fn spends_no_quota(means: IdleMeans) -> Result<(), String> {
    let Some(own) = own_group(&CgroupRoots::default(), "cpu") else { return Ok(()) };
    let folder = if means == IdleMeans::ClassOnly { &own.own } else { &own.mount };
    match cpu_quota(&own.mount, folder) {
        None => Ok(()),
        Some(quota) => {
            Err(format!("they would use up the program's CPU quota ({} CPUs by {})", quota.cpus, quota.file.display()))
        }
    }
}

/// How yielding threads learn that their vCPUs are busy again: from BPF, or not at all.
pub(crate) fn busy_waits(observer: &Observer, vcpus: &CpuSet) -> BTreeMap<VcpuId, BusyWait> {
    let Observer::Bpf(bpf) = observer else { return BTreeMap::new() };
    let signals = bpf.busy_signals(vcpus).unwrap_or_default();
    let waits = signals.into_iter().map(|mut signal| {
        let waker = signal.waker();
        BusyWait { wait: Box::new(move |limit| signal.wait(limit)), wake: Box::new(move || waker.wake()) }
    });
    vcpus.iter().zip(waits).collect()
}
