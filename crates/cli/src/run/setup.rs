//! Setting up `run`: journal, guardian, cgroups, placement, and what a halt costs here.

use super::options::Options;
use crate::failure::Failure;
use crate::session;
use gleaner_act::{BusyWait, CgroupHierarchies, CgroupRoots, IdleMeans, Placement, own_group};
use gleaner_model::{CpuSet, Profile, RetainMeans, VcpuId};
use gleaner_observe::{Observer, ObserverConfig};
use gleaner_runtime::Session;
use gleaner_sys::cpu_quota;

/// What the actuators came to.
pub struct Actuators {
    pub session: Option<Session>,
    pub hierarchies: CgroupHierarchies,
    pub placement: Option<Placement>,
}

/// What an observer of this run has to know.
pub fn observer_config(session: Option<&Session>, vcpus: &CpuSet) -> ObserverConfig {
    ObserverConfig {
        excluded_pids: session.and_then(Session::guardian_pid).into_iter().collect(),
        allowed: Some(vcpus.clone()),
        ..ObserverConfig::default()
    }
}

/// Journal, guardian, cgroup and placement, as far as the policy needs them and the machine allows.
pub fn actuators(options: &Options, vcpus: &CpuSet, warnings: &mut Vec<String>) -> Result<Actuators, Failure> {
    let hierarchies = CgroupHierarchies::find(&CgroupRoots::default());
    let none = |hierarchies| Actuators { session: None, hierarchies, placement: None };
    if !options.policy.retains() && !options.policy.consolidates() {
        return Ok(none(hierarchies));
    }
    let mut session = match session::begin() {
        Ok(session) => session,
        Err(error) if options.strict => return Err(Failure::run(format!("--strict: {error}"))),
        Err(error) => {
            warnings.push(format!("nothing is changed, only observed: {error}"));
            return Ok(none(hierarchies));
        }
    };
    warnings.extend(session.warning().map(|warning| warning.to_string()));
    let placement = if options.policy.consolidates() && vcpus.len() > 1 {
        let prepared = Placement::prepare(options.placement, vcpus, &hierarchies, &mut session.journal);
        let (placement, fallback) = prepared.map_err(Failure::run)?;
        warnings.extend(fallback.map(|fallback| fallback.to_string()));
        Some(placement)
    } else {
        None
    };
    Ok(Actuators { session: Some(session), hierarchies, placement })
}

/// Whether yielding threads run outside of the program's limit of CPU time; else why there are to be none: they would use it up, and
/// the program would be throttled. `means`: whether they have a cgroup of their own, at the top of what can be seen.
pub fn spends_no_quota(means: IdleMeans) -> Result<(), String> {
    let Some(own) = own_group(&CgroupRoots::default(), "cpu") else { return Ok(()) };
    let folder = if means == IdleMeans::ClassOnly { &own.own } else { &own.mount };
    match cpu_quota(&own.mount, folder) {
        None => Ok(()),
        Some(quota) => {
            Err(format!("they would use up the program's CPU quota ({} CPUs by {})", quota.cpus, quota.file.display()))
        }
    }
}

/// How a yielding thread learns that its vCPU is busy again: from BPF, or not at all.
pub fn busy_wait(observer: &Observer, vcpu: VcpuId) -> Option<BusyWait> {
    let Observer::Bpf(bpf) = observer else { return None };
    let mut signal = bpf.busy_signal(vcpu).ok()?;
    let waker = signal.waker();
    Some(BusyWait { wait: Box::new(move |limit| signal.wait(limit)), wake: Box::new(move || waker.wake()) })
}

/// Where the time-out comes from, in words.
pub fn timeout_from(options: &Options, means: RetainMeans) -> String {
    if options.timeout.is_some() {
        return "as given by --timeout".to_owned();
    }
    let profile = match options.profile {
        Profile::Frugal => "frugal",
        Profile::Balanced => "balanced",
        Profile::Latency => "latency",
    };
    format!("profile {profile}, kept awake by {means}")
}
