//! What `/proc` tells of threads: run time, waiting time, runs; who wants which CPU. Needs no privilege.
//!
//! The kernel counts a wait once it is over (`run_delay`, kernel/sched/stats.h), so a thread that starves for whole
//! windows would seem to want nothing. Such windows are counted as waited through, and taken off again when the kernel
//! counts the wait they are part of.

use super::CompetingThreads;
use crate::ProcRoot;
use crate::vmm::{ThreadCounters, ThreadStat, thread_stat};
use gleaner_model::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watched threads.
#[derive(Debug)]
pub(super) struct Threads {
    root: ProcRoot,
    /// In the order in which they were given.
    order: Vec<i32>,
    last: BTreeMap<i32, ThreadCounters>,
    /// Of a wait in progress, what has been told before the kernel counts it.
    told: BTreeMap<i32, Nanos>,
}

impl Threads {
    pub fn new(root: &ProcRoot) -> Self {
        Self { root: root.clone(), order: Vec::new(), last: BTreeMap::new(), told: BTreeMap::new() }
    }

    pub fn watch(&mut self, tids: &[i32]) {
        self.order.clear();
        for tid in tids {
            if !self.order.contains(tid) {
                self.order.push(*tid);
            }
        }
        let known = std::mem::take(&mut self.last);
        let first = |tid: i32| known.get(&tid).copied().or_else(|| self.read(tid));
        self.last = self.order.iter().filter_map(|tid| Some((*tid, first(*tid)?))).collect();
        self.told.retain(|tid, _| self.last.contains_key(tid));
    }

    fn read(&self, tid: i32) -> Option<ThreadCounters> {
        let path = self.root.proc.join(format!("{tid}/task/{tid}/schedstat"));
        ThreadCounters::parse(&std::fs::read(path).ok()?)
    }

    /// What each thread used since the last call, `length` ago; `None` for one that has ended.
    pub fn counters(&mut self, length: Nanos) -> Vec<(i32, Option<ThreadCounters>)> {
        let mut found = self.counted();
        let starved = self.starved(&found);
        for (tid, used) in found.iter_mut().filter_map(|(tid, used)| Some((*tid, used.as_mut()?))) {
            let before = self.told.remove(&tid).unwrap_or_default();
            let (new, left) = (used.wait - before, before - used.wait);
            used.wait = if starved.contains(&tid) { new.max(length) } else { new };
            let told = left + (used.wait - new);
            // Who ran is not in that wait any more.
            if used.runs == 0 && told > Nanos::ZERO {
                self.told.insert(tid, told);
            }
        }
        found
    }

    /// Those that wanted a CPU all the while and did not get it: able to run, and not run, where another of the threads
    /// did. (Without that other, one that runs on a CPU without a tick would look the same.)
    fn starved(&self, found: &[(i32, Option<ThreadCounters>)]) -> BTreeSet<i32> {
        let idle = |used: &ThreadCounters| used.run == Nanos::ZERO && used.runs == 0;
        let stat = |tid: i32| thread_stat(&self.root, tid, tid).ok().flatten();
        let idle: Vec<(i32, ThreadStat)> = found
            .iter()
            .filter(|(_, used)| used.as_ref().is_some_and(idle))
            .filter_map(|(tid, _)| Some((*tid, stat(*tid).filter(|stat| stat.state == 'R')?)))
            .collect();
        if idle.is_empty() {
            return BTreeSet::new();
        }
        let ran = found.iter().filter(|(_, used)| used.is_some_and(|used| used.run > Nanos::ZERO));
        let busy: BTreeSet<u32> = ran.filter_map(|(tid, _)| Some(stat(*tid)?.last_cpu)).collect();
        idle.into_iter().filter(|(_, stat)| busy.contains(&stat.last_cpu)).map(|(tid, _)| tid).collect()
    }

    /// What the kernel counted since the last call.
    fn counted(&mut self) -> Vec<(i32, Option<ThreadCounters>)> {
        let mut found = Vec::with_capacity(self.order.len());
        for tid in &self.order {
            let now = self.read(*tid);
            let used = now.map(|now| {
                let before = self.last.insert(*tid, now).unwrap_or(now);
                let runs = now.runs.saturating_sub(before.runs);
                ThreadCounters { run: now.run - before.run, wait: now.wait - before.wait, runs }
            });
            found.push((*tid, used));
        }
        found
    }

    /// CPUs that two or more of the threads want now.
    pub fn competing(&self) -> Vec<CompetingThreads> {
        let mut wanted: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        for tid in &self.order {
            // One that cannot be read competes with nobody.
            if let Ok(Some(stat)) = thread_stat(&self.root, *tid, *tid)
                && stat.state == 'R'
            {
                wanted.entry(stat.last_cpu).or_default().push(*tid);
            }
        }
        wanted.retain(|_, tids| tids.len() > 1);
        wanted.into_iter().map(|(cpu, tids)| CompetingThreads { cpu, tids }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MS: Nanos = Nanos::from_millis(1);

    fn write(root: &ProcRoot, tid: i32, file: &str, text: &str) {
        let folder = root.proc.join(format!("{tid}/task/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn stat(tid: i32, state: char, cpu: u32) -> String {
        let zeros = |n| vec!["0"; n].join(" ");
        // The last CPU is field 39 of 52.
        format!("{tid} (CPU 0/KVM) {state} {} {cpu} {}\n", zeros(35), zeros(13))
    }

    #[test]
    fn windows_are_differences_and_an_ended_thread_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(dir.path());
        write(&root, 7, "schedstat", "1000 50 10\n");
        let mut threads = Threads::new(&root);
        threads.watch(&[7, 8, 7]);
        write(&root, 7, "schedstat", "5000 150 14\n");
        threads.watch(&[7, 8]);
        let used = ThreadCounters { run: Nanos(4_000), wait: Nanos(100), runs: 4 };
        assert_eq!(threads.counters(MS), [(7, Some(used)), (8, None)]);
        assert_eq!(threads.counters(MS), [(7, Some(ThreadCounters::default())), (8, None)]);
    }

    #[test]
    fn a_wait_in_progress_is_told_window_by_window_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(dir.path());
        let mut threads = Threads::new(&root);
        // 7 waits while 8, on the same CPU, computes; what the kernel counts of 7 and what is told of it.
        let set = |state: char, cpu: u32, schedstat: &str, busy_ns: u64| {
            write(&root, 7, "stat", &stat(7, state, cpu));
            write(&root, 7, "schedstat", schedstat);
            write(&root, 8, "stat", &stat(8, 'R', 3));
            write(&root, 8, "schedstat", &format!("{busy_ns} 0 1\n"));
        };
        set('R', 3, "1000 50 10\n", 1_000_000);
        threads.watch(&[7, 8]);
        let waited = |threads: &mut Threads| threads.counters(MS)[0].1.unwrap().wait;
        // Began in the middle of a window in which it ran: the kernel does not say so yet.
        set('R', 3, "2000 50 11\n", 2_000_000);
        assert_eq!(waited(&mut threads), Nanos::ZERO);
        // Two windows throughout.
        set('R', 3, "2000 50 11\n", 3_000_000);
        assert_eq!(waited(&mut threads), MS);
        set('R', 3, "2000 50 11\n", 4_000_000);
        assert_eq!(waited(&mut threads), MS);
        // It ran: of the 3 ms that the kernel counts, one has not been told.
        set('R', 3, "9000 3000050 12\n", 5_000_000);
        assert_eq!(waited(&mut threads), MS);
        // Nobody runs there, or it sleeps: nothing is made up.
        set('R', 3, "9000 3000050 12\n", 5_000_000);
        assert_eq!(waited(&mut threads), Nanos::ZERO);
        set('R', 4, "9000 3000050 12\n", 6_000_000);
        assert_eq!(waited(&mut threads), Nanos::ZERO);
        set('S', 3, "9000 3000050 12\n", 7_000_000);
        assert_eq!(waited(&mut threads), Nanos::ZERO);
    }

    #[test]
    fn two_that_want_one_cpu_compete() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(dir.path());
        for (tid, state, cpu) in [(1, 'R', 3), (2, 'R', 3), (3, 'S', 3), (4, 'R', 5)] {
            write(&root, tid, "stat", &stat(tid, state, cpu));
        }
        let mut threads = Threads::new(&root);
        threads.watch(&[1, 2, 3, 4, 5]);
        assert_eq!(threads.competing(), [CompetingThreads { cpu: 3, tids: vec![1, 2] }]);
    }
}
