//! Questions that take their time, asked side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Most threads: a host has hundreds of VMs, and nearly all answer at once.
const MOST: usize = 64;
const STACK: usize = 512 * 1024;

/// `work` on each of `items`, in their order. A thread that is refused is done without.
pub(super) fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let body = || {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..items.len().min(MOST) {
            let thread = thread::Builder::new().name("gleaner-ask".into()).stack_size(STACK);
            if thread.spawn_scoped(scope, body).is_err() {
                break;
            }
        }
        body();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_done_in_order_however_many() {
        for count in [0, 1, 2, MOST, 3 * MOST] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(side_by_side(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
    }
}
