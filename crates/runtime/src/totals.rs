//! What a group's windows add up to.

use crate::recent::{RecentFigures, VcpuTime, ratio};
use gleaner_model::{CpuSet, Distribution, IdleEndedBy, Nanos, VcpuId, VcpuWindow, Window};
use std::collections::BTreeMap;

/// A sum of counts of which some windows knew nothing: unknown as long as no window knew.
#[derive(Clone, Copy, Debug, Default)]
struct Known(Option<u64>);

impl Known {
    fn add(&mut self, count: Option<u64>) {
        if let Some(count) = count {
            self.0 = Some(self.0.unwrap_or(0) + count);
        }
    }
}

/// A length over the whole run.
#[derive(Clone, Debug, PartialEq)]
pub enum LengthSummary {
    /// Where only sums are known: their ratio, in nanoseconds.
    Mean(f64),
    /// Where the observer sees each; not empty.
    Distribution(Distribution),
}

/// The paper's lengths over the whole run; `None` where unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LengthSummaries {
    /// l_comp: a vCPU's busy time between two idle periods.
    pub l_comp: Option<LengthSummary>,
    /// g_comp: a thread's computation between two synchronization points.
    pub g_comp: Option<LengthSummary>,
    /// l_idle: an idle period.
    pub l_idle: Option<LengthSummary>,
    /// From wake-up to running.
    pub wake_to_run: Option<LengthSummary>,
}

/// Sums over all windows of one group.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many there were.
    pub windows: u64,
    /// Their lengths.
    pub observed: Nanos,
    /// CPU time of the group.
    pub cpu_time: Nanos,
    /// Context switches of its threads' own will.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
    /// Stolen time, on all vCPUs.
    pub steal: Nanos,
    /// What each vCPU did that it might use.
    pub vcpus: BTreeMap<VcpuId, VcpuTime>,
    active_time: Nanos,
    threads_max: u64,
    idle_entries: Known,
    halts: Known,
    idle_ended_by: Option<IdleEndedBy>,
    cross_wakeups: Known,
    /// Of the windows whose idle periods are known: work, idle time.
    work_known: Nanos,
    idle_known: Nanos,
    l_comp: Distribution,
    l_idle: Distribution,
    g_comp: Distribution,
    wake_to_run: Distribution,
}

impl Totals {
    /// Adds a window during which `active` vCPUs were the group's.
    pub(crate) fn add(&mut self, window: &Window, active: &CpuSet) {
        self.windows += 1;
        self.observed += window.length;
        self.active_time += window.length.times(active.len() as u64);
        self.steal += window.vcpus.iter().map(|vcpu| vcpu.steal).sum();
        for vcpu in &window.vcpus {
            self.vcpus.entry(vcpu.id).or_default().add(vcpu);
        }
        self.add_group(window);
        let entries = window.idle_entries_of(active);
        self.idle_entries.add(entries);
        self.halts.add(window.active(active).map(|vcpu| vcpu.halts).sum::<Option<u64>>().or(window.halts));
        self.cross_wakeups.add(window.vcpus.iter().map(|vcpu| vcpu.cross_wakeups).sum());
        if entries.is_some() {
            self.work_known += window.group.cpu_time;
            self.idle_known += window.active(active).map(VcpuWindow::idle).sum();
        }
        for vcpu in window.active(active) {
            if let Some(ended) = vcpu.idle_ended_by {
                *self.idle_ended_by.get_or_insert_default() += ended;
            }
            merge(&mut self.l_comp, vcpu.l_comp.as_ref());
            merge(&mut self.l_idle, vcpu.l_idle.as_ref());
        }
    }

    fn add_group(&mut self, window: &Window) {
        let group = &window.group;
        self.cpu_time += group.cpu_time;
        self.voluntary_switches += group.voluntary_switches;
        self.involuntary_switches += group.involuntary_switches;
        self.threads_max = self.threads_max.max(group.threads);
        merge(&mut self.g_comp, group.g_comp.as_ref());
        merge(&mut self.wake_to_run, group.wake_to_run.as_ref());
    }

    /// Most threads seen at once; `None` where all were gone before each window's end.
    pub fn threads_max(&self) -> Option<u64> {
        Some(self.threads_max).filter(|threads| *threads > 0)
    }

    /// Idle periods that began on active vCPUs; `None` where they could not be seen.
    pub fn idle_entries(&self) -> Option<u64> {
        self.idle_entries.0
    }

    /// Times an idle task was entered on them; `None` where it could not be seen.
    pub fn halts(&self) -> Option<u64> {
        self.halts.0
    }

    /// What ended idle periods of active vCPUs; `None` where it could not be seen.
    pub fn idle_ended_by(&self) -> Option<IdleEndedBy> {
        self.idle_ended_by
    }

    /// Wake-ups of the group's threads from another vCPU; `None` where they could not be seen.
    pub fn cross_wakeups(&self) -> Option<u64> {
        self.cross_wakeups.0
    }

    /// The sums of which differences tell what happened lately.
    pub(crate) fn figures(&self) -> RecentFigures {
        RecentFigures {
            observed: self.observed,
            cpu_time: self.cpu_time,
            voluntary_switches: self.voluntary_switches,
            idle_entries: self.idle_entries.0,
            work_known: self.work_known,
            idle_known: self.idle_known,
        }
    }

    /// Mean number of active vCPUs; `all` when nothing was observed.
    pub fn active_mean(&self, all: usize) -> f64 {
        if self.observed == Nanos::ZERO { all as f64 } else { self.active_time.as_f64() / self.observed.as_f64() }
    }

    /// The lengths over the whole run: distributions where the observer has them, else means as ratios of sums.
    pub fn lengths(&self) -> LengthSummaries {
        let ratio = |sum: Nanos, n: Option<u64>| ratio(sum, n).map(LengthSummary::Mean);
        let seen = |all: &Distribution| (all.count() > 0).then(|| LengthSummary::Distribution(all.clone()));
        LengthSummaries {
            l_comp: seen(&self.l_comp).or_else(|| ratio(self.work_known, self.idle_entries.0)),
            g_comp: seen(&self.g_comp).or_else(|| ratio(self.cpu_time, Some(self.voluntary_switches))),
            l_idle: seen(&self.l_idle).or_else(|| ratio(self.idle_known, self.idle_entries.0)),
            wake_to_run: seen(&self.wake_to_run),
        }
    }
}

fn merge(into: &mut Distribution, from: Option<&Distribution>) {
    if let Some(from) = from {
        into.merge(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source};

    fn window(idle_entries: Option<u64>) -> Window {
        let vcpu = |id| VcpuWindow { halted: Nanos(400), steal: Nanos(10), ..VcpuWindow::new(VcpuId(id)) };
        Window {
            at: Nanos(1000),
            length: Nanos(1000),
            source: Source::Procfs,
            vcpus: vec![vcpu(0), vcpu(1)],
            idle_entries,
            halts: None,
            group: GroupWindow { cpu_time: Nanos(600), voluntary_switches: 6, threads: 3, ..GroupWindow::default() },
        }
    }

    #[test]
    fn means_are_ratios_of_sums_over_the_windows_that_know() {
        let mut totals = Totals::default();
        totals.add(&window(Some(4)), &CpuSet::first(2));
        totals.add(&window(None), &CpuSet::first(1));
        let lengths = totals.lengths();
        let mean = |length: Option<LengthSummary>| match length? {
            LengthSummary::Mean(mean) => Some(mean),
            LengthSummary::Distribution(all) => all.mean(),
        };
        assert_eq!(mean(lengths.l_comp), Some(150.0));
        assert_eq!(mean(lengths.l_idle), Some(200.0));
        assert_eq!(mean(lengths.g_comp), Some(100.0));
        assert_eq!(lengths.wake_to_run, None);
        assert_eq!((totals.halts(), totals.idle_entries()), (None, Some(4)));
        assert!((totals.active_mean(2) - 1.5).abs() < 1e-9);
        assert_eq!((totals.steal, totals.threads_max()), (Nanos(40), Some(3)));
        assert_eq!(Totals::default().threads_max(), None, "unknown is not 0");
    }
}
