//! What `/proc` tells of threads: run time, waiting time, runs; who wants which CPU. Needs no privilege.

use super::CompetingThreads;
use crate::ProcRoot;
use crate::vmm::{ThreadCounters, thread_stat};
use std::collections::BTreeMap;
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
}

impl Threads {
    pub fn new(root: &ProcRoot) -> Self {
        Self { root: root.clone(), order: Vec::new(), last: BTreeMap::new() }
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
    }

    fn read(&self, tid: i32) -> Option<ThreadCounters> {
        let path = self.root.proc.join(format!("{tid}/task/{tid}/schedstat"));
        ThreadCounters::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// What each thread used since the last call; `None` for one that has ended.
    pub fn counters(&mut self) -> Vec<(i32, Option<ThreadCounters>)> {
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
    use gleaner_model::Nanos;
    use std::fs;

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
        assert_eq!(threads.counters(), [(7, Some(used)), (8, None)]);
        assert_eq!(threads.counters(), [(7, Some(ThreadCounters::default())), (8, None)]);
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
