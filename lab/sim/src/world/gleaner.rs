//! Gleaner in a simulated guest: the policy that ships, and what of it is kept from window to window.

use super::yielder::Yielder;
use crate::config::Managed;
use crate::costs::Costs;
use crate::engine::Time;
use gleaner_decide::guest::{GuestPolicy, Urgency};
use gleaner_model::{CpuSet, Decision, Nanos, RetainMeans, WakeupCosts};

/// What manages one guest.
#[derive(Debug)]
pub(crate) struct Gleaner {
    pub(crate) managed: Managed,
    pub(crate) policy: GuestPolicy,
    pub(crate) zero: WindowZero,
    pub(crate) windows: u64,
    /// Their length together.
    pub(crate) time: Nanos,
    pub(crate) decisions: Vec<Decision>,
    /// Active vCPUs times time, up to the last window.
    pub(crate) active_time: f64,
}

/// What `gleaner probe` would measure in a guest with these costs and nobody else on the host: every wake-up takes the
/// same time.
pub fn wakeup_costs(costs: &Costs) -> WakeupCosts {
    let retained = Nanos(costs.ipi_ns + costs.guest_switch_ns);
    let halted = retained + Nanos(costs.vcpu_resume_ns);
    WakeupCosts {
        retained_p50: retained,
        retained_mean: retained,
        retained_p99: retained,
        halted_p50: halted,
        halted_mean: halted,
        halted_p99: halted,
    }
}

impl Gleaner {
    pub(crate) fn new(managed: &Managed, costs: &Costs, vcpus: u32) -> Self {
        let policy = if managed.means.polls_in_idle_task() {
            GuestPolicy::new(managed.policy, managed.profile, managed.params.clone(), None, CpuSet::first(vcpus))
                .by(managed.means, managed.timeout.map(Nanos))
        } else {
            Self::by_yielding(managed, costs, vcpus)
        };
        Self {
            managed: managed.clone(),
            policy,
            zero: WindowZero::default(),
            windows: 0,
            time: Nanos::ZERO,
            decisions: Vec::new(),
            active_time: 0.0,
        }
    }

    fn by_yielding(managed: &Managed, costs: &Costs, vcpus: u32) -> GuestPolicy {
        let mut params = managed.params.clone();
        let (mut profile, mut measured) = (managed.profile, Some(wakeup_costs(costs)));
        if managed.timeout.is_some() {
            // As `gleaner run --retain-for` has it: nothing is measured, and what was given is not doubted.
            params.retention_trials = false;
            (profile, measured) = (gleaner_model::Profile::Balanced, None);
        }
        GuestPolicy::new(managed.policy, profile, params, measured, CpuSet::first(vcpus))
            .by(RetainMeans::Yielding, managed.timeout.map(Nanos))
    }

    /// Its yielding threads, one for each vCPU.
    pub(crate) fn yielder(managed: &Managed) -> Option<Box<Yielder>> {
        let yields = managed.policy.retains() && !managed.means.polls_in_idle_task();
        yields.then(|| Box::new(Yielder::new(&managed.params, managed.signalled)))
    }

    /// Shorter than the usual one while a trial is over the sooner for it, as the daemon has it.
    pub(crate) fn next_window(&self) -> Time {
        let shorter = match self.policy.urgency() {
            Urgency::None => 1,
            Urgency::Some => 4,
            Urgency::Most | Urgency::Utmost => 10,
        };
        self.managed.window / shorter
    }

    pub(crate) fn active_mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.active_time / self.time.as_f64())
    }

    pub(crate) fn timeout(&self) -> Time {
        self.policy.timeout().0
    }
}

/// A virtual machine's counters as of the last window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowZero {
    pub(crate) at: u64,
    pub(crate) threads: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    pub(crate) cpu: u64,
}
