//! The observer in use, and when it is changed for another.

use crate::timeout_requests::GroupId;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Burst, BurstWatch, CpuSet, Nanos, RetainCounters, Source};
use gleaner_observe::{BpfRefusal, BurstSignal, ObserveError, Observer, ObserverConfig, ProcRoot, Seen, SeenGroup};
use gleaner_settings::ObserverChoice;
use gleaner_sys::numbered;
use std::io;
use std::path::{Path, PathBuf};

/// Windows for which a trial, which needs BPF, may make it dear: it takes 16, after ten quiet ones.
const TRIAL_WINDOWS: u32 = 40;

/// Windows in a row in which another observer would be better, before it is changed.
const LEAVE_WINDOWS: u32 = 3;
/// Below this many switches per second the first trial of retention, which needs BPF, is waited for. Above it BPF would
/// cost a fiftieth of a vCPU and more meanwhile.
const TRIAL_SWITCHES_PER_S_MAX: f64 = 150_000.0;

/// What another observer has to be told of a group.
#[derive(Debug, Default)]
struct Known {
    id: GroupId,
    /// It is this process's children, and has been from the start.
    of_owner: bool,
    roots: Vec<i32>,
    cgroup: Option<PathBuf>,
    /// The vCPUs that it is kept to, where it is.
    kept_to: Option<CpuSet>,
}

/// Sees the machine and its groups.
#[derive(Debug)]
pub(crate) struct Observing {
    observer: Observer,
    config: ObserverConfig,
    /// Whether the observer may be changed for another.
    may_change: bool,
    /// Whether BPF may take `/proc`'s place.
    may_take_bpf: bool,
    /// Windows in a row with too many threads for `/proc`.
    crowded_windows: u32,
    /// Windows in a row with too many switches for BPF.
    switching_windows: u32,
    /// [`gleaner_model::Window::at`] when the observer was changed: each observer begins at zero.
    at_zero: Nanos,
    /// In the observer's order.
    groups: Vec<Known>,
}

fn of_observe(choice: ObserverChoice) -> gleaner_observe::ObserverChoice {
    match choice {
        ObserverChoice::Auto => gleaner_observe::ObserverChoice::Auto,
        ObserverChoice::Bpf => gleaner_observe::ObserverChoice::Bpf,
        ObserverChoice::Procfs => gleaner_observe::ObserverChoice::Procfs,
    }
}

impl Observing {
    /// The best observer that `choice` allows, and why it is not BPF. `guardian` is nobody's.
    pub(crate) fn open(
        choice: ObserverChoice,
        groups_max: usize,
        guardian: Option<i32>,
        vcpus: &CpuSet,
    ) -> Result<(Self, Option<BpfRefusal>), ObserveError> {
        let config = ObserverConfig {
            excluded_pids: guardian.into_iter().collect(),
            allowed: Some(vcpus.clone()),
            groups_max,
            ..ObserverConfig::default()
        };
        let (observer, refusal) = Observer::new(of_observe(choice), &config)?;
        let observing = Self {
            observer,
            config,
            may_change: choice == ObserverChoice::Auto,
            may_take_bpf: false,
            crowded_windows: 0,
            switching_windows: 0,
            at_zero: Nanos::ZERO,
            groups: vec![Known { of_owner: true, ..Known::default() }],
        };
        Ok((observing, refusal))
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// This process is the first group's, with all that it has started.
    pub(crate) fn adopted(&mut self, root: i32) {
        self.groups.iter_mut().take(1).for_each(|group| group.roots.push(root));
        self.observer.adopted(root);
    }

    /// The guardian is another process now.
    pub(crate) fn guardian_is(&mut self, pid: i32) {
        self.config.excluded_pids = vec![pid];
        self.observer.exclude(pid);
    }

    /// A group is kept to `active`: windows tell who has bound itself to some of them.
    pub(crate) fn kept_to(&mut self, id: GroupId, active: &CpuSet) {
        let Some(place) = self.place(id) else { return };
        self.groups[place].kept_to = Some(active.clone());
        self.observer.kept_to(place, active);
    }

    fn place(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|group| group.id == id)
    }

    /// These threads yield.
    pub(crate) fn yielding_are(&mut self, yields: &[RetainCounters]) {
        if let Observer::Bpf(observer) = &mut self.observer {
            observer.set_yielding(yields);
        }
    }

    /// Zero of [`gleaner_model::Window::at`].
    pub(crate) fn start(&mut self, retained: &[RetainCounters]) -> Result<(), ObserveError> {
        self.observer.start(retained)
    }

    /// What happened since the last call.
    pub(crate) fn look(&mut self, retained: &[RetainCounters]) -> Result<Seen, ObserveError> {
        let mut seen = self.observer.look(retained)?;
        seen.machine.at += self.at_zero;
        Ok(seen)
    }

    /// Processes that run already, all of `cgroup` where there is one, are another group, the last one; false where
    /// this observer has no room for it.
    pub(crate) fn add_group(&mut self, id: GroupId, roots: &[i32], cgroup: Option<&Path>) -> bool {
        let added = self.observer.add_group(roots, cgroup);
        if added {
            let cgroup = cgroup.map(Path::to_owned);
            self.groups.push(Known { id, roots: roots.to_vec(), cgroup, ..Known::default() });
        }
        added
    }

    /// The group at this place is managed no more.
    pub(crate) fn remove_group(&mut self, group: usize) {
        if group < self.groups.len() {
            self.groups.remove(group);
        }
        self.observer.remove_group(group);
    }

    /// Another process belongs to the group at this place.
    pub(crate) fn joined(&mut self, group: usize, pid: i32) {
        self.groups.iter_mut().skip(group).take(1).for_each(|group| group.roots.push(pid));
        self.observer.joined(group, pid);
    }

    /// Whether another observer may take this one's place.
    pub(crate) fn may_leave_bpf(&self) -> bool {
        self.may_change && self.observer.source() == Source::Bpf
    }

    /// `/proc` was chosen because it costs no switch anything: where it costs more, BPF may take its place.
    pub(crate) fn may_take_bpf(&mut self) {
        self.may_take_bpf = self.observer.source() == Source::Procfs;
    }

    /// How many threads there are, once they have been too many for `/proc` for long enough, and do not switch so often
    /// that BPF would be left again.
    pub(crate) fn too_crowded(&mut self, all: &Together, params: &GuestParams) -> Option<u64> {
        let threads = all.threads;
        let is_crowded = self.may_take_bpf
            && threads > params.procfs_threads_max
            && all.switches_per_s < params.bpf_switches_per_s_max / 2.0;
        self.crowded_windows = if is_crowded { self.crowded_windows + 1 } else { 0 };
        if self.crowded_windows < LEAVE_WINDOWS {
            return None;
        }
        self.crowded_windows = 0;
        // Once: it costs a look at all threads, and whoever leaves BPF again had a reason.
        self.may_take_bpf = false;
        Some(threads)
    }

    /// The threads of a group that are alive now.
    pub(crate) fn threads_of(&mut self, id: GroupId) -> Vec<i32> {
        self.place(id).map(|place| self.threads_at(place)).unwrap_or_default()
    }

    /// Those of the group at this place.
    pub(crate) fn threads_at(&mut self, place: usize) -> Vec<i32> {
        if self.groups.len() == 1 {
            return self.observer.threads();
        }
        let tasks = |pid: &i32| numbered(&ProcRoot::default().proc.join(format!("{pid}/task"))).collect::<Vec<i32>>();
        self.observer.processes(place).iter().flat_map(tasks).collect()
    }

    /// What tells of bursts; `None` where this observer cannot.
    pub(crate) fn burst_signal(&self) -> Option<io::Result<BurstSignal>> {
        match &self.observer {
            Observer::Bpf(observer) => observer.tells_bursts().then(|| observer.burst_signal()),
            Observer::Procfs(_) => None,
        }
    }

    /// Bursts of the group at this place are told, or no more. False: this observer cannot.
    pub(crate) fn watch_bursts(&mut self, group: usize, watch: Option<&BurstWatch>) -> bool {
        self.observer.watch_bursts(group, watch)
    }

    /// The burst of the group at this place, once.
    pub(crate) fn take_burst(&mut self, group: usize) -> Option<Burst> {
        let burst = self.observer.take_burst(group)?;
        Some(Burst { at: burst.at + self.at_zero, ..burst })
    }

    /// The time on the clock of windows.
    pub(crate) fn now(&self) -> Nanos {
        self.observer.now() + self.at_zero
    }

    /// How many switches a second BPF slows down, once they have been too many for long enough. `trial`: somebody needs
    /// what only BPF sees.
    pub(crate) fn too_dear(&mut self, all: &Together, trial: bool, params: &GuestParams) -> Option<f64> {
        let per_s = all.switches_per_s;
        let is_dear = self.may_leave_bpf() && per_s > params.bpf_switches_per_s_max;
        self.switching_windows = if is_dear { self.switching_windows + 1 } else { 0 };
        let waits_for_trial = trial && per_s < TRIAL_SWITCHES_PER_S_MAX;
        let windows = if waits_for_trial { TRIAL_WINDOWS } else { LEAVE_WINDOWS };
        if self.switching_windows < windows {
            return None;
        }
        self.switching_windows = 0;
        Some(per_s)
    }

    /// Another observer, to take this one's place.
    pub(crate) fn other(&self, choice: ObserverChoice) -> Result<Observer, ObserveError> {
        Ok(Observer::new(of_observe(choice), &self.config)?.0)
    }

    /// Goes on with `observer` from `at` on. False: it has no room for all groups, and everything stays.
    pub(crate) fn change_to(
        &mut self,
        mut observer: Observer,
        at: Nanos,
        retained: &[RetainCounters],
    ) -> Result<bool, ObserveError> {
        if !self.groups.first().is_some_and(|group| group.of_owner) {
            observer.remove_group(0);
        }
        for (place, group) in self.groups.iter().enumerate() {
            if group.of_owner {
                group.roots.iter().for_each(|root| observer.adopted(*root));
            } else {
                // The first ones may have ended, and those that they started go on.
                if !observer.add_group(&self.observer.processes(place), group.cgroup.as_deref()) {
                    return Ok(false);
                }
            }
        }
        for (place, group) in self.groups.iter().enumerate() {
            group.kept_to.iter().for_each(|active| observer.kept_to(place, active));
        }
        observer.start(retained)?;
        std::mem::replace(&mut self.observer, observer).retire();
        self.at_zero = at;
        // Whoever took BPF may leave it.
        self.may_change = true;
        Ok(true)
    }

    /// It stays what it is.
    pub(crate) fn change_no_more(&mut self) {
        self.may_change = false;
    }
}

/// What all groups did together in a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together {
    pub(crate) at: Nanos,
    threads: u64,
    switches_per_s: f64,
}

impl Together {
    pub(crate) fn of(seen: &Seen) -> Self {
        let switches = |group: &SeenGroup| group.group.voluntary_switches + group.group.involuntary_switches;
        let switches: u64 = seen.groups.iter().map(switches).sum();
        Self {
            at: seen.machine.at,
            threads: seen.groups.iter().map(|group| group.group.threads).sum(),
            switches_per_s: switches as f64 / seen.machine.length.as_secs_f64().max(1e-9),
        }
    }
}
