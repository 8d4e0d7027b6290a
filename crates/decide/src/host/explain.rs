//! Where the slice policy stands, and why it took no step.

use super::VmShare;
use gleaner_model::{Nanos, VmId};
use std::fmt;

/// Why no step was taken in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNoStep {
    /// Policy `static` takes none.
    NotAsked,
    /// A step, or a change of who shares with whom, is too fresh.
    Settling,
    /// Hardly ever was more than one vCPU runnable on a pCPU.
    NoCompetition,
    /// The last step was a turn: none is taken for a while.
    Resting,
    /// No other slice promises enough.
    NothingToGain,
}

impl fmt::Display for HostNoStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "the slice is fixed",
            Self::Settling => "the last change is too fresh to judge",
            Self::NoCompetition => "no two vCPUs want the same pCPU",
            Self::Resting => "steps went to and fro: none for a while",
            Self::NothingToGain => "no other slice promises enough",
        })
    }
}

/// One set of VMs that share pCPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct SetExplanation {
    pub vms: Vec<VmId>,
    pub slice: Nanos,
    /// Share of the VMs' time lost to discontinuity, over the last windows; `None` while settling.
    pub lost: Option<f64>,
    /// Share of the run time that preemptions take, at the prices the policy was given.
    pub switch_cost: Option<f64>,
    /// Why the last window changed nothing.
    pub no_step: HostNoStep,
}

/// Where the policy stands.
#[derive(Clone, Debug, PartialEq)]
pub struct HostExplanation {
    /// The sets, ascending by their first VM.
    pub sets: Vec<SetExplanation>,
    /// What continuously runnable vCPUs got, by VM.
    pub shares: Vec<VmShare>,
    /// Those of them that are unfair: beyond `unfair_share`, and beyond what one slice is of the time that was looked
    /// at.
    pub unfair: Vec<VmShare>,
    /// VMs that have no share, because they share some pCPUs with others, and not all.
    pub unjudged: Vec<VmId>,
}
