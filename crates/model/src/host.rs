//! The host's nouns: VMs and their vCPU threads as the hypervisor's scheduler sees them, and what the host agent may do
//! to them.
//!
//! Counted like this, over one window:
//!
//! - `run` and `wait` of a vCPU thread are the scheduler's own (`/proc/TID/schedstat`): on a pCPU, and runnable without
//!   one.
//! - A *burst* is the run time between a wake-up and the sleep that ends it, however often it is preempted in between.
//! - A *preemption* takes the pCPU from a vCPU that would have run on. Switches by sleeping are none.
//! - A *full slice* is a run interval that ended by preemption and was at least nine tenths of the slice in force.

use crate::{CpuSet, Distribution, Nanos, VcpuId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A virtual machine: the process id of its VMM, or any other number that is its own while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmId(pub u32);

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VM {}", self.0)
    }
}

/// One vCPU thread over one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVcpuWindow {
    /// Which of its VM's.
    pub vcpu: VcpuId,
    /// The pCPUs it may run on (host numbers).
    pub pcpus: CpuSet,
    /// Time on a pCPU.
    pub run: Nanos,
    /// Time runnable without a pCPU.
    pub wait: Nanos,
    /// Wake-ups.
    pub wakeups: Option<u64>,
    /// From wake-up to running.
    pub wake_to_run: Option<Distribution>,
    /// Preemptions while runnable.
    pub preemptions: Option<u64>,
    /// Lengths of the bursts that ended in this window.
    pub bursts: Option<Distribution>,
    pub full_slices: Option<u64>,
    /// Of these, those in which the guest got nowhere (it spun for all of it).
    pub full_slices_without_progress: Option<u64>,
    /// Exits because the guest executed too many PAUSEs in a row.
    pub pause_exits: Option<u64>,
    /// Interrupts for it that arrived while it waited for a pCPU.
    pub interrupts_while_waiting: Option<u64>,
}

impl HostVcpuWindow {
    /// A vCPU that did nothing, and of which nothing more can be seen.
    pub fn new(vcpu: VcpuId, pcpus: CpuSet) -> Self {
        Self {
            vcpu,
            pcpus,
            run: Nanos::ZERO,
            wait: Nanos::ZERO,
            wakeups: None,
            wake_to_run: None,
            preemptions: None,
            bursts: None,
            full_slices: None,
            full_slices_without_progress: None,
            pause_exits: None,
            interrupts_while_waiting: None,
        }
    }

    /// Time spent waiting after wake-ups: measured where `wake_to_run` is, else their part of all waits, each taken to
    /// be as long as any other. `None` where wake-ups are unknown.
    pub fn wake_wait(&self) -> Option<Nanos> {
        if let Some(delays) = &self.wake_to_run {
            return Some(delays.sum());
        }
        let wakeups = self.wakeups? as f64;
        let waits = wakeups + self.preemptions? as f64;
        Some(Nanos::from_f64(if waits > 0.0 { self.wait.as_f64() * wakeups / waits } else { 0.0 }))
    }

    /// Share of the time in which it ran or wanted to, waits after wake-ups apart: those last as long as others'
    /// slices, so they say nothing about how much of a pCPU it asks for.
    pub fn wanted(&self, length: Nanos) -> f64 {
        let woken = self.wake_wait().unwrap_or_default().min(self.wait);
        (self.run + self.wait - woken).share_of(length - woken)
    }
}

/// One VM over one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmWindow {
    pub vm: VmId,
    /// The slice that its vCPU threads have asked for, `None` for the kernel's own.
    pub slice: Option<Nanos>,
    /// What each of its vCPUs is entitled to, relative to others (1024 is an ordinary thread's).
    pub weight: u64,
    /// CPU time that a cap lets it have in this window, all its vCPUs together; `None` without a cap.
    pub limit: Option<Nanos>,
    /// What refilling its caches costs it after a switch; `None` where it was not measured.
    pub refill: Option<Nanos>,
    pub vcpus: Vec<HostVcpuWindow>,
}

/// One observation of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostWindow {
    /// When it ended, on a monotonic clock that starts with the agent.
    pub at: Nanos,
    /// How long it was.
    pub length: Nanos,
    /// The VMs there are, ascending by id.
    pub vms: Vec<VmWindow>,
    /// CPU time that ending a slice took so far, on average, where something of ours ends them; `None` until that is
    /// known.
    pub tick: Option<Nanos>,
}

/// What taking a pCPU from one vCPU and giving it to another costs (paper, section III-A: direct and indirect cost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchPrice {
    /// The switch itself, VM exit and entry included.
    pub direct: Nanos,
    /// Ending the slice: a ticker's wake-up, nothing where the kernel does it.
    pub tick: Nanos,
    /// Refilling caches, TLBs and predictors afterwards, for a VM of which nothing better is known.
    pub refill: Nanos,
}

/// One change to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Give every vCPU of `vm` this slice, and enforce it.
    SetSlice {
        vm: VmId,
        /// How long a vCPU may run while another waits.
        slice: Nanos,
    },
}

impl HostAction {
    /// The VM it is about.
    pub fn vm(&self) -> VmId {
        match *self {
            Self::SetSlice { vm, .. } => vm,
        }
    }
}

/// Why. [`fmt::Display`] says it in plain words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostReason {
    /// Policy `static`.
    Static,
    /// Policy `adaptive` starts here.
    Begins,
    /// The VM came to share pCPUs with others that have this slice.
    Joins,
    /// Waiting after wake-ups costs this VM more than shorter slices would.
    WaitsHurt {
        /// The VM that suffers most.
        vm: VmId,
        /// Mean time from wake-up to running.
        wait: Nanos,
        /// Share of the time it wanted that it lost by waiting.
        lost: f64,
        /// Share that switches take at the new slice, as predicted.
        cost: f64,
    },
    /// This VM spins for most of what it loses: who it waits for has no pCPU.
    SpinningHurts {
        /// The VM that suffers most.
        vm: VmId,
        /// Share of the time it wanted that it lost.
        lost: f64,
        /// Share that switches take at the new slice, as predicted.
        cost: f64,
    },
    /// Switches cost more than longer waits would.
    SwitchesCost {
        /// Share that switches took.
        cost: f64,
        /// Share that they will take.
        saved_to: f64,
        /// Share that waiting is predicted to take, mean of the VMs.
        lost: f64,
    },
    /// The last step did not shorten what it was to shorten, and the VMs get no more done.
    NoGain {
        /// What it should have become, as a ratio to what it was.
        expected: f64,
        /// What it became.
        found: f64,
    },
    /// The last step made shares unfair.
    Unfair {
        /// Who is furthest from its entitlement.
        vm: VmId,
        /// What it got, as a ratio to its entitlement.
        ratio: f64,
    },
}

impl fmt::Display for HostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            Self::Static => write!(f, "policy static: one slice for all"),
            Self::Begins => write!(f, "policy adaptive starts here"),
            Self::Joins => write!(f, "shares pCPUs with VMs that have this slice"),
            Self::WaitsHurt { vm, wait, lost, cost } => write!(
                f,
                "{vm} loses {:.0} % waiting {wait} after a wake-up; switches will take {:.1} %",
                percent(lost),
                percent(cost)
            ),
            Self::SpinningHurts { vm, lost, cost } => write!(
                f,
                "{vm} loses {:.0} % spinning for vCPUs that have no pCPU; switches will take {:.1} %",
                percent(lost),
                percent(cost)
            ),
            Self::SwitchesCost { cost, saved_to, lost } => write!(
                f,
                "switches took {:.2} % and will take {:.2} %; waiting will take {:.2} %",
                percent(cost),
                percent(saved_to),
                percent(lost)
            ),
            Self::NoGain { expected, found } => write!(
                f,
                "the last step was to bring waiting down to {:.0} % of what it was, and it is at {:.0} %, and VMs get no more done: taken back",
                percent(expected),
                percent(found)
            ),
            Self::Unfair { vm, ratio } => {
                write!(f, "{vm} got {:.1} % of its entitlement after the last step: taken back", percent(ratio))
            }
        }
    }
}

/// One action, when and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostDecision {
    /// When, on the clock of [`HostWindow::at`].
    pub at: Nanos,
    pub action: HostAction,
    /// Why.
    pub reason: HostReason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_wakeups_is_measured_or_else_shared_out() {
        let vcpu = |wakeups, preemptions| HostVcpuWindow {
            wait: Nanos(1000),
            wakeups,
            preemptions,
            ..HostVcpuWindow::new(VcpuId(0), CpuSet::first(1))
        };
        assert_eq!(vcpu(Some(3), Some(1)).wake_wait(), Some(Nanos(750)));
        assert_eq!(vcpu(Some(0), Some(0)).wake_wait(), Some(Nanos::ZERO));
        assert_eq!(vcpu(Some(3), None).wake_wait(), None);
        assert_eq!(vcpu(None, Some(3)).wake_wait(), None);
        let mut measured = Distribution::new();
        measured.record(Nanos(40));
        assert_eq!(
            HostVcpuWindow { wake_to_run: Some(measured), ..vcpu(Some(3), Some(1)) }.wake_wait(),
            Some(Nanos(40))
        );
    }
}
