//! What slices threads really got: how long each ran at a time, and how each run ended.
//!
//! ```text
//!   RunIntervals ─┬─ bpf     every switch of the watched threads: distributions; needs privilege
//!                 └─ procfs  run time by number of runs, from schedstat: means
//!   Competition   where watched threads compete for a CPU now; for another thread, beside the windows
//! ```
//!
//! Made for an agent that runs for days: threads are added and removed with [`RunIntervals::watch`], windows are
//! differences.

mod bpf;
mod competition;
mod distribution;
mod procfs;

pub use competition::{CompetingThreads, Competition};
pub use distribution::IntervalDistribution;

use crate::vmm::ThreadCounters;
use crate::{BpfRefusal, ProcRoot};
use bpf::Programs;
use gleaner_model::{Nanos, Source};
use procfs::Threads;
use std::sync::{Arc, Mutex};

/// How to observe run intervals.
#[derive(Clone, Debug)]
pub struct RunIntervalsConfig {
    /// Where `/proc` and `/sys` are.
    pub root: ProcRoot,
    /// Most threads watched at once with BPF; each takes 12 KB of kernel memory. Others are watched through `/proc`.
    pub capacity: usize,
    /// Whether BPF may be used.
    pub bpf: bool,
}

impl Default for RunIntervalsConfig {
    fn default() -> Self {
        Self { root: ProcRoot::default(), capacity: 512, bpf: true }
    }
}

impl RunIntervalsConfig {
    /// Room for so many threads, and as many that come later.
    #[must_use]
    pub fn with_room_for(self, threads: usize) -> Self {
        Self { capacity: self.capacity.max(threads.saturating_mul(2)), ..self }
    }
}

/// What happened to the watched threads between two calls.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalsWindow {
    pub length: Nanos,
    /// One entry a watched thread, in the order in which they were given. The ended ones come a last time.
    pub threads: Vec<ThreadIntervals>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadIntervals {
    pub tid: i32,
    /// Whether it has ended; what is known is then from before.
    pub ended: bool,
    /// Time on a CPU.
    pub run: Nanos,
    /// Time it was able to run and did not.
    pub wait: Nanos,
    /// Times it got a CPU, from `/proc`. Counts the short returns after a ticker's or an interrupt thread's turn too.
    pub runs: u64,
    /// What BPF saw; `None` without it.
    pub intervals: Option<Intervals>,
}

/// Run intervals of one thread by how they ended, and its delays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intervals {
    /// Those that ended because another thread took the CPU (or by sched_yield): the slices it was given.
    pub preempted: IntervalDistribution,
    /// Those that ended because it slept: it needed no more.
    pub slept: IntervalDistribution,
    /// All that it ran between a wake-up and the sleep that ended it, however often it was preempted in between.
    pub bursts: IntervalDistribution,
    /// From being woken to running.
    pub wake_to_run: IntervalDistribution,
    /// From being preempted to running again: the paper's scheduling latency.
    pub off_preempted: IntervalDistribution,
}

impl Intervals {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.preempted.merge(&other.preempted);
        self.slept.merge(&other.slept);
        self.bursts.merge(&other.bursts);
        self.wake_to_run.merge(&other.wake_to_run);
        self.off_preempted.merge(&other.off_preempted);
    }
}

/// Observes the run intervals of a set of threads. See the module's text.
#[derive(Debug)]
pub struct RunIntervals {
    bpf: Result<Programs, BpfRefusal>,
    threads: Arc<Mutex<Threads>>,
    began: u64,
}

impl RunIntervals {
    /// Begins, with no thread watched. Where BPF is refused, [`Self::refusal`] says why and `/proc` has to do.
    pub fn new(config: &RunIntervalsConfig) -> Self {
        let bpf = if config.bpf { Programs::load(&config.root, config.capacity) } else { Err(BpfRefusal::NotAsked) };
        let threads = Arc::new(Mutex::new(Threads::new(&config.root)));
        Self { bpf, threads, began: crate::bpf::reader::now_ns() }
    }

    /// Where the figures come from.
    pub fn source(&self) -> Source {
        if self.bpf.is_ok() { Source::Bpf } else { Source::Procfs }
    }

    /// Why BPF is not used.
    pub fn refusal(&self) -> Option<&BpfRefusal> {
        self.bpf.as_ref().err()
    }

    /// Watches these threads from now on, and no others. Those that were watched before go on without a break.
    pub fn watch(&mut self, tids: &[i32]) {
        procfs::lock(&self.threads).watch(tids);
        if let Ok(programs) = &mut self.bpf {
            programs.watch(tids);
        }
    }

    /// Watched threads that BPF has no room for: of them only means are known, and competition only where two of the
    /// watched are seen to want one CPU at a time. 0 where BPF is not used at all.
    pub fn left_out(&self) -> usize {
        self.bpf.as_ref().map_or(0, Programs::left_out)
    }

    /// What happened since the last call, or since the threads were first watched.
    pub fn window(&mut self) -> IntervalsWindow {
        let now = crate::bpf::reader::now_ns();
        let length = Nanos(now.saturating_sub(std::mem::replace(&mut self.began, now)));
        let counted = procfs::lock(&self.threads).counters(length);
        let mut threads = Vec::with_capacity(counted.len());
        for (tid, counters) in counted {
            let ended = counters.is_none();
            let ThreadCounters { run, wait, runs } = counters.unwrap_or_default();
            let intervals = self.bpf.as_mut().ok().and_then(|programs| programs.intervals(tid));
            threads.push(ThreadIntervals { tid, ended, run, wait, runs, intervals });
        }
        IntervalsWindow { length, threads }
    }

    /// A view of where the watched threads compete, for another thread.
    pub fn competition(&self) -> std::io::Result<Competition> {
        match &self.bpf {
            Ok(programs) => programs.competition(Arc::clone(&self.threads)),
            Err(_) => Ok(Competition::of_procfs(Arc::clone(&self.threads))),
        }
    }
}
