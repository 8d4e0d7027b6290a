//! Threads that stand in line: for a vCPU, a mutex, a condition. A thread stands in one line at a time, so each knows
//! who is behind it, and a line is no more than its two ends.

use super::Thread;
use crate::ids::ThreadIx;

pub(super) const NOBODY: ThreadIx = ThreadIx(u32::MAX);

/// Threads in the order in which they are to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    first: ThreadIx,
    last: ThreadIx,
    len: u32,
}

impl Default for Line {
    fn default() -> Self {
        Self { first: NOBODY, last: NOBODY, len: 0 }
    }
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<ThreadIx> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub(crate) fn push_back(&mut self, threads: &mut [Thread], t: ThreadIx) {
        debug_assert_eq!(threads[t.at()].behind, NOBODY, "{t:?} stands in two lines");
        match self.last {
            NOBODY => self.first = t,
            last => threads[last.at()].behind = t,
        }
        self.last = t;
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, threads: &mut [Thread], t: ThreadIx) {
        debug_assert_eq!(threads[t.at()].behind, NOBODY, "{t:?} stands in two lines");
        threads[t.at()].behind = std::mem::replace(&mut self.first, t);
        if self.len == 0 {
            self.last = t;
        }
        self.len += 1;
    }

    pub(crate) fn pop_front(&mut self, threads: &mut [Thread]) -> Option<ThreadIx> {
        if self.first == NOBODY {
            return None;
        }
        let first = std::mem::replace(&mut self.first, NOBODY);
        self.first = std::mem::replace(&mut threads[first.at()].behind, NOBODY);
        self.len -= 1;
        if self.len == 0 {
            self.last = NOBODY;
        }
        Some(first)
    }

    /// Behind the first, or as the first.
    pub(crate) fn push_second(&mut self, threads: &mut [Thread], t: ThreadIx) {
        let first = self.pop_front(threads);
        self.push_front(threads, t);
        if let Some(first) = first {
            self.push_front(threads, first);
        }
    }

    /// Takes the first that `fits` out.
    pub(crate) fn take_first(&mut self, threads: &mut [Thread], fits: impl Fn(&Thread) -> bool) -> Option<ThreadIx> {
        let mut found = None;
        for _ in 0..self.len {
            // Everybody goes once round, but who fits.
            let t = self.pop_front(threads)?;
            if found.is_none() && fits(&threads[t.at()]) {
                found = Some(t);
            } else {
                self.push_back(threads, t);
            }
        }
        found
    }

    /// The members, first to last. For the invariants, which release builds do not check.
    #[cfg(any(debug_assertions, test))]
    pub(crate) fn iter<'a>(&self, threads: &'a [Thread]) -> impl Iterator<Item = ThreadIx> + 'a {
        let some = |t: ThreadIx| (t != NOBODY).then_some(t);
        std::iter::successors(some(self.first), move |t| some(threads[t.at()].behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Random;
    use crate::ids::{VcpuIx, VmIx};

    #[test]
    fn a_line_keeps_its_order() {
        let thread = |n| Thread::new(VmIx(0), 0, VcpuIx(n), u64::MAX, Random::new(1, 0));
        let mut threads: Vec<Thread> = (0..6).map(thread).collect();
        let mut line = Line::default();
        let order = |line: &Line, threads: &[Thread]| line.iter(threads).map(|t| t.0).collect::<Vec<u32>>();
        for t in [2, 0, 3] {
            line.push_back(&mut threads, ThreadIx(t));
        }
        line.push_front(&mut threads, ThreadIx(1));
        line.push_second(&mut threads, ThreadIx(5));
        assert_eq!((order(&line, &threads), line.len()), (vec![1, 5, 2, 0, 3], 5));
        assert_eq!(line.take_first(&mut threads, |thread| thread.vcpu.0 % 2 == 0), Some(ThreadIx(2)));
        assert_eq!(line.take_first(&mut threads, |thread| thread.vcpu.0 == 4), None);
        assert_eq!(order(&line, &threads), [1, 5, 0, 3]);
        let popped: Vec<_> = std::iter::from_fn(|| line.pop_front(&mut threads)).map(|t| t.0).collect();
        assert_eq!((popped, line.is_empty()), (vec![1, 5, 0, 3], true));
        line.push_second(&mut threads, ThreadIx(4));
        line.push_back(&mut threads, ThreadIx(0));
        assert_eq!(order(&line, &threads), [4, 0]);
    }
}
