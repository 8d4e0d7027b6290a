//! One managed group: whose threads are its.

use super::tracker::{Census, Tracker};
use crate::bound::BoundThreads;

/// Its processes, with all that they start.
#[derive(Debug)]
pub(super) struct Managed {
    /// Processes that are to be looked at next.
    pub roots: Vec<i32>,
    pub threads: Tracker,
    pub bound: BoundThreads,
    /// Whether the owner's children belong to it.
    adopts_children: bool,
}

impl Managed {
    pub fn new(threads: Tracker, roots: Vec<i32>, adopts_children: bool) -> Self {
        Self { roots, threads, bound: BoundThreads::default(), adopts_children }
    }

    /// Looks for its threads; `children` are the owner's, `nobodys` the owner and its helpers.
    pub fn discover(&mut self, children: &[i32], nobodys: &[i32], all: bool) {
        let children = children.iter().filter(|_| self.adopts_children).copied();
        let roots: Vec<i32> = children.chain(self.roots.drain(..)).collect();
        self.threads.discover(roots, nobodys, all);
    }

    /// What it has done by now, as a beginning: nobody is new.
    pub fn beginning(&mut self) -> Census {
        Census { new_threads: 0, ..self.threads.census() }
    }
}
