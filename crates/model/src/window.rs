//! One observation: what the vCPUs and the managed group of threads did between two moments.
//!
//! Per vCPU, wall time is split once: `busy + retained + halted + steal = length`, to within what the observer
//! states. An *idle period* begins when the last task that is not a yielding thread leaves the vCPU (the *idle entry*)
//! and ends when the next one runs; during it the vCPU is *retained* by a yielding thread or *halted* (the idle task
//! runs).

use crate::{CpuSet, Distribution, Nanos, VcpuId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which observer filled a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// CO-RE programs on the scheduler's tracepoints: exact, with distributions.
    Bpf,
    /// `/proc` and the processes' own CPU clocks: means only, no privilege.
    Procfs,
}

/// What a means of retention counted on one vCPU, cumulative since it began. Exported by act, read by observe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainCounters {
    pub vcpu: Option<VcpuId>,
    /// The yielding thread's id; 0 before it runs, and where there is none.
    pub tid: i32,
    /// T_yield: time a yielding thread kept the vCPU from halting, stolen gaps excluded.
    pub retained: Nanos,
    /// Time that the idle task polled instead of halting, where the means counts it itself (idle-poll). It is part of
    /// what the kernel calls idle time.
    pub polled: Nanos,
    /// Idle entries that ended by a wake-up while the idle task polled, so without a halt.
    pub polls_held: u64,
    /// S_yield: how often another task displaced it.
    pub displaced: u64,
    /// How often it slept, so that the vCPU could halt (time-outs, naps, orders).
    pub sleeps: u64,
    /// How often a nap ended with the vCPU idle: from outside each looks like the end of an idle period, and is none. A
    /// nap that ended while another task had the vCPU does not count.
    pub idle_naps: u64,
    /// Time lost in gaps between two yields without having been switched out: steal, as the guest itself feels it.
    pub stolen: Nanos,
    /// Times the contention guard stopped it.
    pub guard_trips: u64,
}

/// Idle periods by what ended them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleEndedBy {
    /// An interrupt, of a device or a timer, that found no task at work where it came.
    pub interrupts: u64,
    /// A thread at work on another vCPU; an interrupt that came to such a vCPU is one of these.
    pub wakeups: u64,
}

impl IdleEndedBy {
    /// The share that interrupts ended, 0 to 1; `None` where there was no idle period.
    pub fn by_interrupts(&self) -> Option<f64> {
        let all = self.interrupts.saturating_add(self.wakeups);
        (all > 0).then(|| self.interrupts as f64 / all as f64)
    }
}

impl std::ops::AddAssign for IdleEndedBy {
    fn add_assign(&mut self, other: Self) {
        self.interrupts = self.interrupts.saturating_add(other.interrupts);
        self.wakeups = self.wakeups.saturating_add(other.wakeups);
    }
}

/// One vCPU over one window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuWindow {
    pub id: VcpuId,
    /// Time working, for the group, for others or for interrupts (steal excluded).
    pub busy: Nanos,
    /// Of that, time working for the group; `None` where the observer cannot tell.
    pub work: Option<Nanos>,
    /// Time a yielding thread held it.
    pub retained: Nanos,
    /// Time the idle task ran.
    pub halted: Nanos,
    /// Time the hypervisor took while the vCPU wanted to run, as it reports it (in ticks of 10 ms); 0 where it does
    /// not.
    pub steal: Nanos,
    /// Idle periods that began.
    pub idle_entries: Option<u64>,
    /// Times the idle task was entered.
    pub halts: Option<u64>,
    /// Idle periods that ended while the idle task still polled; `None` where nobody counts them.
    pub polls_held: Option<u64>,
    /// What ended the idle periods that ended; `None` where the observer cannot tell. Nothing is decided by it, so
    /// captures leave it out.
    #[serde(skip)]
    pub idle_ended_by: Option<IdleEndedBy>,
    /// Switches away from a thread of the group.
    pub work_switches: Option<u64>,
    /// S_yield: times another task displaced the yielding thread. Its going to sleep is none.
    pub yield_switches: Option<u64>,
    /// Wake-ups of the group's threads sent here from another vCPU.
    pub cross_wakeups: Option<u64>,
    /// Computation lengths that ended in this window.
    pub l_comp: Option<Distribution>,
    /// Idle lengths that ended in this window.
    pub l_idle: Option<Distribution>,
}

impl VcpuWindow {
    /// A vCPU of which nothing is known but its id: all zero, all `None`.
    pub fn new(id: VcpuId) -> Self {
        Self {
            id,
            busy: Nanos::ZERO,
            work: None,
            retained: Nanos::ZERO,
            halted: Nanos::ZERO,
            steal: Nanos::ZERO,
            idle_entries: None,
            halts: None,
            polls_held: None,
            idle_ended_by: None,
            work_switches: None,
            yield_switches: None,
            cross_wakeups: None,
            l_comp: None,
            l_idle: None,
        }
    }

    /// Idle time whichever way it was spent: retained + halted.
    pub fn idle(&self) -> Nanos {
        self.retained + self.halted
    }

    /// Busy share of the time the hypervisor left to it (0 to 1).
    pub fn utilization(&self, length: Nanos) -> f64 {
        self.busy.share_of(length - self.steal).min(1.0)
    }
}

/// System calls that a group made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCalls {
    /// All but `futex`, yields and sleeps: a piece of work takes as many wherever its threads run.
    pub steady: u64,
    /// Waits for a lock that was taken (`FUTEX_WAIT`): they come and go with the place.
    pub lock_waits: u64,
    /// Wake-ups by `futex` (`FUTEX_WAKE`), of locks and of all else: so do they.
    pub wakes: u64,
    /// Waits on a condition or a semaphore, by a hash of the word that is waited for (0 to 63). Some are spared where
    /// what is waited for is there already.
    pub waits_at: BTreeMap<u8, u64>,
    /// What each of them took longer for being counted.
    pub counting: Nanos,
}

impl SystemCalls {
    /// All that were counted.
    pub fn all(&self) -> u64 {
        self.steady + self.waits() + self.lock_waits + self.wakes
    }

    /// All waits on conditions and semaphores.
    pub fn waits(&self) -> u64 {
        self.waits_at.values().sum()
    }

    /// Those that are in this count and were not in an earlier one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let waits_since = |(at, waits): (&u8, &u64)| {
            let new = waits.saturating_sub(earlier.waits_at.get(at).copied().unwrap_or(0));
            (new > 0).then_some((*at, new))
        };
        Self {
            steady: self.steady.saturating_sub(earlier.steady),
            lock_waits: self.lock_waits.saturating_sub(earlier.lock_waits),
            wakes: self.wakes.saturating_sub(earlier.wakes),
            waits_at: self.waits_at.iter().filter_map(waits_since).collect(),
            counting: self.counting,
        }
    }
}

impl std::ops::AddAssign for SystemCalls {
    fn add_assign(&mut self, other: Self) {
        self.steady += other.steady;
        self.lock_waits += other.lock_waits;
        self.wakes += other.wakes;
        self.counting = self.counting.max(other.counting);
        for (at, waits) in other.waits_at {
            *self.waits_at.entry(at).or_default() += waits;
        }
    }
}

/// The managed group of threads over one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupWindow {
    /// Threads alive at the end.
    pub threads: u64,
    /// Threads born during the window.
    pub new_threads: u64,
    /// Calls of exec during the window; `None` where the observer cannot tell.
    pub execs: Option<u64>,
    /// T_work: CPU time of the group (steal excluded where the kernel accounts it).
    pub cpu_time: Nanos,
    /// Time that its threads could run and waited for a vCPU, summed over them; `None` where the observer cannot tell.
    /// It is counted when a thread gets one; by BPF without the time after a preemption.
    pub waited: Option<Nanos>,
    /// S_work: voluntary context switches, the only ones that are synchronization.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
    /// Computation granularities that ended in this window.
    pub g_comp: Option<Distribution>,
    /// Delay from wake-up to running.
    pub wake_to_run: Option<Distribution>,
    /// What the program got done in the window, by a counter of its own; `None` where it names none, or it was reset.
    pub progress: Option<u64>,
    /// System calls that it made; `None` where nobody counts them: they are counted during a trial alone.
    pub system_calls: Option<Box<SystemCalls>>,
    /// One active vCPU for each thread of the group that has bound itself to some of them: while that one is active,
    /// the thread has one. Empty as long as the observer was not told which are active.
    pub pinned: CpuSet,
}

/// One observation. See the module's text for what is counted how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When it ended, on the clock whose zero is the exec of the managed program.
    pub at: Nanos,
    /// How long it was.
    pub length: Nanos,
    /// Who observed it.
    pub source: Source,
    /// The online vCPUs that the group may use, ascending by id.
    pub vcpus: Vec<VcpuWindow>,
    /// Idle periods that began on all of them together; `None` where the observer cannot tell.
    pub idle_entries: Option<u64>,
    /// Times an idle task was entered on any of them; `None` where the observer cannot tell.
    pub halts: Option<u64>,
    /// The managed threads.
    pub group: GroupWindow,
}

/// The paper's three measurements (section 5), averages in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Computation length l_comp: a vCPU's busy time between two idle periods. T_work / idle periods.
    pub l_comp: f64,
    /// Computation granularity g_comp: a thread's computation between two synchronization points. T_work / S_work.
    pub g_comp: f64,
    /// Idle length l_idle: (retained + halted) / idle periods, over the active vCPUs.
    pub l_idle: f64,
}

impl Window {
    /// The vCPUs of `active` that are in this window (an offline one is not).
    pub fn active<'a>(&'a self, active: &'a CpuSet) -> impl Iterator<Item = &'a VcpuWindow> + 'a {
        self.vcpus.iter().filter(|vcpu| active.contains(vcpu.id))
    }

    /// Idle periods on the vCPUs of `active`: summed per vCPU where known, else the window's own total.
    pub fn idle_entries_of(&self, active: &CpuSet) -> Option<u64> {
        self.active(active).map(|vcpu| vcpu.idle_entries).sum::<Option<u64>>().or(self.idle_entries)
    }

    /// How many threads of the group ran or waited to run at once, on average, as CPU time and waits say it; `None`
    /// where the observer cannot tell.
    pub fn runnable_mean(&self) -> Option<f64> {
        Some((self.group.cpu_time + self.group.waited?).share_of(self.length))
    }

    /// The averages as ratios of sums over the vCPUs of `active`; `None` when idle periods are unknown or there was
    /// none, or when no thread of the group gave up a vCPU of its own will.
    pub fn lengths(&self, active: &CpuSet) -> Option<Lengths> {
        let periods = self.idle_entries_of(active).filter(|n| *n > 0)? as f64;
        let switches = Some(self.group.voluntary_switches).filter(|n| *n > 0)? as f64;
        let idle: Nanos = self.active(active).map(VcpuWindow::idle).sum();
        let work = self.group.cpu_time.as_f64();
        Some(Lengths { l_comp: work / periods, g_comp: work / switches, l_idle: idle.as_f64() / periods })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(per_vcpu: Option<u64>, total: Option<u64>) -> Window {
        let vcpu = |id| VcpuWindow {
            busy: Nanos(600),
            halted: Nanos(300),
            retained: Nanos(100),
            idle_entries: per_vcpu,
            ..VcpuWindow::new(VcpuId(id))
        };
        Window {
            at: Nanos(1000),
            length: Nanos(1000),
            source: Source::Bpf,
            vcpus: vec![vcpu(0), vcpu(1)],
            idle_entries: total,
            halts: None,
            group: GroupWindow { cpu_time: Nanos(1200), voluntary_switches: 12, ..GroupWindow::default() },
        }
    }

    #[test]
    fn averages_are_ratios_of_sums() {
        let lengths = window(Some(2), None).lengths(&CpuSet::first(2)).unwrap();
        assert_eq!(lengths, Lengths { l_comp: 300.0, g_comp: 100.0, l_idle: 200.0 });
    }

    #[test]
    fn the_total_serves_where_a_vcpu_does_not_know() {
        assert_eq!(window(None, Some(4)).lengths(&CpuSet::first(2)), window(Some(2), None).lengths(&CpuSet::first(2)));
        assert_eq!(window(None, None).lengths(&CpuSet::first(2)), None);
        assert_eq!(window(Some(0), None).lengths(&CpuSet::first(2)), None);
    }
}
