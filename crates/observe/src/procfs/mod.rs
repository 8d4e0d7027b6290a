//! The observer that needs no privilege: `/proc` and nothing else.
//!
//! Problem: the paper's T_work, T_yield, S_work and S_yield, and from them l_comp, g_comp and l_idle, for somebody who
//! may not load BPF programs; at ten windows a second, with 64 threads, for half a percent of one CPU.
//!
//! What comes from where:
//!
//! - *The group* is everything below the root process: its descendants by `/proc/PID/task/TID/children`, and, because
//!   `gleaner` makes itself a child subreaper, its orphans as children of the owner. See `tracker`.
//! - *CPU time* (T_work): the processes' own CPU clocks; `schedstat` in a fixture tree.
//! - *Switches* (S_work): `status` of each thread.
//! - *Idle, steal*: `/proc/stat`, in ticks of 10 ms. Busy is what is left of the window.
//! - *Retained* (T_yield): the yielding threads' own counters.
//!
//! # Idle periods without privilege
//!
//! Every context switch goes away from somebody. If it is a task, the kernel counts it there (`voluntary` or
//! `nonvoluntary_ctxt_switches`); if it is an idle task, nobody shows it. `ctxt` in `/proc/stat` counts all of them:
//!
//! ```text
//! idle exits = ctxt - switches of the group - of the owner's threads (the yielding ones among them) - of all others
//! ```
//!
//! An idle task that was entered is left again, so over a window *halts* = idle exits, to within one a vCPU.
//! An *idle period* ends when a working task follows the idle task or a yielding thread. Of the idle exits, those to a
//! yielding thread whose nap ended on an idle vCPU (`idle_naps`) end none; one whose nap ended while another task
//! worked waits until that is done, leaves no idle task, and is not counted there. Periods that end without an idle
//! exit are those in which a working task displaced the yielding thread (`displaced`):
//!
//! ```text
//! idle periods = idle exits - idle_naps + displaced
//!
//!   work  yield            work     exits 0, displaced 1            = 1
//!   work  yield   idle     work     exits 1                         = 1
//!   work  idle    yield    work     exits 1, naps 1, displaced 1    = 1
//!   work  idle  yield idle work     exits 2, naps 1                 = 1
//!   work (nap ends) yield  work     exits 0, displaced 1            = 1
//!   idle  work  idle yield work     exits 2, naps 1, displaced 1    = 2
//! ```
//!
//! In the last line work came and went within one nap: the yielding thread never knew, the count is right.
//!
//! What is not known errs upwards: a switch away from a task outside the group and the owner, and those that a thread
//! made between its last reading and its death. For each such death, and for each thread that came and went unseen, one
//! switch is subtracted: the one every thread makes at its end.

mod managed;
mod thread;
mod tracker;

use crate::ObserveError;
use crate::config::ObserverConfig;
use crate::cpuidle::IdleSplitter;
use crate::seen::{Seen, SeenGroup};
use crate::system::{PresentReader, open_stat, split};
use gleaner_model::{CpuSet, GroupWindow, Nanos, RetainCounters, Source, VcpuId, VcpuWindow, Window};
use gleaner_sys::{Limit, OwnProc, ProcRoot, StatReader, SystemStat, own_proc, process_cpu_time, thread_cpu_time};
use managed::Managed;
use std::collections::BTreeMap;
use std::time::Instant;
use tracker::{Census, Clock, Tracker, stride};

/// How often all threads are asked for children although none was created, so that a missed one is found all the same.
/// With more groups than this it takes as many windows as there are groups.
const RESCAN_EVERY_WINDOWS: usize = 32;
/// Files kept open at most; three a thread.
const MAX_OPEN_FILES: u64 = 2048;

/// Cumulative counters at one moment.
#[derive(Clone, Debug)]
struct Snapshot {
    taken: Instant,
    stat: SystemStat,
    /// As [`ProcfsObserver::groups`].
    groups: Vec<Census>,
    known: Census,
    yields: BTreeMap<VcpuId, RetainCounters>,
}

/// The observer that reads `/proc`. See the module's text.
#[derive(Debug)]
pub struct ProcfsObserver {
    owner: i32,
    excluded: Vec<i32>,
    stat: StatReader,
    present: PresentReader,
    /// The managed groups: the owner's children, until there are others.
    groups: Vec<Managed>,
    has_children: bool,
    clock: Clock,
    /// Files that all groups together may keep open.
    files: usize,
    /// The owner and its helpers: not managed, but their switches are known.
    known: Tracker,
    started: Instant,
    root: ProcRoot,
    idle: IdleSplitter,
    last: Option<Snapshot>,
    /// `processes` of `/proc/stat` when threads were last looked for.
    forks_seen: Option<u64>,
    windows_since_scan: usize,
    cost: Nanos,
}

impl ProcfsObserver {
    /// Opens what stays open.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read, or `/proc` is not this process's: then its numbers are those of others.
    pub fn new(config: &ObserverConfig) -> Result<Self, ObserveError> {
        let root = &config.root;
        if root.is_live() && own_proc(root) == OwnProc::Foreign {
            return Err(ObserveError::OtherProc { path: root.proc.clone() });
        }
        let owner = config.owner_pid;
        let has_children = root.proc.join(format!("{owner}/task/{owner}/children")).exists();
        let soft_limit = Limit::OPEN_FILES.now().0;
        let files = usize::try_from((soft_limit / 2).min(MAX_OPEN_FILES)).unwrap_or(0);
        // Made-up processes have none.
        let clock = config.process_clock.or_else(|| root.is_live().then_some(process_cpu_time as _));
        let threads = Tracker::new(&root.proc, true, clock, has_children, files);
        Ok(Self {
            stat: open_stat(root)?,
            present: PresentReader::open(root, config.allowed.clone())?,
            groups: vec![Managed::new(threads, config.roots.clone(), true)],
            has_children,
            files,
            known: Tracker::new(&root.proc, false, clock, has_children, files / 8),
            clock,
            owner,
            excluded: config.excluded_pids.clone(),
            started: Instant::now(),
            root: root.clone(),
            idle: IdleSplitter::default(),
            last: None,
            forks_seen: None,
            windows_since_scan: 0,
            cost: Nanos::ZERO,
        })
    }

    /// Never treat this process, a helper of the owner's, as managed.
    pub fn exclude(&mut self, pid: i32) {
        self.excluded.push(pid);
    }

    /// The managed program's first process.
    pub fn adopted(&mut self, root_pid: i32) {
        self.joined(0, root_pid);
    }

    /// See [`crate::Observer::joined`].
    pub fn joined(&mut self, group: usize, pid: i32) {
        if let Some(group) = self.groups.get_mut(group) {
            group.roots.push(pid);
            self.forks_seen = None;
        }
    }

    /// See [`crate::Observer::add_group`].
    pub fn add_group(&mut self, roots: &[i32]) {
        // Half of what is left: there is always something for the next one.
        let files = self.files.saturating_sub(self.open_files()) / 2;
        let threads = Tracker::new(&self.root.proc, true, self.clock, self.has_children, files);
        let mut group = Managed::new(threads, roots.to_vec(), false);
        group.discover(&[], &self.nobodys(), true);
        group.threads.ask_clocks();
        group.threads.read_threads(1);
        if let Some(last) = &mut self.last {
            last.groups.push(group.beginning());
        }
        self.groups.push(group);
    }

    /// See [`crate::Observer::remove_group`].
    pub fn remove_group(&mut self, group: usize) {
        if group < self.groups.len() {
            self.groups.remove(group);
            if let Some(last) = &mut self.last {
                last.groups.remove(group);
            }
        }
    }

    /// The processes of the group at this place, as of the last window.
    pub fn processes(&self, group: usize) -> Vec<i32> {
        self.groups.get(group).map(|group| group.threads.process_ids().collect()).unwrap_or_default()
    }

    /// The time on the clock of windows.
    pub fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    fn nobodys(&self) -> Vec<i32> {
        std::iter::once(self.owner).chain(self.excluded.iter().copied()).collect()
    }

    /// Zero of [`Window::at`]; what happened before is not in the next window.
    pub fn start(&mut self, yields: &[RetainCounters]) -> Result<(), ObserveError> {
        self.last = Some(self.snapshot(yields)?);
        self.started = Instant::now();
        let mut vcpus: Vec<_> = self.present.read()?.usable.iter().map(VcpuWindow::new).collect();
        self.idle.split(&self.root, yields, &mut vcpus);
        Ok(())
    }

    /// The same of the first group.
    ///
    /// # Errors
    /// As [`Self::look`], or when there is no group.
    pub fn window(&mut self, yields: &[RetainCounters]) -> Result<Window, ObserveError> {
        self.look(yields)?.take(0).ok_or(ObserveError::NoGroup)
    }

    /// What happened since the last call, or since [`Self::start`]: a window for each group, in their order.
    pub fn windows(&mut self, yields: &[RetainCounters]) -> Result<Vec<Window>, ObserveError> {
        self.look(yields).map(Seen::into_windows)
    }

    /// What happened since the last call, or since [`Self::start`].
    ///
    /// # Errors
    /// When `/proc/stat` or the list of online CPUs cannot be read. Threads that vanish are no error.
    pub fn look(&mut self, yields: &[RetainCounters]) -> Result<Seen, ObserveError> {
        let cpu_before = thread_cpu_time();
        let present = self.present.read()?.usable;
        let Some(last) = self.last.take() else {
            self.start(yields)?;
            return self.look(yields);
        };
        let now = self.snapshot(yields);
        let now = now.inspect_err(|_| self.last = Some(last.clone()))?;
        let length = Nanos::from(now.taken - last.taken);
        let exits = idle_exits(&last, &now);
        let mut vcpus: Vec<_> = present.iter().map(|id| vcpu_window(id, length, &last, &now)).collect();
        let by_cpuidle = self.idle.split(&self.root, yields, &mut vcpus);
        let held = change(&last, &now, |counters| counters.polls_held);
        let machine = Window {
            at: Nanos::from(now.taken.saturating_duration_since(self.started)),
            length,
            source: Source::Procfs,
            vcpus,
            idle_entries: Some(idle_periods(exits, &last, &now)),
            halts: Some(by_cpuidle.map_or(exits, |halts| halts.min(exits)).saturating_sub(held)),
            group: GroupWindow::default(),
        };
        let changes = last.groups.iter().zip(&now.groups);
        let groups = self.groups.iter_mut().zip(changes).map(|(group, (from, to))| {
            let quiet = from.counts == to.counts && to.new_threads == 0 && to.exited == 0;
            let threads = || group.threads.thread_ids().collect();
            let pinned = if quiet { group.bound.found() } else { group.bound.window(threads) };
            SeenGroup { quiet, group: group_window(from, to, pinned), work: None }
        });
        let groups = groups.collect();
        self.last = Some(now);
        self.cost = thread_cpu_time() - cpu_before;
        Ok(Seen { machine, groups })
    }

    /// See [`crate::Observer::kept_to`].
    pub fn kept_to(&mut self, group: usize, active: &CpuSet) {
        self.groups.iter_mut().skip(group).take(1).for_each(|group| group.bound.kept_to(active));
    }

    /// CPU time that the last window cost the calling thread.
    pub fn last_cost(&self) -> Nanos {
        self.cost
    }

    /// The managed threads as of the last window.
    pub fn threads(&mut self) -> Vec<i32> {
        if let Ok(stat) = self.stat.read() {
            self.look_for_threads(stat.forks);
        }
        self.groups.iter().flat_map(|group| group.threads.thread_ids()).collect()
    }

    /// Threads that were seen and not tracked, because there were too many.
    pub fn untracked(&self) -> u64 {
        self.groups.iter().map(|group| group.threads.untracked).sum()
    }

    /// Files of `/proc` kept open.
    pub fn open_files(&self) -> usize {
        let of_groups: usize = self.groups.iter().map(|group| group.threads.open_files()).sum();
        of_groups + self.known.open_files()
    }

    fn snapshot(&mut self, yields: &[RetainCounters]) -> Result<Snapshot, ObserveError> {
        let taken = Instant::now();
        let stat = self.stat.read()?;
        let due: Vec<usize> = self.groups.iter_mut().map(|group| group.threads.ask_clocks()).collect();
        let all = due.iter().sum();
        let groups = self.groups.iter_mut().zip(due);
        groups.for_each(|(group, due)| group.threads.read_threads(stride(due, all)));
        let due = self.known.ask_clocks();
        self.known.read_threads(stride(due, due));
        self.look_for_threads(stat.forks);
        Ok(Snapshot {
            taken,
            stat,
            groups: self.groups.iter_mut().map(|group| group.threads.census()).collect(),
            known: self.known.census(),
            yields: yields.iter().filter_map(|counters| Some((counters.vcpu?, *counters))).collect(),
        })
    }

    /// Where something was created; and in any case at one group after the other, so that all are asked now and then.
    fn look_for_threads(&mut self, forks: u64) {
        let round = self.groups.len().max(RESCAN_EVERY_WINDOWS);
        self.windows_since_scan = (self.windows_since_scan + 1) % round;
        let one = self.windows_since_scan;
        let created = self.forks_seen.replace(forks) != Some(forks);
        if !created && one >= self.groups.len() {
            return;
        }
        let nobodys = self.nobodys();
        self.known.discover(nobodys.iter().copied(), &[], true);
        let mut children = self.known.children_of_or_scan(self.owner);
        children.retain(|pid| !self.excluded.contains(pid));
        for (place, group) in self.groups.iter_mut().enumerate() {
            if created || place == one {
                group.discover(&children, &nobodys, place == one);
            }
        }
    }
}

/// Times an idle task was left between the two. See the module's text.
fn idle_exits(last: &Snapshot, now: &Snapshot) -> u64 {
    let ctxt = now.stat.context_switches.saturating_sub(last.stat.context_switches);
    let switches = |(from, to): (&Census, &Census)| to.counts.switches().saturating_sub(from.counts.switches());
    let all = || now.groups.iter().chain([&now.known]);
    let known: u64 = last.groups.iter().chain([&last.known]).zip(all()).map(switches).sum();
    let exited: u64 = all().map(|census| census.exited).sum();
    let born: u64 = all().map(|census| census.new_threads).sum();
    let unseen = now.stat.forks.saturating_sub(last.stat.forks).saturating_sub(born);
    ctxt.saturating_sub(known + exited + unseen)
}

fn idle_periods(idle_exits: u64, last: &Snapshot, now: &Snapshot) -> u64 {
    let change = |count| change(last, now, count);
    (idle_exits + change(|yields| yields.displaced)).saturating_sub(change(|yields| yields.idle_naps))
}

/// By how much a counter of the means of retention rose, on all vCPUs together.
fn change(last: &Snapshot, now: &Snapshot, count: fn(&RetainCounters) -> u64) -> u64 {
    now.yields.iter().map(|(id, to)| count(to).saturating_sub(last.yields.get(id).map_or(0, count))).sum()
}

fn vcpu_window(id: VcpuId, length: Nanos, last: &Snapshot, now: &Snapshot) -> VcpuWindow {
    // A vCPU that came online during the window has no earlier times: nothing is known of it yet but that it is there.
    let (Some(from), Some(to)) = (last.stat.cpu(id), now.stat.cpu(id)) else { return VcpuWindow::new(id) };
    let retained = |snapshot: &Snapshot| snapshot.yields.get(&id).map_or(Nanos::ZERO, |yields| yields.retained);
    let displaced = now
        .yields
        .get(&id)
        .map(|to| to.displaced.saturating_sub(last.yields.get(&id).map_or(0, |from| from.displaced)));
    VcpuWindow {
        yield_switches: displaced,
        ..split(id, length, to.steal - from.steal, retained(now) - retained(last), to.idle - from.idle)
    }
}

fn group_window(last: &Census, now: &Census, pinned: CpuSet) -> GroupWindow {
    GroupWindow {
        pinned,
        progress: None,
        system_calls: None,
        threads: now.threads,
        new_threads: now.new_threads,
        execs: None,
        cpu_time: Nanos(now.counts.run_ns.saturating_sub(last.counts.run_ns)),
        waited: Some(Nanos(now.counts.waited_ns.saturating_sub(last.counts.waited_ns))),
        voluntary_switches: now.counts.voluntary.saturating_sub(last.counts.voluntary),
        involuntary_switches: now.counts.involuntary.saturating_sub(last.counts.involuntary),
        g_comp: None,
        wake_to_run: None,
    }
}
