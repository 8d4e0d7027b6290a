//! Setting up `run`: journal, guardian, cgroups, placement, and what a halt costs here.

use super::options::Options;
use crate::calibrate::{Bench, GAP_AT_START, SAMPLES_AT_START};
use crate::failure::Failure;
use crate::session::Session;
use gleaner_act::{BusyWait, CgroupHierarchies, CgroupRoots, IdleGroup, Placement, YieldingThreads};
use gleaner_decide::guest::halting_is_free;
use gleaner_model::{CpuSet, Nanos, Profile, VcpuId, WakeupCosts};
use gleaner_observe::{Observer, ObserverConfig};

/// What the actuators came to.
pub struct Actuators {
    pub session: Option<Session>,
    pub group: IdleGroup,
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
    let none = Actuators { session: None, group: IdleGroup::none(), placement: None };
    if !options.policy.retains() && !options.policy.consolidates() {
        return Ok(none);
    }
    let mut session = match Session::begin() {
        Ok(session) => session,
        Err(error) if options.strict => return Err(Failure::run(format!("--strict: {error}"))),
        Err(error) => {
            warnings.push(format!("nothing is changed, only observed: {error}"));
            return Ok(none);
        }
    };
    warnings.extend(
        session.unguarded.iter().map(|why| {
            format!("no guardian process ({why}): after a kill -9, `gleaner restore` has to be run by hand")
        }),
    );
    let hierarchies = CgroupHierarchies::find(&CgroupRoots::default());
    let placement = if options.policy.consolidates() && vcpus.len() > 1 {
        let prepared = Placement::prepare(options.placement, vcpus, &hierarchies, &mut session.journal);
        let (placement, fallback) = prepared.map_err(Failure::run)?;
        warnings.extend(fallback.map(|fallback| fallback.to_string()));
        Some(placement)
    } else {
        None
    };
    let group = if options.policy.retains() {
        IdleGroup::create(&hierarchies, &mut session.journal)
    } else {
        IdleGroup::none()
    };
    warnings.extend(group.fallback().map(ToString::to_string));
    Ok(Actuators { session: Some(session), group, placement })
}

/// How a yielding thread learns that its vCPU is busy again: from BPF, or not at all.
pub fn busy_wait(observer: &Observer, vcpu: VcpuId) -> Option<BusyWait> {
    let Observer::Bpf(bpf) = observer else { return None };
    let mut signal = bpf.busy_signal(vcpu).ok()?;
    let waker = signal.waker();
    Some(BusyWait { wait: Box::new(move |limit| signal.wait(limit)), wake: Box::new(move || waker.wake()) })
}

/// What a halt costs here, and where the time-out will come from, in words.
pub fn calibrate(
    options: &Options,
    yields: &YieldingThreads,
    vcpus: &CpuSet,
) -> Result<(Option<WakeupCosts>, Option<String>), Failure> {
    if options.timeout.is_some() {
        return Ok((None, Some("as given by --timeout".to_owned())));
    }
    if options.profile == Profile::Latency {
        return Ok((None, Some("the latency profile's".to_owned())));
    }
    let bench = || Bench::new(yields, vcpus, GAP_AT_START);
    let costs = match options.costs {
        Some(costs) => Some(costs),
        None => bench()
            .map(|bench| bench.costs(SAMPLES_AT_START, &options.params, || true))
            .transpose()
            .map_err(Failure::run)?
            .flatten(),
    };
    let words = match (costs, options.profile) {
        (None, _) => "the default, because one vCPU alone cannot be measured".to_owned(),
        (Some(costs), _) if halting_is_free(&costs, &options.params) => format!(
            "nothing is retained, because a halted vCPU answered no later (p50 {}, p99 {}) than one kept awake ({}, {})",
            costs.halted_p50, costs.halted_p99, costs.retained_p50, costs.retained_p99
        ),
        (Some(costs), Profile::Frugal) => {
            format!("mean of a halted wake-up {} - retained {}", costs.halted_mean, costs.retained_mean)
        }
        (Some(costs), _) => format!(
            "p99 of a halted wake-up {} - retained {}, within {} and {}",
            costs.halted_p99,
            costs.retained_p99,
            Nanos::from_micros(options.params.timeout_min_us),
            Nanos::from_micros(options.params.timeout_max_us)
        ),
    };
    Ok((costs, Some(words)))
}
