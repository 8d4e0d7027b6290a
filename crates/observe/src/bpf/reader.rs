//! What the BPF programs counted -> cumulative totals -> one window.
//!
//! The kernel closes a stint when the task leaves the vCPU. A window ends in the middle of one, so the open part is
//! added here from its time stamp; otherwise a task that computes for a second would be ten empty windows and a full
//! one.

use super::skel::types::{cpu_state, histogram};
use super::{CLASSES, GROUP, IDLE, UNKNOWN, YIELDING};
use crate::system::split;
use gleaner_bpf::MappedArray;
use gleaner_model::{Distribution, Nanos, VcpuId, VcpuWindow};
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

/// Copies that a busy writer may spoil before a torn one is taken: 64 context switches within 64 copies of a few
/// microseconds do not happen, and a torn one is off by one stint.
const MAX_TRIES: u32 = 64;
/// A stint younger than this is charged as its clock says; an older one is worth looking up what was stolen of it.
const LONG_STINT_NS: u64 = 20_000_000;
/// A running task's CPU time is brought up to date at each tick, 10 ms apart at most (HZ=100).
const TICK_NS: u64 = 10_000_000;

const L_COMP: usize = 0;
const L_IDLE: usize = 1;
pub(super) const G_COMP: usize = 2;
pub(super) const WAKE_TO_RUN: usize = 3;

/// The clock of `bpf_ktime_get_ns`.
pub(crate) fn now_ns() -> u64 {
    gleaner_sys::monotonic().0
}

/// Everything one vCPU counted until it was read, the stint in progress included.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    state: cpu_state,
    /// [`cpu_state::wall_ns`] and `exec_ns` with the stint in progress.
    wall_ns: [u64; CLASSES],
    exec_ns: [u64; CLASSES],
}

impl Totals {
    /// Reads CPU `index`. What did not change since `last` is not copied again: most of 240 possible CPUs never do.
    pub fn read(
        cpus: &MappedArray<cpu_state>,
        index: usize,
        last: Option<&Self>,
        cpu_time_of: impl Fn(u32) -> Option<u64>,
    ) -> Self {
        let seq = || cpus.read_field::<u64>(index, offset_of!(cpu_state, seq));
        let mut state = last.map_or_else(cpu_state::default, |last| last.state);
        let mut at_ns = now_ns();
        for _ in 0..MAX_TRIES {
            let before = seq();
            at_ns = now_ns();
            if before.is_multiple_of(2) {
                if last.is_none() || before != state.seq {
                    fence(Ordering::Acquire);
                    state = cpus.read(index);
                    fence(Ordering::Acquire);
                }
                if seq() == before && state.since_ns <= at_ns {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        Self::with_open_stint(&state, at_ns, cpu_time_of)
    }

    fn with_open_stint(state: &cpu_state, at_ns: u64, cpu_time_of: impl Fn(u32) -> Option<u64>) -> Self {
        let class = (state.class as usize).min(CLASSES - 1);
        let open = at_ns.saturating_sub(state.since_ns);
        let mut stolen = 0;
        if class > IDLE as usize && open > LONG_STINT_NS {
            // The kernel's count lacks what ran since the last tick; only what is missing beyond that was stolen.
            let charged = cpu_time_of(state.pid).map(|total| total.saturating_sub(state.exec_at_ns));
            stolen = charged.map_or(0, |charged| open.saturating_sub(charged).saturating_sub(TICK_NS));
        }
        let mut totals = Self { wall_ns: state.wall_ns, exec_ns: state.exec_ns, state: *state };
        totals.wall_ns[class] += open;
        totals.exec_ns[class] += open - stolen;
        totals
    }

    fn since(&self, last: &Self, count: fn(&cpu_state) -> u64) -> u64 {
        count(&self.state).wrapping_sub(count(&last.state))
    }

    fn exec_since(&self, last: &Self, class: u32) -> Nanos {
        Nanos(self.exec_ns[class as usize].saturating_sub(last.exec_ns[class as usize]))
    }

    fn wall_since(&self, last: &Self, class: u32) -> Nanos {
        Nanos(self.wall_ns[class as usize].saturating_sub(last.wall_ns[class as usize]))
    }

    pub fn voluntary_since(&self, last: &Self) -> u64 {
        self.since(last, |state| state.voluntary)
    }

    pub fn involuntary_since(&self, last: &Self) -> u64 {
        self.since(last, |state| state.involuntary)
    }

    pub fn hlts_since(&self, last: &Self) -> u64 {
        self.since(last, |state| state.hlts)
    }

    /// CPU time of the group on this vCPU.
    pub fn work_since(&self, last: &Self) -> Nanos {
        self.exec_since(last, GROUP)
    }

    /// One of the four distributions: what was recorded between the two.
    pub fn distribution_since(&self, last: &Self, which: usize) -> Distribution {
        difference(&self.state.histograms[which], &last.state.histograms[which])
    }

    /// The window of `length` between the two, in which the hypervisor reported `steal`.
    pub fn window_since(&self, last: &Self, id: VcpuId, length: Nanos, steal: Nanos) -> VcpuWindow {
        VcpuWindow {
            work: Some(self.exec_since(last, GROUP)),
            idle_entries: Some(self.since(last, |state| state.idle_entries)),
            halts: Some(self.since(last, |state| state.halts)),
            work_switches: Some(self.since(last, |state| state.work_switches)),
            yield_switches: Some(self.since(last, |state| state.yield_switches)),
            cross_wakeups: Some(self.since(last, |state| state.cross_wakeups)),
            l_comp: Some(self.distribution_since(last, L_COMP)),
            l_idle: Some(self.distribution_since(last, L_IDLE)),
            // A vCPU that has not switched since the programs were attached is idle, or would have been switched.
            ..split(
                id,
                length,
                steal,
                self.exec_since(last, YIELDING),
                self.wall_since(last, IDLE) + self.wall_since(last, UNKNOWN),
            )
        }
    }
}

fn difference(now: &histogram, last: &histogram) -> Distribution {
    if now.count == last.count {
        return Distribution::new();
    }
    let counts: Vec<u64> =
        now.buckets.iter().zip(&last.buckets).map(|(now, last)| u64::from(now.wrapping_sub(*last))).collect();
    Distribution::from_buckets(&counts, Nanos(now.sum_ns.wrapping_sub(last.sum_ns)))
}

#[cfg(test)]
mod tests {
    use super::super::OTHER;
    use super::*;

    fn state(class: u32, since_ns: u64) -> cpu_state {
        cpu_state { class, since_ns, ..cpu_state::default() }
    }

    #[test]
    fn the_four_parts_add_up_to_the_window_whatever_runs_at_its_ends() {
        for (first, second) in [(IDLE, GROUP), (GROUP, YIELDING), (YIELDING, OTHER), (OTHER, IDLE), (UNKNOWN, IDLE)] {
            let last = Totals::with_open_stint(&state(first, 100), 1_000, |_| None);
            let mut now = state(second, 1_500);
            now.wall_ns[first as usize] = 1_400;
            now.exec_ns[first as usize] = if first > IDLE { 1_300 } else { 1_400 };
            let now = Totals::with_open_stint(&now, 3_000, |_| None);
            let window = now.window_since(&last, VcpuId(0), Nanos(2_000), Nanos(100));
            assert_eq!(window.steal, Nanos(100));
            assert_eq!(window.busy + window.retained + window.halted + window.steal, Nanos(2_000), "{first} {second}");
        }
    }

    #[test]
    fn what_was_stolen_of_a_long_stint_is_seen_before_it_ends() {
        let totals = |charged: u64| {
            let state = cpu_state { exec_at_ns: 5, ..state(GROUP, 0) };
            Totals::with_open_stint(&state, 100_000_000, move |_| Some(5 + charged))
        };
        let work = |charged| totals(charged).work_since(&Totals::default());
        assert_eq!(work(30_000_000), Nanos(40_000_000));
        assert_eq!(work(95_000_000), Nanos(100_000_000));
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
