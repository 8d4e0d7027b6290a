//! A thread of a virtual machine: what it does, where it is in its program, and what its time went on.

use super::Workload;
use super::line::NOBODY;
use crate::engine::{Random, Time};
use crate::ids::{ThreadIx, VcpuIx, VmIx};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Running,
    /// In a vCPU's queue.
    Waiting {
        since: Time,
    },
    Blocked,
    Ended,
}

/// What a thread does when it has a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// The instruction at `pc`.
    Step,
    Compute {
        left: Time,
    },
    /// Spins until it has the ticket lock.
    Spin {
        lock: u32,
    },
    /// Spins until so many vCPUs have answered.
    Answers {
        missing: u32,
    },
}

/// In the order in which it is needed, as [`crate::world::Vcpu`] is.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Thread {
    pub(crate) vm: VmIx,
    /// In the table of all programs.
    pub(crate) pc: u32,
    /// Who stands behind it in a line.
    pub(crate) behind: ThreadIx,
    /// Where it runs, or ran last.
    pub(crate) vcpu: VcpuIx,
    pub(crate) state: ThreadState,
    pub(crate) doing: Doing,
    /// Ticket locks held or waited for, shootdowns: the guest does not preempt it.
    pub(crate) unpreemptible: u32,
    /// It was woken at a condition variable and needs the mutex again.
    pub(crate) relock: bool,
    /// What it waits for at a read-write semaphore is to write.
    pub(crate) writes: bool,
    /// vCPUs that it may use, as bits.
    pub(crate) allowed: u64,
    /// CPU time, lifted when it wakes so that sleep is not saved up.
    pub(crate) vruntime: Time,
    pub(crate) cpu: Time,
    pub(crate) cpu_at_switch: Time,
    /// It had a vCPU that had no pCPU.
    pub(crate) stolen: Time,
    pub(crate) random: Random,
    /// The stamp of its item.
    pub(crate) item: Time,
    pub(crate) waited: Time,
    pub(crate) migrations: u64,
    pub(crate) spin_since: Time,
    pub(crate) spun: Time,
}

impl Thread {
    pub(crate) fn new(vm: VmIx, pc: u32, vcpu: VcpuIx, allowed: u64, random: Random) -> Self {
        Self {
            vm,
            pc,
            behind: NOBODY,
            state: ThreadState::Blocked,
            doing: Doing::Step,
            vcpu,
            allowed,
            unpreemptible: 0,
            relock: false,
            writes: false,
            item: 0,
            spin_since: 0,
            random,
            cpu: 0,
            cpu_at_switch: 0,
            stolen: 0,
            vruntime: 0,
            spun: 0,
            waited: 0,
            migrations: 0,
        }
    }

    /// All threads of a workload, each with its own random numbers.
    pub(crate) fn all(workload: &Workload) -> impl Iterator<Item = (u32, u64)> + '_ {
        workload.groups.iter().flat_map(|group| (0..group.count).map(|_| (group.program, group.vcpus)))
    }

    pub(crate) fn preemptible(&self) -> bool {
        self.unpreemptible == 0
    }

    pub(crate) fn may_use(&self, vcpu: u32) -> bool {
        self.allowed >> vcpu & 1 == 1
    }

    /// It ran for `time` and got `work` done; says whether it spun.
    pub(crate) fn ran(&mut self, time: Time, work: Time) -> bool {
        self.cpu += time;
        self.vruntime += time;
        match &mut self.doing {
            Doing::Compute { left } => *left -= work.min(*left),
            Doing::Step => {}
            Doing::Spin { .. } | Doing::Answers { .. } => {
                self.spun += time;
                return true;
            }
        }
        false
    }
}
