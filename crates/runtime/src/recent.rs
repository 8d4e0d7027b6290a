//! What happened lately, as differences of sums: a live view asks how fast, not how much.

use gleaner_model::{Nanos, VcpuId, VcpuWindow, Window};
use std::collections::BTreeMap;

/// What happened since the older mark is recent: one to two of these.
const MARK_EVERY: Nanos = Nanos::from_secs(1);

/// What one vCPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuTime {
    /// At work, for whomever.
    pub busy: Nanos,
    /// Idle and kept awake.
    pub retained: Nanos,
    /// Idle and halted.
    pub halted: Nanos,
    /// Taken by the host.
    pub steal: Nanos,
}

impl VcpuTime {
    pub(crate) fn add(&mut self, window: &VcpuWindow) {
        self.busy += window.busy;
        self.retained += window.retained;
        self.halted += window.halted;
        self.steal += window.steal;
    }

    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy - earlier.busy,
            retained: self.retained - earlier.retained,
            halted: self.halted - earlier.halted,
            steal: self.steal - earlier.steal,
        }
    }
}

/// How sums stood one to two seconds ago; nothing, where they are younger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks<T> {
    older: T,
    newer: T,
    newer_at: Nanos,
}

impl<T: Clone> Marks<T> {
    /// After windows of `observed` in all, it is `sums`.
    pub(crate) fn follow(&mut self, sums: &T, observed: Nanos) {
        if observed - self.newer_at >= MARK_EVERY {
            self.older = std::mem::replace(&mut self.newer, sums.clone());
            self.newer_at = observed;
        }
    }

    /// Before a window of `length` it was `sums`: what came before a long one is not recent.
    pub(crate) fn before(&mut self, sums: &T, length: Nanos, observed: Nanos) {
        if length >= MARK_EVERY {
            self.forget(sums, observed);
        }
    }

    /// Nothing that came before is recent.
    pub(crate) fn forget(&mut self, sums: &T, observed: Nanos) {
        (self.older, self.newer, self.newer_at) = (sums.clone(), sums.clone(), observed);
    }

    /// From when on it is recent.
    pub(crate) fn older(&self) -> &T {
        &self.older
    }
}

/// What the machine's vCPUs did, for whomever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes {
    /// Lengths of the windows that it was seen in; zero where nobody looked.
    pub observed: Nanos,
    /// Idle periods that began on all of them together; `None` where no window knew.
    pub idle_entries: Option<u64>,
    /// Times an idle task was entered on any of them; `None` where no window knew.
    pub halts: Option<u64>,
    /// Of each vCPU that was there.
    pub vcpus: BTreeMap<VcpuId, VcpuTime>,
}

impl MachineTimes {
    pub(crate) fn add(&mut self, window: &Window) {
        self.observed += window.length;
        for vcpu in &window.vcpus {
            self.vcpus.entry(vcpu.id).or_default().add(vcpu);
        }
        let of_vcpus = |count: fn(&gleaner_model::VcpuWindow) -> Option<u64>| window.vcpus.iter().map(count).sum();
        self.idle_entries = plus(self.idle_entries, window.idle_entries.or_else(|| of_vcpus(|vcpu| vcpu.idle_entries)));
        self.halts = plus(self.halts, window.halts.or_else(|| of_vcpus(|vcpu| vcpu.halts)));
    }

    /// What was added since it was `earlier`. A vCPU of which nothing was seen is not in it.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let of_vcpu = |(id, time): (&VcpuId, &VcpuTime)| {
            let time = time.since(&earlier.vcpus.get(id).copied().unwrap_or_default());
            (time != VcpuTime::default()).then_some((*id, time))
        };
        Self {
            observed: self.observed - earlier.observed,
            idle_entries: minus(self.idle_entries, earlier.idle_entries),
            halts: minus(self.halts, earlier.halts),
            vcpus: self.vcpus.iter().filter_map(of_vcpu).collect(),
        }
    }
}

/// What one group did lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentFigures {
    /// Lengths of the windows that it was seen in.
    pub observed: Nanos,
    pub cpu_time: Nanos,
    /// Context switches of its threads' own will.
    pub voluntary_switches: u64,
    /// Idle periods that began on its vCPUs; `None` where no window knew.
    pub idle_entries: Option<u64>,
    /// Of the windows whose idle periods are known: CPU time, and idle time of its vCPUs.
    pub(crate) work_known: Nanos,
    pub(crate) idle_known: Nanos,
}

impl RecentFigures {
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            observed: self.observed - earlier.observed,
            cpu_time: self.cpu_time - earlier.cpu_time,
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            idle_entries: minus(self.idle_entries, earlier.idle_entries),
            work_known: self.work_known - earlier.work_known,
            idle_known: self.idle_known - earlier.idle_known,
        }
    }

    /// l_comp: a vCPU's busy time between two idle periods, mean, in nanoseconds.
    pub fn l_comp(&self) -> Option<f64> {
        ratio(self.work_known, self.idle_entries)
    }

    /// g_comp: a thread's computation between two synchronization points, mean, in nanoseconds.
    pub fn g_comp(&self) -> Option<f64> {
        ratio(self.cpu_time, Some(self.voluntary_switches))
    }

    /// l_idle: an idle period, mean, in nanoseconds.
    pub fn l_idle(&self) -> Option<f64> {
        ratio(self.idle_known, self.idle_entries)
    }
}

/// A mean as a ratio of sums. A sum of zero is one too short to be seen.
pub(crate) fn ratio(sum: Nanos, n: Option<u64>) -> Option<f64> {
    let n = n.filter(|n| *n > 0 && sum > Nanos::ZERO)?;
    Some(sum.as_f64() / n as f64)
}

fn plus(sum: Option<u64>, count: Option<u64>) -> Option<u64> {
    count.map(|count| sum.unwrap_or(0) + count).or(sum)
}

fn minus(sum: Option<u64>, earlier: Option<u64>) -> Option<u64> {
    sum.map(|sum| sum.saturating_sub(earlier.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source, VcpuWindow};

    fn window(ids: &[u32], idle_entries: Option<u64>) -> Window {
        let vcpu = |id: &u32| VcpuWindow {
            busy: Nanos::from_millis(60),
            halted: Nanos::from_millis(40),
            ..VcpuWindow::new(VcpuId(*id))
        };
        Window {
            at: Nanos::ZERO,
            length: Nanos::from_millis(100),
            source: Source::Procfs,
            vcpus: ids.iter().map(vcpu).collect(),
            idle_entries,
            halts: None,
            group: GroupWindow::default(),
        }
    }

    #[test]
    fn what_is_recent_is_one_to_two_seconds_old() {
        let (mut times, mut marks) = (MachineTimes::default(), Marks::default());
        for n in 1..=100_u64 {
            times.add(&window(&[0, 1], Some(7)));
            marks.follow(&times, times.observed);
            let recent = times.since(marks.older());
            let windows = recent.observed.0 / Nanos::from_millis(100).0;
            assert_eq!(windows, if n < 20 { n } else { 10 + n % 10 }, "after {n}");
            assert_eq!((recent.idle_entries, recent.halts), (Some(7 * windows), None));
            assert_eq!(recent.vcpus[&VcpuId(1)].busy, Nanos::from_millis(60).times(windows));
        }
        marks.forget(&times, times.observed);
        assert_eq!(times.since(marks.older()), MachineTimes { idle_entries: Some(0), ..MachineTimes::default() });
    }

    #[test]
    fn a_vcpu_that_went_is_no_longer_recent_and_stays_in_the_sum() {
        let (mut times, mut marks) = (MachineTimes::default(), Marks::default());
        for n in 0..50 {
            times.add(&window(if n < 10 { &[0, 1] } else { &[0] }, None));
            marks.follow(&times, times.observed);
        }
        let recent = times.since(marks.older());
        assert_eq!(recent.vcpus.keys().collect::<Vec<_>>(), [&VcpuId(0)]);
        assert_eq!((times.vcpus.len(), recent.idle_entries), (2, None));
    }
}
