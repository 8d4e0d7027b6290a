//! What is compared between one vCPU and several.
//!
//! A switch is no measure there: on one vCPU a thread that is woken preempts the one that woke it, which then need not
//! wait, or finds a lock taken and waits twice. experiments/packing has a table of what 30 programs count by the item
//! in each place. What stays is, in this order:
//!
//! 1. the program's own figure,
//! 2. its system calls but for `futex`, yields and sleeps,
//! 3. where it makes few others: its hand-overs. Its waits on conditions are a lower bound, because on one vCPU some
//!    are spared. Its switches without those for locks are an upper one. A condition that is waited for on one vCPU
//!    alone, in any pair, is a lock too: Python's threads wait so for its interpreter,
//! 4. at last, all its system calls, or its waits by `FUTEX_WAIT` where these say less: on one vCPU a program calls for
//!    more wake-ups by the item.
//!
//! Where there is none of these, nothing is tried.
//!
//! To count a call takes a tenth of a microsecond and more. On one vCPU that stands between one hand-over and the next.
//! On several the other thread wakes up while the call that woke it ends and the one that waits begins. So on one vCPU
//! the time that counting these two took is left out where the count is exact. Bounds were set with it.

use gleaner_model::{Nanos, SystemCalls, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Less of it in a block says nothing.
const COUNT_MIN: u64 = 100;
/// System calls of a kind tell where there are at least so many for each switch.
const CALLS_A_SWITCH_MIN: f64 = 0.25;
/// Each wait for a lock is a switch, and another one when the lock is free.
const SWITCHES_A_LOCK_WAIT: u64 = 2;
/// Calls of a hand-over that are counted while the other thread wakes up elsewhere.
const CALLS_A_WAKE_UP: u64 = 2;
/// No more than a quarter of a block is believed to have gone to counting.
const COUNTED_MIN: f64 = 0.75;
/// A word that is waited for so many times as often on one vCPU belongs to a lock.
const BELONGS_TO_A_LOCK: f64 = 4.0;
/// Fewer waits for a word in a block say nothing of it.
const LOCK_WAITS_MIN: u64 = 10;
/// A block on several vCPUs that waits for locks more than this part as often as one on one vCPU was there for a while.
const AS_ON_ONE_VCPU: f64 = 0.25;

/// What a block counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    length: Nanos,
    cpu_time: Nanos,
    progress: Option<u64>,
    calls: Option<SystemCalls>,
    switches: u64,
}

/// One vCPU as a multiple of several, in one pair of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    /// How much it gets done: at least this ...
    pub(super) least: f64,
    /// ... and at most this; the same where that is counted exactly.
    pub(super) most: f64,
    /// CPU time that its threads took.
    pub(super) cpu: f64,
}

/// Whether the window holds what tells places apart.
pub(super) fn is_counted(window: &Window) -> bool {
    window.group.progress.is_some() || window.group.system_calls.is_some()
}

impl Block {
    /// What the window counted.
    pub(super) fn of(window: &Window) -> Self {
        let group = &window.group;
        Self {
            length: window.length,
            cpu_time: group.cpu_time,
            progress: group.progress,
            calls: group.system_calls.as_deref().cloned(),
            switches: group.voluntary_switches + group.involuntary_switches,
        }
    }

    /// Both, one after the other.
    pub(super) fn and(self, next: &Self) -> Self {
        Self {
            length: self.length + next.length,
            cpu_time: self.cpu_time + next.cpu_time,
            progress: self.progress.zip(next.progress).map(|(a, b)| a + b),
            calls: self.calls.zip(next.calls.clone()).map(|(mut calls, more)| {
                calls += more;
                calls
            }),
            switches: self.switches + next.switches,
        }
    }

    /// Whether it counted enough to be compared.
    pub(super) fn tells(&self) -> bool {
        let calls = self.calls.as_ref().map(|calls| calls.steady);
        let counted = [self.progress, calls, Some(self.switches)].into_iter().flatten().any(|count| count >= COUNT_MIN);
        counted && self.length > Nanos::ZERO && self.cpu_time > Nanos::ZERO
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64()
    }

    /// Words that this block, on one vCPU, waited for so much more often than `apart` that they belong to locks.
    pub(super) fn locks_beside(&self, apart: &Self) -> BTreeSet<u8> {
        let (Some(calls), Some(others)) = (&self.calls, &apart.calls) else { return BTreeSet::new() };
        let waited_apart = |at: &u8| apart.per_s(others.waits_at.get(at).copied().unwrap_or(0));
        let is_of_lock =
            |at: &u8, waits: u64| waits >= LOCK_WAITS_MIN && self.per_s(waits) > BELONGS_TO_A_LOCK * waited_apart(at);
        calls.waits_at.iter().filter(|(at, waits)| is_of_lock(at, **waits)).map(|(at, _)| *at).collect()
    }

    /// The same, where waits for locks that are made of conditions count as what they are.
    fn with_locks(&self, locks: &BTreeSet<u8>) -> Self {
        let mut block = self.clone();
        if let Some(calls) = &mut block.calls {
            let all = calls.waits();
            calls.waits_at.retain(|at, _| !locks.contains(at));
            calls.lock_waits += all - calls.waits();
        }
        block
    }

    /// The same without the time that counting took.
    fn uncounted(&self) -> Self {
        let beside = |calls: &SystemCalls| calls.all().min(CALLS_A_WAKE_UP * self.switches);
        let counting = self.calls.as_ref().map_or(Nanos::ZERO, |calls| calls.counting.times(beside(calls)));
        let least = Nanos::from_f64(self.length.as_f64() * COUNTED_MIN);
        Self { length: Nanos(self.length.0.saturating_sub(counting.0)).max(least), ..self.clone() }
    }

    /// Switches, but for those that a lock was waited for.
    fn hand_overs(&self) -> Option<u64> {
        let locks = self.calls.as_ref()?.lock_waits * SWITCHES_A_LOCK_WAIT;
        Some(self.switches.saturating_sub(locks))
    }

    /// Whether it waits for locks much as the other does, on one vCPU. Then it was on one for a while, and nobody knows
    /// which switches are a lock's.
    fn waits_for_locks_as(&self, packed: &Self) -> bool {
        let per_s = |block: &Self| block.calls.as_ref().map_or(0.0, |calls| block.per_s(calls.lock_waits));
        let are_many = packed.calls.as_ref().is_some_and(|calls| calls.lock_waits >= LOCK_WAITS_MIN);
        are_many && per_s(self) > AS_ON_ONE_VCPU * per_s(packed)
    }

    /// CPU time a switch.
    pub(super) fn granularity(&self) -> f64 {
        self.cpu_time.as_f64() / self.switches.max(1) as f64
    }
}

/// A pair of blocks. `locks`: words that belong to locks.
pub(super) fn compare(packed: &Block, apart: &Block, locks: &BTreeSet<u8>) -> Compared {
    let cpu = packed.cpu_time.share_of(packed.length) / apart.cpu_time.share_of(apart.length).max(1e-9);
    let (least, most) = rates(&packed.with_locks(locks), &apart.with_locks(locks));
    Compared { least, most, cpu }
}

fn rates(packed: &Block, apart: &Block) -> (f64, f64) {
    let uncounted = &packed.uncounted();
    let ratio = |packed: &Block, count: fn(&Block) -> Option<u64>| {
        let (packed_count, apart_count) = (count(packed)?, count(apart)?);
        Some((packed_count.max(apart_count), packed.per_s(packed_count) / apart.per_s(apart_count.max(1))))
    };
    let progress =
        ratio(uncounted, |block| block.progress).filter(|(count, _)| *count >= COUNT_MIN).map(|(_, ratio)| ratio);
    let tells = |block: &Block, count: fn(&SystemCalls) -> u64| {
        block.calls.as_ref().is_some_and(|calls| count(calls) as f64 >= CALLS_A_SWITCH_MIN * block.switches as f64)
    };
    let by_calls = |packed: &Block, count: fn(&SystemCalls) -> u64| {
        let per_s = |block: &Block| block.calls.as_ref().map(|calls| block.per_s(count(calls)));
        Some(per_s(packed)? / per_s(apart)?)
    };
    let in_both = |count| tells(packed, count) && tells(apart, count);
    let steady = |calls: &SystemCalls| calls.steady;
    if let Some(exact) = progress.or_else(|| by_calls(uncounted, steady).filter(|_| in_both(steady))) {
        return (exact, exact);
    }
    // On one vCPU they may be few beside waits for locks, and are spared at times: that is why they are a lower bound.
    let waits = |calls: &SystemCalls| calls.steady + calls.waits();
    let bounds = by_calls(packed, waits).filter(|_| tells(apart, waits)).zip(ratio(packed, Block::hand_overs));
    if let Some((least, (_, most))) = bounds {
        // Its own switches hold some of a lock's, so they are no upper bound: it must not speak for one vCPU.
        let most = if apart.waits_for_locks_as(packed) { most.min(1.0) } else { most };
        return (least, most.max(least));
    }
    let all = by_calls(packed, SystemCalls::all).filter(|_| in_both(SystemCalls::all)).unwrap_or(1.0);
    let lock_waits = |calls: &SystemCalls| calls.lock_waits;
    let fewest = by_calls(packed, lock_waits).filter(|_| tells(apart, lock_waits)).map_or(all, |waits| waits.min(all));
    (fewest, fewest)
}
