//! What the BPF programs counted -> cumulative totals -> one window.
//!
//! The kernel closes a stint when the task leaves the vCPU. A window ends in the middle of one, so the open part is
//! added here from its time stamp; otherwise a task that computes for a second would be ten empty windows and a full
//! one.

use super::skel::types::{cpu_state, histogram};
use super::skel::{GROUP, IDLE, YIELDING};
use crate::system::split;
use gleaner_bpf::MappedArray;
use gleaner_model::{Distribution, IdleEndedBy, Nanos, VcpuId, VcpuWindow};
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

/// Copies that a busy writer may spoil before a torn one is taken: 64 context switches within 64 copies of a few
/// microseconds do not happen, and a torn one is off by one stint.
pub(super) const MAX_TRIES: u32 = 64;
/// A stint younger than this is charged as its clock says; an older one is worth looking up what was stolen of it.
const LONG_STINT_NS: u64 = 20_000_000;
/// A running task's CPU time is brought up to date at each tick, 10 ms apart at most (HZ=100).
const TICK_NS: u64 = 10_000_000;

const L_COMP: usize = 0;
const L_IDLE: usize = 1;

/// The clock of `bpf_ktime_get_ns`.
pub(crate) fn now_ns() -> u64 {
    gleaner_sys::monotonic().0
}

/// Everything one vCPU counted until it was read, the stint in progress included.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    state: cpu_state,
    /// [`cpu_state::halted_ns`] and `yield_ns` with the stint in progress.
    halted_ns: u64,
    yield_ns: u64,
    /// CPU time of the stint in progress.
    open_exec_ns: u64,
}

/// What came between two readings of one vCPU.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// What had been counted before; `None`: nothing was since.
    before: Option<Box<cpu_state>>,
    halted: Nanos,
    yielded: Nanos,
}

impl Totals {
    /// Of a vCPU that was not there until `now_ns`, since `attached_ns`.
    pub fn not_there(attached_ns: u64, now_ns: u64) -> Self {
        let state = cpu_state { since_ns: attached_ns, ..cpu_state::default() };
        Self::with_open_stint(&state, now_ns, |_| None)
    }

    /// Reads CPU `index` anew. What did not change is not copied: most vCPUs are idle.
    pub fn advance(
        &mut self,
        cpus: &MappedArray<cpu_state>,
        index: usize,
        cpu_time_of: impl Fn(u32) -> Option<u64>,
    ) -> Change {
        let seq = || cpus.read_field::<u64>(index, offset_of!(cpu_state, seq));
        let (mut fresh, mut at_ns) = (None, now_ns());
        for _ in 0..MAX_TRIES {
            let before = seq();
            at_ns = now_ns();
            if before.is_multiple_of(2) {
                fence(Ordering::Acquire);
                fresh = (before != self.state.seq).then(|| Box::new(cpus.read(index)));
                fence(Ordering::Acquire);
                if seq() == before && fresh.as_ref().map_or(self.state.since_ns, |state| state.since_ns) <= at_ns {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        self.go_on(fresh, at_ns, cpu_time_of)
    }

    /// It is `fresh` now, or what it was.
    fn go_on(
        &mut self,
        mut fresh: Option<Box<cpu_state>>,
        at_ns: u64,
        cpu_time_of: impl Fn(u32) -> Option<u64>,
    ) -> Change {
        if let Some(fresh) = &mut fresh {
            std::mem::swap(&mut self.state, &mut **fresh);
        }
        let (halted_ns, yield_ns) = (self.halted_ns, self.yield_ns);
        self.open_stint(at_ns, cpu_time_of);
        Change {
            before: fresh,
            halted: Nanos(self.halted_ns.saturating_sub(halted_ns)),
            yielded: Nanos(self.yield_ns.saturating_sub(yield_ns)),
        }
    }

    fn with_open_stint(state: &cpu_state, at_ns: u64, cpu_time_of: impl Fn(u32) -> Option<u64>) -> Self {
        let mut totals = Self { state: *state, ..Self::default() };
        totals.open_stint(at_ns, cpu_time_of);
        totals
    }

    fn open_stint(&mut self, at_ns: u64, cpu_time_of: impl Fn(u32) -> Option<u64>) {
        let state = &self.state;
        let open = at_ns.saturating_sub(state.since_ns);
        let charged = || Some(cpu_time_of(state.pid)?.saturating_sub(state.exec_at_ns));
        let open_exec_ns = open_exec(state.class, open, charged);
        let of = |is_its: bool, open: u64| if is_its { open } else { 0 };
        self.halted_ns = state.halted_ns + of(state.class <= IDLE, open);
        self.yield_ns = state.yield_ns + of(state.class == YIELDING, open_exec_ns);
        self.open_exec_ns = open_exec_ns;
    }

    /// How often the vCPU's figures changed, twice over.
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// What the stint in progress is.
    pub fn class(&self) -> u32 {
        self.state.class
    }

    /// The group whose stint is in progress.
    pub fn group(&self) -> Option<u32> {
        (self.state.class == GROUP).then_some(self.state.group)
    }

    /// CPU time so far of the stint in progress, if it is this group's.
    pub fn open_exec_of(&self, slot: u32) -> u64 {
        if self.group() == Some(slot) { self.open_exec_ns } else { 0 }
    }

    fn since(&self, change: &Change, count: fn(&cpu_state) -> u64) -> u64 {
        change.before.as_ref().map_or(0, |before| count(&self.state).wrapping_sub(count(before)))
    }

    /// Idle instructions in the change.
    pub fn hlts(&self, change: &Change) -> u64 {
        self.since(change, |state| state.hlts)
    }

    /// One of the distributions: what was recorded in the change.
    fn distribution(&self, change: &Change, which: usize) -> Distribution {
        let before = change.before.as_ref();
        before.map_or_else(Distribution::new, |before| {
            difference(&self.state.histograms[which], &before.histograms[which])
        })
    }

    fn idle_ended(&self, change: &Change) -> IdleEndedBy {
        let interrupts = self.since(change, |state| state.interrupts);
        let ended = |state: &cpu_state| state.histograms[L_IDLE].count;
        let all = change.before.as_ref().map_or(0, |before| ended(&self.state).wrapping_sub(ended(before)));
        IdleEndedBy { interrupts, wakeups: u64::from(all).saturating_sub(interrupts) }
    }

    /// The window of `length` that the change was, in which the hypervisor reported `steal`, without what groups did.
    pub fn window(&self, change: &Change, id: VcpuId, length: Nanos, steal: Nanos) -> VcpuWindow {
        VcpuWindow {
            idle_entries: Some(self.since(change, |state| state.idle_entries)),
            halts: Some(self.since(change, |state| state.halts)),
            yield_switches: Some(self.since(change, |state| state.yield_switches)),
            l_comp: Some(self.distribution(change, L_COMP)),
            idle_ended_by: Some(self.idle_ended(change)),
            l_idle: Some(self.distribution(change, L_IDLE)),
            // A vCPU that has not switched since the programs were attached is idle, or would have been switched.
            ..split(id, length, steal, change.yielded, change.halted)
        }
    }
}

/// CPU time so far of a stint in progress that began `open` ns ago. `charged`: what the kernel has charged it, asked
/// only where it matters.
pub(super) fn open_exec(class: u32, open: u64, charged: impl FnOnce() -> Option<u64>) -> u64 {
    if class <= IDLE || open <= LONG_STINT_NS {
        return open;
    }
    // The kernel's count lacks what ran since the last tick; only what is missing beyond that was stolen.
    charged().map_or(open, |charged| open - open.saturating_sub(charged).saturating_sub(TICK_NS))
}

pub(super) fn difference(now: &histogram, last: &histogram) -> Distribution {
    if now.count == last.count {
        return Distribution::new();
    }
    let counts: Vec<u64> =
        now.buckets.iter().zip(&last.buckets).map(|(now, last)| u64::from(now.wrapping_sub(*last))).collect();
    Distribution::from_buckets(&counts, Nanos(now.sum_ns.wrapping_sub(last.sum_ns)))
}

#[cfg(test)]
mod tests {
    use super::super::skel::{OTHER, UNKNOWN};
    use super::*;

    fn state(class: u32, since_ns: u64) -> cpu_state {
        cpu_state { class, since_ns, ..cpu_state::default() }
    }

    #[test]
    fn the_four_parts_add_up_to_the_window_whatever_runs_at_its_ends() {
        for (first, second) in [(IDLE, GROUP), (GROUP, YIELDING), (YIELDING, OTHER), (OTHER, IDLE), (UNKNOWN, IDLE)] {
            let mut totals = Totals::with_open_stint(&state(first, 100), 1_000, |_| None);
            let mut now = state(second, 1_500);
            now.halted_ns = if first <= IDLE { 1_400 } else { 0 };
            now.yield_ns = if first == YIELDING { 1_300 } else { 0 };
            let change = totals.go_on(Some(Box::new(now)), 3_000, |_| None);
            let window = totals.window(&change, VcpuId(0), Nanos(2_000), Nanos(100));
            assert_eq!(window.steal, Nanos(100));
            assert_eq!(window.busy + window.retained + window.halted + window.steal, Nanos(2_000), "{first} {second}");
        }
    }

    #[test]
    fn what_was_stolen_of_a_long_stint_is_seen_before_it_ends() {
        let totals = |charged: u64| {
            let state = cpu_state { exec_at_ns: 5, group: 3, ..state(GROUP, 0) };
            Totals::with_open_stint(&state, 100_000_000, move |_| Some(5 + charged))
        };
        let work = |charged| totals(charged).open_exec_of(3);
        assert_eq!(work(30_000_000), 40_000_000);
        assert_eq!(work(95_000_000), 100_000_000);
        assert_eq!(totals(95_000_000).open_exec_of(4), 0, "another group's");
    }

    #[test]
    fn counters_may_wrap() {
        let mut last = histogram { count: u32::MAX, ..histogram::default() };
        last.buckets[8] = u32::MAX;
        let mut now = histogram { count: 1, sum_ns: 16, ..histogram::default() };
        now.buckets[8] = 1;
        let difference = difference(&now, &last);
        assert_eq!((difference.count(), difference.sum()), (2, Nanos(16)));
    }
}
