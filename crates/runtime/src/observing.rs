//! The observer in use, and when it is changed for another.

use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Nanos, RetainCounters, Source, Window};
use gleaner_observe::{BpfRefusal, ObserveError, Observer, ObserverChoice, ObserverConfig};
use std::path::{Path, PathBuf};

/// What another observer has to be told of a group.
#[derive(Debug, Default)]
struct Known {
    /// It is this process's children, and has been from the start.
    of_owner: bool,
    roots: Vec<i32>,
    cgroup: Option<PathBuf>,
}

/// Sees the machine and its groups.
#[derive(Debug)]
pub(crate) struct Observing {
    observer: Observer,
    config: ObserverConfig,
    /// Whether the observer may be changed for another.
    may_change: bool,
    /// Windows in a row with too many switches for BPF.
    switching_windows: u32,
    /// [`Window::at`] when the observer was changed: each observer begins at zero.
    at_zero: Nanos,
    /// In the observer's order.
    groups: Vec<Known>,
    /// The vCPUs that they are kept to, where they are.
    kept_to: Option<CpuSet>,
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
        let (observer, refusal) = Observer::new(choice, &config)?;
        let observing = Self {
            observer,
            config,
            may_change: choice == ObserverChoice::Auto,
            switching_windows: 0,
            at_zero: Nanos::ZERO,
            groups: vec![Known { of_owner: true, ..Known::default() }],
            kept_to: None,
        };
        Ok((observing, refusal))
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The next child process is a group's first.
    pub(crate) fn adopt_next_child(&mut self) {
        self.observer.adopt_next_child();
    }

    /// That was it.
    pub(crate) fn adopted(&mut self, root: i32) {
        self.groups.iter_mut().take(1).for_each(|group| group.roots.push(root));
        self.observer.adopted(root);
    }

    /// The guardian is another process now.
    pub(crate) fn guardian_is(&mut self, pid: i32) {
        self.config.excluded_pids = vec![pid];
        self.observer.exclude(pid);
    }

    /// Groups are kept to `active`: windows tell who has bound itself to some of them.
    pub(crate) fn kept_to(&mut self, active: &CpuSet) {
        self.kept_to = Some(active.clone());
        self.observer.kept_to(active);
    }

    /// Zero of [`Window::at`].
    pub(crate) fn start(&mut self, retained: &[RetainCounters]) -> Result<(), ObserveError> {
        self.observer.start(retained)
    }

    /// What happened since the last call: a window for each group.
    pub(crate) fn windows(&mut self, retained: &[RetainCounters]) -> Result<Vec<Window>, ObserveError> {
        let mut windows = self.observer.windows(retained)?;
        for window in &mut windows {
            window.at += self.at_zero;
        }
        Ok(windows)
    }

    /// Processes that run already, all of `cgroup` where there is one, are another group, the last one; false where
    /// this observer has no room for it.
    pub(crate) fn add_group(&mut self, roots: &[i32], cgroup: Option<&Path>) -> bool {
        let added = self.observer.add_group(roots, cgroup);
        if added {
            let cgroup = cgroup.map(Path::to_owned);
            self.groups.push(Known { of_owner: false, roots: roots.to_vec(), cgroup });
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

    /// The managed threads alive now.
    pub(crate) fn threads(&mut self) -> Vec<i32> {
        self.observer.threads()
    }

    /// How many switches a second BPF slows down, once they have been too many for long enough. `trial`: somebody needs
    /// what only BPF sees.
    pub(crate) fn too_dear(&mut self, windows: &[Window], trial: bool, params: &GuestParams) -> Option<f64> {
        let switches = |window: &Window| window.group.voluntary_switches + window.group.involuntary_switches;
        let per_s = |window: &Window| switches(window) as f64 / window.length.as_secs_f64().max(1e-9);
        let per_s: f64 = windows.iter().map(per_s).sum();
        let is_dear = self.may_leave_bpf() && per_s > params.bpf_switches_per_s_max;
        self.switching_windows = if is_dear { self.switching_windows + 1 } else { 0 };
        let waits_for_trial = trial && per_s < params.bpf_trial_switches_per_s_max;
        let windows = if waits_for_trial { params.bpf_trial_windows } else { params.bpf_leave_windows };
        if self.switching_windows < windows {
            return None;
        }
        self.switching_windows = 0;
        Some(per_s)
    }

    /// An observer that reads `/proc`, to take this one's place.
    pub(crate) fn procfs(&self) -> Result<Observer, ObserveError> {
        Ok(Observer::new(ObserverChoice::Procfs, &self.config)?.0)
    }

    /// Goes on with `observer` from `at` on.
    pub(crate) fn change_to(
        &mut self,
        mut observer: Observer,
        at: Nanos,
        retained: &[RetainCounters],
    ) -> Result<(), ObserveError> {
        for (place, group) in self.groups.iter().enumerate() {
            if group.of_owner {
                group.roots.iter().for_each(|root| observer.adopted(*root));
            } else {
                // The first ones may have ended, and those that they started go on.
                observer.add_group(&self.observer.processes(place), group.cgroup.as_deref());
            }
        }
        if !self.groups.first().is_some_and(|group| group.of_owner) {
            observer.remove_group(0);
        }
        if let Some(active) = &self.kept_to {
            observer.kept_to(active);
        }
        observer.start(retained)?;
        std::mem::replace(&mut self.observer, observer).retire();
        self.at_zero = at;
        Ok(())
    }

    /// It stays what it is.
    pub(crate) fn change_no_more(&mut self) {
        self.may_change = false;
    }
}
