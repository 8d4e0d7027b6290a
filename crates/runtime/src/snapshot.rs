//! The state at one moment: what text, JSON, metrics and a live view are made of.

use crate::GroupId;
use crate::cost::OwnCost;
use crate::event::Warning;
use crate::members::Members;
use crate::recent::{MachineTimes, RecentFigures};
use crate::totals::Totals;
use gleaner_decide::guest::Explanation;
use gleaner_model::{CpuSet, Decision, Nanos, RetainMeans, Source, VcpuId};
use gleaner_observe::{ProcRoot, StatReader};

/// The machine and its groups, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The vCPUs that groups may use.
    pub vcpus: CpuSet,
    /// Which observer is in use.
    pub source: Source,
    /// By what vCPUs are retained; `None` where they are not.
    pub retention: Option<RetentionSnapshot>,
    /// Whether retention has ended because somebody else has set what it had set.
    pub is_left_to_others: bool,
    /// Idle time bridged since the start, summed over vCPUs.
    pub retained: Nanos,
    /// How often a contention guard stopped retention.
    pub guard_trips: u64,
    /// Whether this machine has reported any steal since boot. Zero for ever means that the hypervisor does not tell.
    pub steal_is_reported: bool,
    /// CPU time of observing and deciding since the start.
    pub overhead: Nanos,
    /// What this process and its programs took lately.
    pub cost: OwnCost,
    /// Whether windows are longer than they should be, because observing takes all that it may.
    pub is_paced: bool,
    /// When the last window ended: the clock of decisions.
    pub at: Nanos,
    /// The time-out in force on each vCPU that is retained, whichever group asked for it.
    pub retaining: Vec<(VcpuId, Nanos)>,
    /// How long windows are now.
    pub window_length: Nanos,
    /// What the vCPUs did since the start, while there was a group.
    pub times: MachineTimes,
    /// The same of the last one to two seconds.
    pub recent: MachineTimes,
    /// Each managed group.
    pub groups: Vec<GroupSnapshot>,
    /// What is, or was, weaker than it might be.
    pub warnings: Vec<Warning>,
}

/// A means of retention in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionSnapshot {
    pub means: RetainMeans,
    /// Its name and what it rests on.
    pub detail: String,
}

/// One managed group, at one moment.
#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    pub id: GroupId,
    /// Which observer sees it now.
    pub source: Source,
    /// Since when it is managed, on the clock of decisions.
    pub since: Nanos,
    /// Which threads it is; `None` before its first process runs.
    pub members: Option<Members>,
    /// Whether it may be confined to fewer vCPUs.
    pub may_be_confined: bool,
    /// The time-out in force, where the policy retains.
    pub timeout: Option<Nanos>,
    /// Whether it is left alone, because somebody said so.
    pub held: bool,
    /// The vCPUs it runs on.
    pub active: CpuSet,
    /// The first hundred decisions and the newest nine hundred, oldest first.
    pub decisions: Vec<Decision>,
    /// How many decisions there were between them.
    pub decisions_left_out: u64,
    /// What its windows add up to.
    pub totals: Totals,
    /// What those of the last one to two seconds add up to.
    pub recent: RecentFigures,
    /// Where its policy stands.
    pub explanation: Explanation,
}

/// Whether the hypervisor has ever reported any.
pub(crate) fn steal_is_reported() -> bool {
    let stat = StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read());
    stat.is_ok_and(|stat| stat.steal() > Nanos::ZERO)
}
