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

mod thread;
mod tracker;

use crate::ObserveError;
use crate::bound::BoundThreads;
use crate::cpuidle::IdleSplitter;
use crate::observer::ObserverConfig;
use crate::system::{PresentReader, open_stat, split};
use gleaner_model::{CpuSet, GroupWindow, Nanos, RetainCounters, Source, VcpuId, VcpuWindow, Window};
use gleaner_sys::{Limit, OwnProc, ProcRoot, StatReader, SystemStat, own_proc, thread_cpu_time};
use std::collections::BTreeMap;
use std::time::Instant;
use tracker::{Census, Tracker};

/// How often all threads are asked for children although none was created, so that a missed one is found all the same.
const RESCAN_EVERY_WINDOWS: u32 = 32;
/// Files kept open at most; three a thread.
const MAX_OPEN_FILES: u64 = 2048;

/// Cumulative counters at one moment.
#[derive(Clone, Debug)]
struct Snapshot {
    taken: Instant,
    stat: SystemStat,
    group: Census,
    known: Census,
    yields: BTreeMap<VcpuId, RetainCounters>,
}

/// The observer that reads `/proc`. See the module's text.
#[derive(Debug)]
pub struct ProcfsObserver {
    owner: i32,
    excluded: Vec<i32>,
    roots: Vec<i32>,
    stat: StatReader,
    present: PresentReader,
    /// The managed threads.
    group: Tracker,
    /// The owner and its helpers: not managed, but their switches are known.
    known: Tracker,
    started: Instant,
    root: ProcRoot,
    idle: IdleSplitter,
    bound: BoundThreads,
    last: Option<Snapshot>,
    /// `processes` of `/proc/stat` when threads were last looked for.
    forks_seen: Option<u64>,
    windows_since_scan: u32,
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
        Ok(Self {
            stat: open_stat(root)?,
            present: PresentReader::open(root, config.allowed.clone())?,
            group: Tracker::new(&root.proc, true, root.is_live(), has_children, files),
            known: Tracker::new(&root.proc, false, root.is_live(), has_children, files / 8),
            owner,
            excluded: config.excluded_pids.clone(),
            roots: config.roots.clone(),
            started: Instant::now(),
            root: root.clone(),
            idle: IdleSplitter::default(),
            bound: BoundThreads::default(),
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
        self.roots.push(root_pid);
        self.forks_seen = None;
    }

    /// Zero of [`Window::at`]; what happened before is not in the next window.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read.
    pub fn start(&mut self, yields: &[RetainCounters]) -> Result<(), ObserveError> {
        self.last = Some(self.snapshot(yields)?);
        self.started = Instant::now();
        let mut vcpus: Vec<_> = self.present.read()?.iter().map(VcpuWindow::new).collect();
        self.idle.split(&self.root, yields, &mut vcpus);
        Ok(())
    }

    /// What happened since the last call, or since [`Self::start`].
    ///
    /// # Errors
    /// When `/proc/stat` or the list of online CPUs cannot be read. Threads that vanish are no error.
    pub fn window(&mut self, yields: &[RetainCounters]) -> Result<Window, ObserveError> {
        let cpu_before = thread_cpu_time();
        let Some(last) = self.last.take() else {
            self.start(yields)?;
            return self.window(yields);
        };
        let now = self.snapshot(yields);
        let now = now.inspect_err(|_| self.last = Some(last.clone()))?;
        let present = self.present.read()?;
        let length = Nanos::from(now.taken - last.taken);
        let exits = idle_exits(&last, &now);
        let mut vcpus: Vec<_> = present.iter().map(|id| vcpu_window(id, length, &last, &now)).collect();
        let by_cpuidle = self.idle.split(&self.root, yields, &mut vcpus);
        let held = change(&last, &now, |counters| counters.polls_held);
        let pinned = self.bound.window(|| self.group.thread_ids().collect());
        let window = Window {
            at: Nanos::from(now.taken.saturating_duration_since(self.started)),
            length,
            source: Source::Procfs,
            vcpus,
            idle_entries: Some(idle_periods(exits, &last, &now)),
            halts: Some(by_cpuidle.map_or(exits, |halts| halts.min(exits)).saturating_sub(held)),
            group: group_window(&last.group, &now.group, pinned),
        };
        self.last = Some(now);
        self.cost = thread_cpu_time() - cpu_before;
        Ok(window)
    }

    /// See [`crate::Observer::kept_to`].
    pub fn kept_to(&mut self, active: &CpuSet) {
        self.bound.kept_to(active);
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
        self.group.thread_ids().collect()
    }

    /// Threads that were seen and not tracked, because there were too many.
    pub fn untracked(&self) -> u64 {
        self.group.untracked
    }

    /// Files of `/proc` kept open.
    pub fn open_files(&self) -> usize {
        self.group.open_files() + self.known.open_files()
    }

    fn snapshot(&mut self, yields: &[RetainCounters]) -> Result<Snapshot, ObserveError> {
        let taken = Instant::now();
        let stat = self.stat.read()?;
        self.group.update();
        self.known.update();
        self.look_for_threads(stat.forks);
        Ok(Snapshot {
            taken,
            stat,
            group: self.group.census(),
            known: self.known.census(),
            yields: yields.iter().filter_map(|counters| Some((counters.vcpu?, *counters))).collect(),
        })
    }

    fn look_for_threads(&mut self, forks: u64) {
        self.windows_since_scan += 1;
        let all = self.windows_since_scan >= RESCAN_EVERY_WINDOWS;
        if self.forks_seen == Some(forks) && !all {
            return;
        }
        if all {
            self.windows_since_scan = 0;
        }
        self.forks_seen = Some(forks);
        self.known.discover(std::iter::once(self.owner).chain(self.excluded.iter().copied()), true);
        let mut roots = self.known.children_of_or_scan(self.owner);
        roots.retain(|pid| !self.excluded.contains(pid));
        roots.append(&mut self.roots);
        self.group.discover(roots, all);
    }
}

/// Times an idle task was left between the two. See the module's text.
fn idle_exits(last: &Snapshot, now: &Snapshot) -> u64 {
    let ctxt = now.stat.context_switches.saturating_sub(last.stat.context_switches);
    let switches = |from: &Census, to: &Census| to.counts.switches().saturating_sub(from.counts.switches());
    let known = switches(&last.group, &now.group) + switches(&last.known, &now.known);
    let exited = now.group.exited + now.known.exited;
    let born = now.group.new_threads + now.known.new_threads;
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
        threads: now.threads,
        new_threads: now.new_threads,
        execs: None,
        cpu_time: Nanos(now.counts.run_ns.saturating_sub(last.counts.run_ns)),
        voluntary_switches: now.counts.voluntary.saturating_sub(last.counts.voluntary),
        involuntary_switches: now.counts.involuntary.saturating_sub(last.counts.involuntary),
        g_comp: None,
        wake_to_run: None,
    }
}
