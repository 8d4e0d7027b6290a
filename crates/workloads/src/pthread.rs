//! pthread mutexes and condition variables behind a safe face.
//!
//! The programs of this room stand for real ones, and those block in glibc's primitives: std's own are built on futexes
//! directly and spin, wake and requeue differently. What is here is those calls and nothing more; threads are std's.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A `pthread_mutex_t` of the default kind with what it protects.
pub struct Mutex<T> {
    /// Boxed: a mutex must not move while somebody waits for it.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self { raw: Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: it was initialized in `new` and lives as long as `self`.
        let result = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        // A mutex of the default kind refuses nobody.
        debug_assert_eq!(result, 0);
        Guard { mutex: self, stays: PhantomData }
    }
}

impl<T> Drop for Mutex<T> {
    fn drop(&mut self) {
        // A guard borrows it, but may have been forgotten: destroying a locked mutex is undefined, forgetting one is
        // not. SAFETY: initialized in `new`; unlocked by the thread that has just locked it, and nobody else can reach
        // it any more.
        unsafe {
            if libc::pthread_mutex_trylock(self.raw.get()) == 0 {
                libc::pthread_mutex_unlock(self.raw.get());
                libc::pthread_mutex_destroy(self.raw.get());
            }
        }
    }
}

/// A locked mutex; unlocks when dropped, on the thread that locked it.
pub struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Not to be sent: whoever locked must unlock.
    stays: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the mutex, and this borrow is the only one through the only guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}

/// A `pthread_cond_t`. Only a [`Monitor`] has some: two threads that wait for one with different mutexes are undefined
/// behaviour.
struct Condvar {
    raw: Box<UnsafeCell<libc::pthread_cond_t>>,
}

// SAFETY: pthread condition variables are there to be used from many threads.
unsafe impl Sync for Condvar {}

impl Condvar {
    fn new() -> Self {
        Self { raw: Box::new(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER)) }
    }
}

impl Drop for Condvar {
    fn drop(&mut self) {
        // SAFETY: nobody waits: a waiter borrows it.
        unsafe { libc::pthread_cond_destroy(self.raw.get()) };
    }
}

/// A mutex with what it protects and its condition variables, which are numbered from 0: whoever waits for one waits
/// with this mutex.
pub struct Monitor<T, const CONDITIONS: usize = 1> {
    mutex: Mutex<T>,
    conditions: [Condvar; CONDITIONS],
}

impl<T, const CONDITIONS: usize> Monitor<T, CONDITIONS> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self { mutex: Mutex::new(value), conditions: std::array::from_fn(|_| Condvar::new()) }
    }

    /// `pthread_mutex_lock`.
    pub fn lock(&self) -> Inside<'_, T, CONDITIONS> {
        Inside { guard: self.mutex.lock(), monitor: self }
    }

    /// `pthread_cond_signal`.
    pub fn signal<const WHICH: usize>(&self) {
        // SAFETY: initialized in `new`, lives as long as `self`.
        unsafe { libc::pthread_cond_signal(self.condition::<WHICH>().raw.get()) };
    }

    /// `pthread_cond_broadcast`.
    pub fn broadcast<const WHICH: usize>(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_cond_broadcast(self.condition::<WHICH>().raw.get()) };
    }

    fn condition<const WHICH: usize>(&self) -> &Condvar {
        const { assert!(WHICH < CONDITIONS, "no such condition variable") };
        &self.conditions[WHICH]
    }
}

/// A locked monitor; unlocks when dropped, on the thread that locked it.
pub struct Inside<'a, T, const CONDITIONS: usize> {
    guard: Guard<'a, T>,
    monitor: &'a Monitor<T, CONDITIONS>,
}

impl<T, const CONDITIONS: usize> Inside<'_, T, CONDITIONS> {
    /// `pthread_cond_wait` until `ready`.
    pub fn wait_until<const WHICH: usize>(&mut self, mut ready: impl FnMut(&mut T) -> bool) {
        let monitor = self.monitor;
        let (condition, mutex) = (monitor.condition::<WHICH>(), &monitor.mutex);
        while !ready(&mut self.guard) {
            // SAFETY: this thread holds the mutex (it has the guard), and holds it again afterwards. Nobody else has
            // the condition variable, so all of its waiters come with this mutex.
            unsafe { libc::pthread_cond_wait(condition.raw.get(), mutex.raw.get()) };
        }
    }
}

impl<T, const CONDITIONS: usize> Deref for Inside<'_, T, CONDITIONS> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const CONDITIONS: usize> DerefMut for Inside<'_, T, CONDITIONS> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::scope;

    #[test]
    fn one_thread_at_a_time() {
        let counter = Mutex::new(0u64);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let mut value = counter.lock();
                        let read = *value;
                        std::hint::spin_loop();
                        *value = read + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 8_000);
    }

    #[test]
    fn a_signal_wakes_a_waiter() {
        let turn = Monitor::<u32>::new(0);
        scope(|scope| {
            for me in 0..3 {
                let turn = &turn;
                scope.spawn(move || {
                    for round in 0..100 {
                        let mut now = turn.lock();
                        now.wait_until::<0>(|now| *now == round * 3 + me);
                        *now += 1;
                        turn.broadcast::<0>();
                    }
                });
            }
        });
        assert_eq!(*turn.lock(), 300);
    }
    #[test]
    fn conditions_of_one_monitor_are_told_apart() {
        const FULL: usize = 0;
        const EMPTY: usize = 1;
        let slot = Monitor::<Option<u32>, 2>::new(None);
        let sum: u32 = scope(|scope| {
            scope.spawn(|| {
                for n in 0..200 {
                    let mut inside = slot.lock();
                    inside.wait_until::<EMPTY>(|slot| slot.is_none());
                    *inside = Some(n);
                    slot.signal::<FULL>();
                }
            });
            let taker = scope.spawn(|| {
                (0..200)
                    .map(|_| {
                        let mut inside = slot.lock();
                        inside.wait_until::<FULL>(|slot| slot.is_some());
                        slot.signal::<EMPTY>();
                        inside.take().unwrap()
                    })
                    .sum()
            });
            taker.join().unwrap()
        });
        assert_eq!(sum, (0..200).sum());
    }

    #[test]
    fn a_forgotten_guard_and_a_panic_while_waiting_leave_it_usable_or_alone() {
        let forgotten = Mutex::new(1);
        std::mem::forget(forgotten.lock());
        drop(forgotten);
        let monitor = Monitor::<u32>::new(0);
        let waiting = std::panic::AssertUnwindSafe(|| monitor.lock().wait_until::<0>(|_| panic!("in the question")));
        assert!(std::panic::catch_unwind(waiting).is_err());
        assert_eq!(*monitor.lock(), 0, "it was unlocked");
    }
}
