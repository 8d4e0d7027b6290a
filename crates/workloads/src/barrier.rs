//! A barrier of a mutex and a condition variable, as PARSEC's own.

use crate::pthread::Monitor;

/// Where a fixed number of threads wait for each other, again and again.
pub(crate) struct Barrier<T> {
    threads: usize,
    /// Its condition variable: the barrier has opened.
    state: Monitor<State<T>>,
}

struct State<T> {
    arrived: usize,
    generation: u64,
    value: T,
}

impl<T: Copy> Barrier<T> {
    pub(crate) fn new(threads: usize, value: T) -> Self {
        let state = State { arrived: 0, generation: 0, value };
        Self { threads, state: Monitor::new(state) }
    }

    /// Waits for all. The last to arrive calls `next` before anybody goes on, and everybody returns what it said.
    pub(crate) fn wait(&self, next: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        state.arrived += 1;
        if state.arrived == self.threads {
            state.value = next();
            state.arrived = 0;
            state.generation += 1;
            self.state.broadcast::<0>();
        } else {
            let generation = state.generation;
            state.wait_until::<0>(|state| state.generation != generation);
        }
        // The next round cannot end before this thread has come to it.
        state.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::scope;

    #[test]
    fn nobody_goes_on_before_all_are_there() {
        let (barrier, arrivals) = (Barrier::new(3, 0), AtomicU64::new(0));
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=200 {
                        arrivals.fetch_add(1, Ordering::SeqCst);
                        let seen = barrier.wait(|| arrivals.load(Ordering::SeqCst));
                        assert_eq!(seen, 3 * round);
                        barrier.wait(|| 0);
                    }
                });
            }
        });
    }
}
