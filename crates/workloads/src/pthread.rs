//! pthread mutexes and condition variables behind a safe face.
//!
//! The programs of this room stand for real ones, and those block in glibc's primitives: std's own are built on futexes directly
//! and spin, wake and requeue differently. What is here is those calls and nothing more; threads are std's.

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

    /// `pthread_mutex_lock`.
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
        // SAFETY: nobody holds it: a guard borrows it.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
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

/// A `pthread_cond_t`.
pub struct Condvar {
    raw: Box<UnsafeCell<libc::pthread_cond_t>>,
}

// SAFETY: pthread condition variables are there to be used from many threads.
unsafe impl Sync for Condvar {}

impl Default for Condvar {
    fn default() -> Self {
        Self { raw: Box::new(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER)) }
    }
}

impl Condvar {
    /// `pthread_cond_wait` until `ready`.
    pub fn wait_until<T>(&self, guard: &mut Guard<'_, T>, mut ready: impl FnMut(&mut T) -> bool) {
        while !ready(guard) {
            // SAFETY: this thread holds the mutex (it has the guard), and holds it again afterwards. All waiters of one
            // condition variable in this room come with the same mutex.
            unsafe { libc::pthread_cond_wait(self.raw.get(), guard.mutex.raw.get()) };
        }
    }

    /// `pthread_cond_signal`.
    pub fn signal(&self) {
        // SAFETY: initialized in `default`, lives as long as `self`.
        unsafe { libc::pthread_cond_signal(self.raw.get()) };
    }

    /// `pthread_cond_broadcast`.
    pub fn broadcast(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_cond_broadcast(self.raw.get()) };
    }
}

impl Drop for Condvar {
    fn drop(&mut self) {
        // SAFETY: nobody waits: a waiter borrows it.
        unsafe { libc::pthread_cond_destroy(self.raw.get()) };
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
        let (turn, changed) = (Mutex::new(0u32), Condvar::default());
        scope(|scope| {
            for me in 0..3 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for round in 0..100 {
                        let mut now = turn.lock();
                        changed.wait_until(&mut now, |now| *now == round * 3 + me);
                        *now += 1;
                        changed.broadcast();
                    }
                });
            }
        });
        assert_eq!(*turn.lock(), 300);
    }
}
