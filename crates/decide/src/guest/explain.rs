//! Why the policy did, or did not, do something: for the summary and the machine-readable report of a run.

use gleaner_model::{CpuSet, Lengths, Nanos, Reason, VcpuId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why no vCPU was deactivated in a window. [`fmt::Display`] says it in plain words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum NoStep {
    /// The policy in force does not consolidate.
    NotAsked,
    /// Threads are still spreading after a step or at start, or too few windows have been seen.
    Settling,
    /// The last step is being judged.
    Judging,
    /// Retention is being tried: nothing else may change meanwhile.
    Trying,
    /// A change or a step that hurt was too recent.
    HoldingOff {
        /// How much longer.
        remaining: Nanos,
    },
    /// One vCPU is left.
    OneVcpu,
    /// Each active vCPU has a thread that bound itself to it.
    Pinned,
    /// The observer cannot tell idle periods, or the program did not compute, or it never waited.
    Unmeasured,
    /// The window says nothing.
    TooFewIdlePeriods {
        /// Idle periods per second and active vCPU.
        per_s: f64,
        needed: f64,
    },
    /// A vCPU is nearly full: the 90 % rule would undo every step.
    Saturated {
        vcpu: VcpuId,
        /// Its utilization, 0 to 1.
        utilization: f64,
    },
    /// A vCPU is full, and the program no slower for it: the last step stays.
    FullAndNoSlower {
        /// Hand-overs per second rose by this share.
        gain: f64,
    },
    /// Condition (1) fails: the others' idle time is too short for the work.
    LoadTooHigh {
        /// l_comp / ((N-1) * l_idle).
        load_ratio: f64,
        /// rho.
        load_factor: f64,
    },
    /// Condition (2) fails: computations do not fit into idle periods.
    TooCoarse {
        /// g_comp / l_idle.
        granularity_ratio: f64,
        /// eta.
        granularity_factor: f64,
    },
    /// Condition (2) fails: threads compute longer than min_time_slice, so waiting costs them little.
    LongerThanSlice { g_comp: Nanos, min_time_slice: Nanos },
    /// Condition (3) fails: the vCPUs that stay would be too full.
    WouldBeFull {
        /// N*u/(N-1).
        predicted: f64,
        /// The most that is allowed.
        max: f64,
    },
    /// Polling holds the idle periods, and the host is not short of CPUs: packing would lose what that wins.
    HeldCheaply,
    /// A halted vCPU answers at once: packing has nothing to win.
    WakesForNothing,
    /// Its threads take turns on one vCPU, or that is being tried.
    TakesTurns,
}

impl NoStep {
    /// How many kinds there are.
    pub(super) const KINDS: usize = 18;

    /// Which kind it is, values aside.
    pub(super) fn kind(&self) -> usize {
        match self {
            Self::NotAsked => 0,
            Self::Settling => 1,
            Self::Judging => 2,
            Self::HoldingOff { .. } => 3,
            Self::OneVcpu => 4,
            Self::Unmeasured => 5,
            Self::TooFewIdlePeriods { .. } => 6,
            Self::Saturated { .. } => 7,
            Self::LoadTooHigh { .. } => 8,
            Self::TooCoarse { .. } => 9,
            Self::LongerThanSlice { .. } => 10,
            Self::WouldBeFull { .. } => 11,
            Self::Pinned => 12,
            Self::FullAndNoSlower { .. } => 13,
            Self::Trying => 14,
            Self::HeldCheaply => 15,
            Self::WakesForNothing => 16,
            Self::TakesTurns => 17,
        }
    }
}

impl fmt::Display for NoStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            Self::NotAsked => write!(f, "the policy does not consolidate"),
            Self::Settling => write!(f, "settling: too few windows since the start or the last change"),
            Self::Judging => write!(f, "judging the last step"),
            Self::Trying => write!(f, "trying whether retention pays"),
            Self::HeldCheaply => write!(f, "idle vCPUs poll, which wakes a thread sooner than packing would"),
            Self::TakesTurns => write!(f, "its threads take turns on one vCPU, or that is being tried"),
            Self::WakesForNothing => write!(f, "waking a halted vCPU costs next to nothing here"),
            Self::HoldingOff { remaining } => {
                write!(f, "holding off for {remaining} after a change or a step that hurt")
            }
            Self::OneVcpu => write!(f, "one vCPU left"),
            Self::Pinned => write!(f, "each vCPU has a thread that bound itself to it"),
            Self::Unmeasured => write!(f, "idle periods or voluntary switches unknown, or none of them"),
            Self::TooFewIdlePeriods { per_s, needed } => {
                write!(f, "too few idle periods ({per_s:.0}/s per vCPU, needs {needed:.0})")
            }
            Self::Saturated { vcpu, utilization } => {
                write!(f, "{vcpu} is {:.0} % busy: fewer vCPUs would be too few", percent(utilization))
            }
            Self::FullAndNoSlower { gain } => {
                write!(f, "a vCPU is full and the program no slower for it ({:+.0} % hand-overs)", percent(gain))
            }
            Self::LoadTooHigh { load_ratio, load_factor } => {
                write!(f, "condition 1 fails: l_comp/((N-1)*l_idle) = {load_ratio:.2}, above rho = {load_factor:.2}")
            }
            Self::TooCoarse { granularity_ratio, granularity_factor } => {
                write!(
                    f,
                    "condition 2 fails: g_comp/l_idle = {granularity_ratio:.2}, above eta = {granularity_factor:.2}"
                )
            }
            Self::LongerThanSlice { g_comp, min_time_slice } => {
                write!(f, "condition 2 fails: g_comp = {g_comp}, above min_time_slice = {min_time_slice}")
            }
            Self::WouldBeFull { predicted, max } => write!(
                f,
                "predicted utilization of the vCPUs that stay {:.0} %, above {:.0} %",
                percent(predicted),
                percent(max)
            ),
        }
    }
}

/// What a trial of retention said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// When it ended.
    pub at: Nanos,
    /// Whether retention pays.
    pub pays: bool,
    /// Why, with the median of what was compared.
    pub reason: Reason,
    /// Synchronizations per second with retention, as a multiple of those without, pair by pair; CPU time where
    /// synchronizations could not be compared.
    pub rates: Vec<f64>,
}

/// Where the policy stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// vCPUs the group runs on.
    pub active: CpuSet,
    pub vcpus: usize,
    /// vCPUs that are retained now.
    pub retaining: CpuSet,
    /// vCPUs whose contention guard holds now.
    pub contended: CpuSet,
    /// Retention time-out in force; zero means that nothing is retained.
    pub timeout: Nanos,
    /// What a synchronization cost with retention, as a multiple of what it cost without, when that was last tried;
    /// `None`: not yet.
    pub retention_cost_ratio: Option<f64>,
    /// Whether retention was stopped for that.
    pub retention_stopped: bool,
    /// What the last trial said; `None`: there was none.
    pub trial: Option<TrialRecord>,
    /// What the last trial of one vCPU said; `None`: there was none.
    pub turns: Option<TrialRecord>,
    /// Before then there is no (other) trial; `None`: never.
    pub next_trial: Option<Nanos>,
    /// rho as adapted.
    pub load_factor: f64,
    /// eta as adapted.
    pub granularity_factor: f64,
    /// What is left of the hold-off of consolidation, zero if there is none.
    pub hold_off: Nanos,
    /// l_comp, g_comp, l_idle of the last window; `None` where unknown.
    pub lengths: Option<Lengths>,
    /// Why the last window brought no step; `None` if it did, or before the first window.
    pub no_step: Option<NoStep>,
    /// For each kind of reason that occurred, its latest values and in how many windows it was the reason; most
    /// frequent first.
    pub no_step_windows: Vec<(NoStep, u64)>,
}

/// Counts reasons by kind. Bounded: one entry a kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct NoStepCounts {
    latest: Option<NoStep>,
    kinds: [Option<(NoStep, u64)>; NoStep::KINDS],
}

impl NoStepCounts {
    /// Notes why a window brought no step; `None` if it brought one.
    pub(super) fn note(&mut self, reason: Option<NoStep>) {
        self.latest = reason;
        if let Some(reason) = reason {
            let entry = &mut self.kinds[reason.kind()];
            *entry = Some((reason, entry.map_or(0, |(_, windows)| windows) + 1));
        }
    }

    pub(super) fn latest(&self) -> Option<NoStep> {
        self.latest
    }

    pub(super) fn by_frequency(&self) -> Vec<(NoStep, u64)> {
        let mut kinds: Vec<_> = self.kinds.iter().flatten().copied().collect();
        kinds.sort_by_key(|(_, windows)| std::cmp::Reverse(*windows));
        kinds
    }
}
