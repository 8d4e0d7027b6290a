//! cholesky, volrend: small tasks in one queue under one mutex, and a condition variable for threads that find it
//! empty.
//!
//! Tasks make tasks, as eliminating a column of a matrix makes others ready: each tree of [`TREE`] tasks begins with
//! one, which makes two, and so on. The next tree begins when the last one is done, so there is too little to do for
//! all at each beginning, and threads go to sleep and are woken there. An item is a task; which tree and thread it
//! falls to is chance, and does not matter.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::pthread::Monitor;
use std::collections::VecDeque;

/// Tasks in a tree: one, two, four, and eight that make no more.
const TREE: u64 = 15;

#[derive(Default)]
struct Tasks {
    /// Items, each with its place in its tree; at most a tree of them.
    ready: VecDeque<(u64, u64)>,
    running: usize,
    over: bool,
}

struct Shared {
    /// Its condition variable: there is a task, or there will be none.
    tasks: Monitor<Tasks>,
}

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let shared = Shared { tasks: Monitor::new(Tasks::default()) };
    shared.plant(&mut shared.tasks.lock(), job);
    job.crew(job.plan.threads, |_| {
        let mut tally = Tally::default();
        while let Some((item, place)) = shared.take() {
            tally.checksum.add(item, job.compute(item, 0));
            job.finish();
            shared.done(place, job);
        }
        Ok(tally)
    })
}

impl Shared {
    fn take(&self) -> Option<(u64, u64)> {
        let mut tasks = self.tasks.lock();
        tasks.wait_until::<0>(|tasks| tasks.over || !tasks.ready.is_empty());
        let task = tasks.ready.pop_front();
        tasks.running += usize::from(task.is_some());
        task
    }

    /// A task is done: puts those that it makes ready, or the next tree if it was the last.
    fn done(&self, place: u64, job: &Job) {
        let mut tasks = self.tasks.lock();
        tasks.running -= 1;
        for child in [2 * place + 1, 2 * place + 2] {
            if child < TREE
                && let Some(item) = job.claim()
            {
                tasks.ready.push_back((item, child));
                self.tasks.signal::<0>();
            }
        }
        if tasks.running == 0 && tasks.ready.is_empty() {
            self.plant(&mut tasks, job);
        }
    }

    /// Begins a tree, or says that there is none.
    fn plant(&self, tasks: &mut Tasks, job: &Job) {
        if let Some(item) = job.claim() {
            tasks.ready.push_back((item, 0));
            self.tasks.signal::<0>();
        } else {
            tasks.over = true;
            self.tasks.broadcast::<0>();
        }
    }
}
