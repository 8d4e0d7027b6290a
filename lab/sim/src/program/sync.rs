//! The state of what threads share. Waiting threads stand in the order in which they came.

use super::line::Line;
use super::{Guard, Shared, Test, Writers};
use crate::engine::Time;
use crate::ids::ThreadIx;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(crate) struct Mutex {
    pub(crate) owner: Option<ThreadIx>,
    pub(crate) waiters: Line,
}

/// A ticket lock: the next ticket's holder owns it the moment it is free, whether or not its vCPU runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpinLock {
    pub(crate) owner: Option<ThreadIx>,
    pub(crate) waiters: Line,
    /// Since when its owner has known that it has it.
    pub(crate) held_since: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) parties: u32,
    pub(crate) waiting: Line,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Semaphore {
    pub(crate) count: u64,
    pub(crate) waiters: Line,
}

/// A kernel's read-write semaphore ([`super::rwsem`]).
#[derive(Clone, Debug)]
pub(crate) struct RwSem {
    pub(crate) writers: Writers,
    /// Who reads.
    pub(crate) readers: u32,
    /// Who writes.
    pub(crate) writer: Option<ThreadIx>,
    /// The first who waits, a writer that was woken to take it and stands in the line no more.
    pub(crate) coming: Option<ThreadIx>,
    pub(crate) waiters: Line,
}

impl RwSem {
    fn new(writers: Writers) -> Self {
        Self { writers, readers: 0, writer: None, coming: None, waiters: Line::default() }
    }
}

/// A virtual machine's objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) mutexes: Vec<Mutex>,
    pub(crate) conds: Vec<Line>,
    pub(crate) spinlocks: Vec<SpinLock>,
    pub(crate) rwsems: Vec<RwSem>,
    pub(crate) semaphores: Vec<Semaphore>,
    /// Items, by the time of their stamp.
    pub(crate) queues: Vec<VecDeque<Time>>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) counters: Vec<i64>,
}

impl Objects {
    pub(crate) fn new(shared: &Shared) -> Self {
        let many = |n: u32| n as usize;
        Self {
            mutexes: vec![Mutex::default(); many(shared.mutexes)],
            conds: vec![Line::default(); many(shared.conds)],
            spinlocks: vec![SpinLock::default(); many(shared.spinlocks)],
            rwsems: shared.rwsems.iter().map(|writers| RwSem::new(*writers)).collect(),
            semaphores: vec![Semaphore::default(); many(shared.semaphores)],
            queues: vec![VecDeque::new(); many(shared.queues)],
            barriers: shared.barriers.iter().map(|n| Barrier { parties: *n, waiting: Line::default() }).collect(),
            counters: shared.counters.clone(),
        }
    }

    pub(crate) fn holds(&self, guard: Guard) -> bool {
        self.passes(guard.0) || guard.1.is_some_and(|test| self.passes(test))
    }

    fn passes(&self, test: Test) -> bool {
        match test {
            Test::NotEmpty(queue) => !self.queues[queue as usize].is_empty(),
            Test::Shorter { queue, than } => self.queues[queue as usize].len() < than as usize,
            Test::AtLeast(counter, value) => self.counters[counter as usize] >= value,
            Test::AtMost(counter, value) => self.counters[counter as usize] <= value,
        }
    }
}
