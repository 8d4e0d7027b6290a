//! The threads of a process tree, found through `/proc` and kept in bounded memory.
//!
//! Looking for new threads costs far more than reading known ones. `/proc/stat` counts every process and thread ever
//! created (`processes`), so as long as that stands still nobody looks. A thread that exits leaves its last counts in
//! the sums: nothing ever counts backwards.
//!
//! A process' own clock is asked first: where that stands still none of its threads has run, and none is read.

use super::thread::{Counts, FileBudget, Thread};
use gleaner_model::Nanos;
use gleaner_sys::{children_of_all, numbered};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Threads tracked at most, as many as the BPF observer's map holds.
pub(super) const MAX_THREADS: usize = 16_384;

/// CPU time of a process; `None` where processes have no clock: in a fixture tree.
pub(super) type Clock = Option<fn(i32) -> Option<Nanos>>;

#[derive(Debug, Default)]
struct Process {
    /// Task directories by thread id.
    threads: BTreeMap<i32, (PathBuf, Thread)>,
    /// CPU time of the process as its own clock last had it: exited threads included, exact to the nanosecond.
    clock_ns: Option<u64>,
    /// What its threads have counted together.
    sums: Counts,
    /// Since it last ran: one of how many of its threads is read in a window, and in how many windows still.
    turns: Turns,
    /// Whether it ran since its threads and children were last looked for.
    ran: bool,
}

/// A pass over a process' threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turns {
    /// All have been read since it ran.
    #[default]
    Over,
    /// It has run.
    Due,
    Left {
        stride: usize,
        left: usize,
    },
}

/// Threads read in one window, as long as no thread waits for more than [`MAX_STRIDE`] windows. Sixty-four busy threads
/// would cost half a per cent of a CPU at ten windows a second if all were read in each.
const READ_PER_WINDOW: usize = 32;
/// Each thread that ran is read at least in every fourth window: its switches come late by no more ...
const MAX_STRIDE: usize = 4;
/// ... unless so many threads ran, of all groups: then no more are read in a window than this.
const CROWD: usize = 1_024;
const READ_OF_CROWD: usize = 64;

impl Turns {
    /// The stride of this window, if there is something to read; `stride`: of a pass that begins.
    fn next(&mut self, stride: usize) -> Option<usize> {
        let (stride, left) = match *self {
            Self::Over => return None,
            Self::Due => (stride, stride),
            Self::Left { stride, left } => (stride, left),
        };
        *self = if left <= 1 { Self::Over } else { Self::Left { stride, left: left - 1 } };
        Some(stride)
    }
}

/// In which part of windows each thread is read, of `due` in one group and `all` in all of them.
pub(super) fn stride(due: usize, all: usize) -> usize {
    if all > CROWD { all.div_ceil(READ_OF_CROWD) } else { due.div_ceil(READ_PER_WINDOW).clamp(1, MAX_STRIDE) }
}

/// What the last update found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub threads: u64,
    /// Threads first seen since the last call.
    pub new_threads: u64,
    /// Threads that were there at the last call and are no more.
    pub exited: u64,
    /// CPU time and switches of all of them since the beginning, exited ones included.
    pub counts: Counts,
}

/// A set of process trees.
#[derive(Debug)]
pub(super) struct Tracker {
    proc: PathBuf,
    /// Whether to follow children, and not only the threads of the processes named.
    descend: bool,
    clock: Clock,
    /// Whether the kernel has `children` files (`CONFIG_PROC_CHILDREN`).
    has_children: bool,
    budget: FileBudget,
    processes: BTreeMap<i32, Process>,
    /// Threads in all of them.
    tracked: usize,
    gone: Counts,
    new_threads: u64,
    exited: u64,
    /// Threads seen and not tracked because there were too many.
    pub untracked: u64,
    /// Counts updates, so that threads take turns in being read.
    turn: usize,
    buffer: Vec<u8>,
}

impl Tracker {
    pub fn new(proc: &Path, descend: bool, clock: Clock, has_children: bool, files: usize) -> Self {
        Self {
            proc: proc.to_owned(),
            descend,
            clock,
            has_children,
            budget: FileBudget { open: 0, limit: files },
            processes: BTreeMap::new(),
            tracked: 0,
            gone: Counts::default(),
            new_threads: 0,
            exited: 0,
            untracked: 0,
            turn: 0,
            buffer: Vec::new(),
        }
    }

    pub fn thread_ids(&self) -> impl Iterator<Item = i32> + '_ {
        self.processes.values().flat_map(|process| process.threads.keys().copied())
    }

    pub fn process_ids(&self) -> impl Iterator<Item = i32> + '_ {
        self.processes.keys().copied()
    }

    pub fn open_files(&self) -> usize {
        self.budget.open
    }

    /// Looks for new threads and processes below the known ones and `roots`, not below those of `without`. Unless `all`
    /// are asked, threads that have not run since are taken to have no new child.
    pub fn discover(&mut self, roots: impl IntoIterator<Item = i32>, without: &[i32], all: bool) {
        let mut seen: BTreeSet<i32> = roots.into_iter().chain(self.processes.keys().copied()).collect();
        seen.retain(|pid| !without.contains(pid));
        let mut pending: Vec<i32> = seen.iter().copied().collect();
        seen.extend(without);
        let by_parent = if self.descend && !self.has_children { children_of_all(&self.proc) } else { BTreeMap::new() };
        while let Some(pid) = pending.pop() {
            let rested = self.processes.get(&pid).is_some_and(|process| process.clock_ns.is_some() && !process.ran);
            if rested && !all || !self.list_threads(pid) {
                continue;
            }
            let mut found = if self.descend { self.children_of(pid, all) } else { Vec::new() };
            found.extend(by_parent.get(&pid).into_iter().flatten());
            // Each process is visited once, and there are no more than threads tracked.
            pending.extend(found.into_iter().filter(|child| seen.len() < MAX_THREADS && seen.insert(*child)));
        }
    }

    /// Brings the threads of one process up to date with its task directory; false when the process is gone. Dead
    /// threads are forgotten by [`Self::update`] just before, so where the number is right there is no new one either.
    fn list_threads(&mut self, pid: i32) -> bool {
        let tasks = self.proc.join(pid.to_string()).join("task");
        if self.processes.get(&pid).is_some_and(|process| thread_count(&tasks) == Some(process.threads.len())) {
            return true;
        }
        let listed: BTreeSet<i32> = numbered(&tasks).collect();
        if listed.is_empty() {
            self.forget_process(pid);
            return false;
        }
        let dead: Vec<i32> = self.processes.get(&pid).map_or_else(Vec::new, |process| {
            process.threads.keys().filter(|tid| !listed.contains(tid)).copied().collect()
        });
        for tid in dead {
            self.forget_thread(pid, tid);
        }
        let clock = self.clock;
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            clock_ns: clock.and_then(|clock| clock(pid)).map(|time| time.0),
            ran: true,
            ..Process::default()
        });
        for tid in listed {
            if process.threads.contains_key(&tid) {
                continue;
            }
            if self.tracked >= MAX_THREADS {
                self.untracked += 1;
                continue;
            }
            let task = tasks.join(tid.to_string());
            if let Some(thread) = Thread::open(&task, &mut self.budget, &mut self.buffer) {
                process.sums.add(thread.counts);
                process.threads.insert(tid, (task, thread));
                self.new_threads += 1;
                self.tracked += 1;
            }
        }
        true
    }

    /// The child processes of one known process, whichever way this kernel tells.
    pub fn children_of_or_scan(&mut self, pid: i32) -> Vec<i32> {
        if self.has_children {
            return self.children_of(pid, true);
        }
        children_of_all(&self.proc).remove(&pid).unwrap_or_default()
    }

    /// The child processes of one process, which hang on its threads.
    fn children_of(&mut self, pid: i32, all: bool) -> Vec<i32> {
        if !self.has_children {
            return Vec::new();
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Vec::new() };
        process.ran = false;
        let mut found = Vec::new();
        for (task, thread) in process.threads.values_mut() {
            thread.children(all, task, &mut self.buffer, &mut found);
        }
        found
    }

    /// Asks the clock of every known process; says of how many threads something is to be read. CPU time is exact
    /// whatever is read next, because it is the process's.
    pub fn ask_clocks(&mut self) -> usize {
        let mut dead = Vec::new();
        for (pid, process) in &mut self.processes {
            let clock = self.clock.map(|clock| clock(*pid));
            match clock {
                // All its threads are dead.
                Some(None) => dead.extend(process.threads.keys().map(|tid| (*pid, *tid))),
                Some(Some(time)) if process.clock_ns == Some(time.0) => {}
                Some(Some(Nanos(time))) => {
                    (process.clock_ns, process.ran, process.turns) = (Some(time), true, Turns::Due);
                }
                None => (process.ran, process.turns) = (true, Turns::Due),
            }
        }
        for (pid, tid) in dead {
            self.forget_thread(pid, tid);
        }
        self.due()
    }

    /// Threads of the processes that ran, and of which not all have been read since.
    fn due(&self) -> usize {
        let due = self.processes.values().filter(|process| process.turns != Turns::Over);
        due.map(|process| process.threads.len()).sum()
    }

    /// Reads the threads that are due, one of `stride`: they take turns. Switches of a thread that was passed over come
    /// with the window that reads it.
    pub fn read_threads(&mut self, stride: usize) {
        let stride = if self.clock.is_some() { stride.max(1) } else { 1 };
        self.turn = self.turn.wrapping_add(1);
        let mut dead = Vec::new();
        for (pid, process) in &mut self.processes {
            let Some(stride) = process.turns.next(stride) else { continue };
            // Each thread's turn comes once in so many windows, whoever else is read.
            let mut place = self.turn.wrapping_add(pid.unsigned_abs() as usize);
            for (tid, (task, thread)) in &mut process.threads {
                place = place.wrapping_add(1);
                let before = thread.counts;
                if !place.is_multiple_of(stride) {
                    thread.pass_over();
                } else if thread.update(task, &mut self.buffer) {
                    process.sums.replace(before, thread.counts);
                } else {
                    dead.push((*pid, *tid));
                }
            }
        }
        for (pid, tid) in dead {
            self.forget_thread(pid, tid);
        }
    }

    /// What is known now, and what came and went since the last call.
    pub fn census(&mut self) -> Census {
        let mut census = Census {
            new_threads: std::mem::take(&mut self.new_threads),
            exited: std::mem::take(&mut self.exited),
            counts: self.gone,
            ..Census::default()
        };
        for process in self.processes.values() {
            census.threads += process.threads.len() as u64;
            let mut counts = process.sums;
            if let Some(clock) = process.clock_ns {
                counts.run_ns = clock;
            }
            census.counts.add(counts);
        }
        census
    }

    fn forget_thread(&mut self, pid: i32, tid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some((_, thread)) = process.threads.remove(&tid) else { return };
        let empty = process.threads.is_empty();
        let mut counts = thread.counts;
        process.sums.replace(counts, Counts::default());
        if process.clock_ns.is_some() {
            // The process's clock goes on counting what its exited threads ran.
            counts.run_ns = 0;
        }
        self.gone.add(counts);
        self.exited += 1;
        self.tracked -= 1;
        thread.close(&mut self.budget);
        if empty {
            self.forget_process(pid);
        }
    }

    fn forget_process(&mut self, pid: i32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.gone.run_ns += process.clock_ns.unwrap_or(0);
        for (_, (_, thread)) in process.threads {
            let mut counts = thread.counts;
            if process.clock_ns.is_some() {
                counts.run_ns = 0;
            }
            self.gone.add(counts);
            self.exited += 1;
            self.tracked -= 1;
            thread.close(&mut self.budget);
        }
    }
}

/// How many threads a task directory has: its links less `.` and the entry in its parent. Far cheaper than listing it.
fn thread_count(tasks: &Path) -> Option<usize> {
    usize::try_from(fs::metadata(tasks).ok()?.nlink()).ok()?.checked_sub(2)
}
