//! A bounded queue of a pthread mutex and two condition variables, as dedup and most pipelines have it.

use crate::pthread::Monitor;
use std::collections::VecDeque;

/// A queue between the threads of two stages. It closes when either side has left.
pub(crate) struct Queue<T> {
    state: Monitor<State<T>, 2>,
    capacity: usize,
}

/// The condition variables.
const NOT_EMPTY: usize = 0;
const NOT_FULL: usize = 1;

struct State<T> {
    items: VecDeque<T>,
    producers: usize,
    consumers: usize,
}

impl<T> Queue<T> {
    /// For so many threads on each side; each of them must take its end.
    pub(crate) fn new(capacity: usize, producers: usize, consumers: usize) -> Self {
        let state = State { items: VecDeque::with_capacity(capacity), producers, consumers };
        Self { state: Monitor::new(state), capacity }
    }

    pub(crate) fn producer(&self) -> Producer<'_, T> {
        Producer(self)
    }

    pub(crate) fn consumer(&self) -> Consumer<'_, T> {
        Consumer(self)
    }
}

/// A producing thread's end; dropping it says that the thread puts no more.
pub(crate) struct Producer<'a, T>(&'a Queue<T>);

impl<T> Producer<'_, T> {
    /// Puts an item, waiting for room; `false` when nobody will ever take it.
    pub(crate) fn put(&self, item: T) -> bool {
        let queue = self.0;
        let mut state = queue.state.lock();
        state.wait_until::<NOT_FULL>(|state| state.items.len() < queue.capacity || state.consumers == 0);
        if state.consumers == 0 {
            return false;
        }
        state.items.push_back(item);
        queue.state.signal::<NOT_EMPTY>();
        true
    }
}

impl<T> Drop for Producer<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.producers -= 1;
        if state.producers == 0 {
            self.0.state.broadcast::<NOT_EMPTY>();
        }
    }
}

/// A consuming thread's end; dropping it says that the thread takes no more.
pub(crate) struct Consumer<'a, T>(&'a Queue<T>);

impl<T> Consumer<'_, T> {
    /// Takes an item, waiting for one; `None` when it is empty and stays so.
    pub(crate) fn take(&self) -> Option<T> {
        let queue = self.0;
        let mut state = queue.state.lock();
        state.wait_until::<NOT_EMPTY>(|state| !state.items.is_empty() || state.producers == 0);
        let item = state.items.pop_front();
        if item.is_some() {
            queue.state.signal::<NOT_FULL>();
        }
        item
    }
}

impl<T> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.consumers -= 1;
        if state.consumers == 0 {
            self.0.state.broadcast::<NOT_FULL>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::scope;

    #[test]
    fn everything_comes_through_once() {
        let queue = Queue::new(2, 3, 2);
        let sums: Vec<u64> = scope(|scope| {
            for producer in 0..3 {
                let end = queue.producer();
                scope.spawn(move || (0..500).for_each(|n| assert!(end.put(producer * 500 + n))));
            }
            let take_all = || {
                std::iter::from_fn({
                    let end = queue.consumer();
                    move || end.take()
                })
                .sum()
            };
            let consumers = [scope.spawn(take_all), scope.spawn(take_all)];
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        assert_eq!(sums.iter().sum::<u64>(), (0..1_500).sum());
    }

    #[test]
    fn a_side_that_left_is_not_waited_for() {
        let queue = Queue::new(1, 1, 1);
        let producer = queue.producer();
        assert!(producer.put(1));
        drop(queue.consumer());
        assert!(!producer.put(2), "nobody takes it, and the queue is full");
        drop(producer);
        let queue: Queue<u8> = Queue::new(1, 1, 1);
        drop(queue.producer());
        assert_eq!(queue.consumer().take(), None);
    }
}
