//! One machine and its groups: observe, decide, act, once a window.

use crate::Config;
use crate::event::{Event, Listener, Warning};
use crate::events::Events;
use crate::group::Group;
use crate::machine::Machine;
use crate::setup::{SetupError, set_up};
use crate::snapshot::{RetentionSnapshot, Snapshot};
use gleaner_model::{CpuSet, Nanos};
use gleaner_observe::{ProcRoot, StatReader};
use gleaner_sys::thread_cpu_time;
use std::path::PathBuf;

/// Manages groups on this machine. To be used by one thread, which it keeps to one vCPU.
pub struct Runtime {
    pub(crate) machine: Machine,
    pub(crate) groups: Vec<Group>,
    pub(crate) events: Events,
}

impl Runtime {
    /// Sets everything up for one group, the program that is to be started next, which may use `vcpus`.
    ///
    /// # Errors
    /// Where nothing can be observed, or what was asked for by name is refused.
    pub fn prepare(config: &Config, vcpus: CpuSet, listener: Listener) -> Result<Self, SetupError> {
        set_up(config, vcpus, listener)
    }

    /// Where the program has to enter itself before exec.
    pub fn join_file(&self) -> Option<PathBuf> {
        self.groups.iter().find_map(Group::join_file)
    }

    /// To be called right before the fork.
    pub fn about_to_start(&mut self) {
        self.machine.adopt_next_child();
    }

    /// To be called right after exec: from here on it is managed. What fails now must not cost the program: it is a warning.
    pub fn started(&mut self, pid: i32) {
        let Self { machine, groups, events } = self;
        machine.adopted(pid);
        for group in groups.iter_mut() {
            group.started(pid);
        }
        machine.start(events);
        for group in groups.iter_mut() {
            group.begin(machine, events);
        }
        machine.hurry(groups.iter().any(Group::wants_quick_windows));
        self.pin(Nanos::ZERO);
    }

    /// Manages processes that run already, with all that they start, as one group: the observer has to be `/proc`.
    pub fn attach(&mut self, roots: &[i32]) {
        let (Some(first), rest) = (roots.first(), roots.iter().skip(1)) else { return };
        self.started(*first);
        rest.for_each(|pid| self.joined(*pid));
    }

    /// Another process belongs to it, which none of the others has started.
    pub fn joined(&mut self, pid: i32) {
        self.machine.adopted(pid);
    }

    /// How long until the next window is due.
    pub fn window_length(&self) -> Nanos {
        self.machine.window_length()
    }

    /// One window, `late` after it was due.
    pub fn tick(&mut self, late: Nanos) {
        self.pin(late);
        self.machine.beat();
        let before = thread_cpu_time();
        let windows = match self.machine.observe() {
            Ok(windows) => windows,
            Err(error) => {
                self.events.warn(Warning::WindowLost { why: error.to_string() });
                return;
            }
        };
        let Self { machine, groups, events } = self;
        let mut moved = false;
        for (group, window) in groups.iter_mut().zip(&windows) {
            moved |= group.tick(window, machine, events);
        }
        if moved {
            self.pin(Nanos::ZERO);
        }
        let quick = self.groups.iter().any(Group::wants_quick_windows);
        self.machine.pace(thread_cpu_time() - before, quick);
        let trial = self.groups.iter().any(Group::wants_wakeups);
        self.machine.fall_back_to_procfs(&windows, trial, &mut self.events);
    }

    /// Keeps this thread out of the groups' way.
    fn pin(&mut self, late: Nanos) {
        let active = self.groups.iter().flat_map(|group| group.active().iter()).collect();
        let pinned = self.groups.iter().flat_map(|group| group.pinned().iter()).collect();
        self.machine.pin(active, pinned, late);
    }

    /// Forgets the time up to now: the program was stopped.
    pub fn skip(&mut self) {
        self.machine.beat();
        if let Err(error) = self.machine.skip() {
            self.events.warn(Warning::WindowLost { why: error.to_string() });
        }
    }

    /// A child process of this one ended, and was reaped. It may have been the guardian, and there has to be one.
    pub fn child_ended(&mut self, pid: i32) {
        self.machine.child_ended(pid, &mut self.events);
    }

    /// As everything stands.
    pub fn snapshot(&self) -> Snapshot {
        let overhead = self.machine.overhead();
        let spent = self.machine.spent();
        let releases: u64 = self.groups.iter().map(Group::guard_releases).sum();
        let retention = self.machine.retention();
        Snapshot {
            vcpus: self.machine.vcpus().clone(),
            source: self.machine.source(),
            retention: retention.map(|(means, detail)| RetentionSnapshot { means, detail }),
            retained: spent.retained,
            guard_trips: spent.guard_trips + releases,
            steal_is_reported: steal_is_reported(),
            overhead,
            window_length: self.machine.window_length(),
            groups: self.groups.iter().map(Group::snapshot).collect(),
            warnings: self.events.warnings().to_vec(),
        }
    }

    /// Undoes everything. What there was to tell, and whether that worked.
    pub fn end(mut self) -> (Snapshot, bool) {
        let threads = self.machine.untracked();
        if threads > 0 {
            self.events.warn(Warning::Untracked { threads });
        }
        let snapshot = self.snapshot();
        let Self { machine, groups, events } = self;
        let ended = machine.end(|observing, journal| {
            for group in groups {
                group.release(observing, journal);
            }
        });
        let restored = ended.map_err(|error| events.tell(&Event::NotUndone { why: error.to_string() })).is_ok();
        (snapshot, restored)
    }
}

fn steal_is_reported() -> bool {
    let stat = StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read());
    stat.is_ok_and(|stat| stat.steal() > Nanos::ZERO)
}
