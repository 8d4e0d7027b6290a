//! The host's state: pCPUs, who runs on them, who waits, and why a pCPU has to look whom to run.

use super::class::Class;
use super::group::Group;
use super::idle_periods::IdlePeriods;
use super::queue::RunQueue;
use crate::config::HostConfig;
use crate::engine::{BitSet, Time};
use crate::ids::{PcpuIx, VcpuIx};
use std::collections::VecDeque;

/// Why a pCPU looks for whom to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It has nobody, or nothing happened.
    #[default]
    Nothing,
    /// The slice is used up.
    Slice,
    /// Somebody woke who comes first.
    Wake,
    /// Whoever runs spins in vain, or is halted and polled for.
    Yield,
}

/// When a pCPU looks again: within its cache, and beyond.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pulls {
    pub(crate) interval: [Time; 2],
    pub(crate) next: [Time; 2],
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pcpu {
    pub(crate) curr: Option<VcpuIx>,
    /// Whose cache it is.
    pub(crate) last: Option<VcpuIx>,
    pub(crate) queue: RunQueue,
    /// Virtual runtimes of those in the queue, together.
    pub(crate) sum: i64,
    /// The queue's virtual time, which never goes back (window).
    pub(crate) floor: i64,
    /// When `curr` was given the pCPU.
    pub(crate) started: Time,
    pub(crate) cause: Cause,
    pub(crate) listed: bool,
    /// To be run next, whatever its key (directed yield).
    pub(crate) favoured: Option<VcpuIx>,
    pub(crate) busy: Time,
    pub(crate) busy_since: Time,
    pub(crate) pulls: Pulls,
    pub(crate) idle_periods: IdlePeriods,
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) config: HostConfig,
    pub(crate) pcpus: Vec<Pcpu>,
    pub(crate) classes: Vec<Class>,
    /// Classes with more than one pCPU that each pCPU is in.
    pub(crate) classes_of: Vec<Vec<u32>>,
    /// pCPUs that nobody is on.
    pub(crate) idle: BitSet,
    /// pCPUs that have to look whom to run.
    pub(crate) list: VecDeque<PcpuIx>,
    pub(crate) switches: u64,
    /// Ticks so far, and what all vCPUs together had at the last accounting (credit).
    pub(crate) ticks: u64,
    pub(crate) credit_balance: i64,
    /// Of each virtual machine, where the scheduler has groups.
    pub(crate) groups: Vec<Group>,
    /// Whether somebody wants windows of the host.
    pub(crate) observed: bool,
    /// Longer than this no vCPU waits for a pCPU; checked in debug builds.
    #[cfg(debug_assertions)]
    pub(crate) waits_at_most: Time,
}
