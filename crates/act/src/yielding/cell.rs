//! What the owner of a yielding thread and the thread itself tell each other.

use gleaner_model::{Nanos, Order, RetainCounters, VcpuId};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

/// The order to sleep; any other is a time-out.
pub(super) const ORDER_SLEEP: u64 = 0;

/// What the owner and one thread share. Single words, each with one writer.
#[derive(Default)]
pub(super) struct Cell {
    /// 0: sleep; otherwise the time-out in nanoseconds.
    pub(super) order: AtomicU64,
    pub(super) stop: AtomicBool,
    pub(super) tid: AtomicI32,
    pub(super) retained: AtomicU64,
    pub(super) displaced: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) idle_naps: AtomicU64,
    pub(super) stolen: AtomicU64,
    pub(super) guard_trips: AtomicU64,
}

impl Cell {
    pub(super) fn publish(&self, counters: &RetainCounters) {
        self.retained.store(counters.retained.0, Relaxed);
        self.displaced.store(counters.displaced, Relaxed);
        self.sleeps.store(counters.sleeps, Relaxed);
        self.idle_naps.store(counters.idle_naps, Relaxed);
        self.stolen.store(counters.stolen.0, Relaxed);
        self.guard_trips.store(counters.guard_trips, Relaxed);
    }

    pub(super) fn read(&self, vcpu: VcpuId) -> RetainCounters {
        RetainCounters {
            vcpu: Some(vcpu),
            tid: self.tid.load(Relaxed),
            retained: Nanos(self.retained.load(Relaxed)),
            displaced: self.displaced.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            idle_naps: self.idle_naps.load(Relaxed),
            stolen: Nanos(self.stolen.load(Relaxed)),
            guard_trips: self.guard_trips.load(Relaxed),
            ..RetainCounters::default()
        }
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            ORDER_SLEEP => Order::Sleep,
            timeout => Order::Retain { timeout: Nanos(timeout) },
        }
    }
}
