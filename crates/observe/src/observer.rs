//! One front for both observers, and the choice between them.

use crate::bpf::{BpfObserver, BpfRefusal};
use crate::config::{ObserverChoice, ObserverConfig};
use crate::error::ObserveError;
use crate::procfs::ProcfsObserver;
use crate::seen::Seen;
use gleaner_model::{Burst, BurstWatch, CpuSet, Nanos, RetainCounters, Source, Window};
use std::path::Path;

/// An observer, whichever it is.
#[derive(Debug)]
pub enum Observer {
    /// Exact, with distributions.
    Bpf(Box<BpfObserver>),
    /// Means only, no privilege.
    Procfs(Box<ProcfsObserver>),
}

impl Observer {
    /// The best observer that `choice` allows, and why it is not BPF if BPF was wanted.
    ///
    /// # Errors
    /// When `choice` is [`ObserverChoice::Bpf`] and BPF is refused, or when `/proc/stat` cannot be read.
    pub fn new(choice: ObserverChoice, config: &ObserverConfig) -> Result<(Self, Option<BpfRefusal>), ObserveError> {
        let refusal = match choice {
            ObserverChoice::Procfs => None,
            ObserverChoice::Bpf => return Ok((Self::Bpf(Box::new(BpfObserver::new(config)?)), None)),
            ObserverChoice::Auto => match BpfObserver::new(config) {
                Ok(observer) => return Ok((Self::Bpf(Box::new(observer)), None)),
                Err(refusal) => Some(refusal),
            },
        };
        Ok((Self::Procfs(Box::new(ProcfsObserver::new(config)?)), refusal))
    }

    /// Which of the two this is.
    pub fn source(&self) -> Source {
        match self {
            Self::Bpf(_) => Source::Bpf,
            Self::Procfs(_) => Source::Procfs,
        }
    }

    /// Ends it without waiting for it: that took six seconds in a busy guest of 4 vCPUs on 2 CPUs.
    pub fn retire(self) {
        gleaner_sys::drop_aside(self);
    }

    /// The managed program's first process. What it has started already is managed too.
    pub fn adopted(&mut self, root_pid: i32) {
        match self {
            Self::Bpf(observer) => observer.adopted(root_pid),
            Self::Procfs(observer) => observer.adopted(root_pid),
        }
    }

    /// Processes that run already, with all that they start, are another group, the last one. Of a `cgroup` that is all
    /// theirs BPF follows who comes and leaves. False: no room, see [`ObserverConfig::groups_max`].
    pub fn add_group(&mut self, roots: &[i32], cgroup: Option<&Path>) -> bool {
        match self {
            Self::Bpf(observer) => observer.add_group(roots, cgroup),
            Self::Procfs(observer) => {
                observer.add_group(roots);
                true
            }
        }
    }

    /// The group at this place is managed no more; those behind it move up. The first one, the owner's children, is
    /// there from the start.
    pub fn remove_group(&mut self, group: usize) {
        match self {
            Self::Bpf(observer) => observer.remove_group(group),
            Self::Procfs(observer) => observer.remove_group(group),
        }
    }

    /// Another process, with all that it starts, belongs to the group at this place.
    pub fn joined(&mut self, group: usize, pid: i32) {
        match self {
            Self::Bpf(observer) => observer.joined(group, pid),
            Self::Procfs(observer) => observer.joined(group, pid),
        }
    }

    /// The processes of the group at this place, those that it was told of and those that they started.
    pub fn processes(&self, group: usize) -> Vec<i32> {
        match self {
            Self::Bpf(observer) => observer.processes(group),
            Self::Procfs(observer) => observer.processes(group),
        }
    }

    /// This child of the owner's is not managed.
    pub fn exclude(&mut self, pid: i32) {
        match self {
            Self::Bpf(observer) => observer.exclude(pid),
            Self::Procfs(observer) => observer.exclude(pid),
        }
    }

    /// From now on the group at this place is kept to `active`: windows tell which of these its threads have bound
    /// themselves to. Until then nobody is asked.
    pub fn kept_to(&mut self, group: usize, active: &CpuSet) {
        match self {
            Self::Bpf(observer) => observer.kept_to(group, active),
            Self::Procfs(observer) => observer.kept_to(group, active),
        }
    }

    /// Zero of [`Window::at`]; the next window begins here.
    pub fn start(&mut self, yields: &[RetainCounters]) -> Result<(), ObserveError> {
        match self {
            Self::Bpf(observer) => {
                observer.start(yields);
                Ok(())
            }
            Self::Procfs(observer) => observer.start(yields),
        }
    }

    /// What happened since the last call, to the machine and to each group in their order. `yields` are the yielding
    /// threads' cumulative counters.
    ///
    /// # Errors
    /// When a file that every Linux has cannot be read.
    pub fn look(&mut self, yields: &[RetainCounters]) -> Result<Seen, ObserveError> {
        match self {
            Self::Bpf(observer) => observer.look(yields),
            Self::Procfs(observer) => observer.look(yields),
        }
    }

    /// The same as a window for each group: all tell the same of vCPUs.
    pub fn windows(&mut self, yields: &[RetainCounters]) -> Result<Vec<Window>, ObserveError> {
        match self {
            Self::Bpf(observer) => observer.windows(yields),
            Self::Procfs(observer) => observer.windows(yields),
        }
    }

    /// The same of the first group, where there is one.
    ///
    /// # Errors
    /// As [`Self::windows`], or when there is no group.
    pub fn window(&mut self, yields: &[RetainCounters]) -> Result<Window, ObserveError> {
        match self {
            Self::Bpf(observer) => observer.window(yields),
            Self::Procfs(observer) => observer.window(yields),
        }
    }

    /// The managed threads alive now.
    pub fn threads(&mut self) -> Vec<i32> {
        match self {
            Self::Bpf(observer) => observer.threads(),
            Self::Procfs(observer) => observer.threads(),
        }
    }

    /// From now on the group at this place is looked at for bursts; `None`: no more. To be repeated after each burst.
    /// False: this observer cannot tell, see [`crate::BurstLook`].
    pub fn watch_bursts(&mut self, group: usize, watch: Option<&BurstWatch>) -> bool {
        match self {
            Self::Bpf(observer) => {
                observer.watch_bursts(group, watch);
                observer.tells_bursts()
            }
            Self::Procfs(_) => false,
        }
    }

    /// The burst of the group at this place that has not been taken yet.
    pub fn take_burst(&mut self, group: usize) -> Option<Burst> {
        match self {
            Self::Bpf(observer) => observer.take_burst(group),
            Self::Procfs(_) => None,
        }
    }

    /// The time on the clock of [`Window::at`].
    pub fn now(&self) -> Nanos {
        match self {
            Self::Bpf(observer) => observer.now(),
            Self::Procfs(observer) => observer.now(),
        }
    }

    /// CPU time that the last window cost the calling thread: a reason to make windows longer.
    pub fn last_cost(&self) -> Nanos {
        match self {
            Self::Bpf(observer) => observer.last_cost(),
            Self::Procfs(observer) => observer.last_cost(),
        }
    }

    /// How often its programs have run, and how long that took, as far as the kernel counts it
    /// (`kernel.bpf_stats_enabled`); `None` where there are none.
    pub fn programs_ran(&self) -> Option<(u64, Nanos)> {
        match self {
            Self::Bpf(observer) => observer.programs_ran(),
            Self::Procfs(_) => None,
        }
    }

    /// Threads of the group that were seen and not tracked, because there were too many.
    pub fn untracked(&self) -> u64 {
        match self {
            Self::Bpf(observer) => observer.untracked(),
            Self::Procfs(observer) => observer.untracked(),
        }
    }
}
