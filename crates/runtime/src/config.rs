//! What a runtime is to do.

use gleaner_act::PlacementRequest;
use gleaner_decide::guest::{GuestParams, timeout, waking_is_free};
use gleaner_model::{Nanos, Policy, Profile, RetainMeans, WakeupCosts};
use gleaner_observe::{Counter, ObserverChoice};

/// How vCPUs are kept awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetainChoice {
    /// By the first means that the machine has.
    #[default]
    Auto,
    /// By this one, where the machine has it.
    By(RetainMeans),
    /// Not at all.
    None,
}

impl RetainChoice {
    /// The means asked for by name.
    pub fn means(self) -> Option<RetainMeans> {
        if let Self::By(means) = self { Some(means) } else { None }
    }
}

/// What a runtime is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What people call the group, in a capture.
    pub name: String,
    /// How much it may do.
    pub policy: Policy,
    /// How long an idle vCPU is kept awake.
    pub profile: Profile,
    /// How it is kept awake.
    pub retain: RetainChoice,
    /// Instead of the profile's time-out.
    pub timeout: Option<Nanos>,
    /// What all vCPUs together may poll, as a share of one CPU, instead of what the profile allows.
    pub budget: Option<f64>,
    /// A number that grows as the program gets on. Retention is then judged by that.
    pub progress: Option<Counter>,
    /// What wake-ups cost, where it was measured.
    pub costs: Option<WakeupCosts>,
    /// Means that this machine is known to refuse, and why: they are passed over where none is asked for by name.
    pub refused: Vec<(RetainMeans, String)>,
    /// Timers of the program may expire so late, that several do in one wake-up.
    pub timer_slack: Option<Nanos>,
    /// The policy's numbers.
    pub params: GuestParams,
    /// Which observer.
    pub observer: ObserverChoice,
    /// Groups that there may be at once, as far as the observer takes memory for each from the start.
    pub groups_max: usize,
    /// How groups are confined.
    pub placement: PlacementRequest,
    /// Observing and deciding may take this share of one CPU.
    pub overhead_ratio: f64,
    /// Whatever would be weaker than asked for is an error.
    pub strict: bool,
    /// Decisions are made and told, and nothing is changed. Nothing is tried either: a trial would compare nothing with
    /// nothing.
    pub dry_run: bool,
}

impl Config {
    /// Whether yielding threads would have nothing to do, as far as costs were measured.
    pub(crate) fn has_nothing_to_retain(&self) -> bool {
        let by_costs = |costs| timeout(self.profile, Some(costs), &self.params) == Nanos::ZERO;
        self.timeout.is_none() && self.retain == RetainChoice::Auto && self.costs.as_ref().is_some_and(by_costs)
    }

    /// ... and consolidation neither.
    pub(crate) fn has_nothing_to_win(&self) -> bool {
        self.has_nothing_to_retain() && self.costs.is_some_and(|costs| waking_is_free(&costs, &self.params))
    }

    /// Whether anything is to be changed.
    pub fn acts(&self) -> bool {
        !self.dry_run && (self.policy.retains() || self.policy.consolidates() || self.timer_slack.is_some())
    }
}
