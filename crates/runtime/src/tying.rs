//! Who wakes whom in a group, and what its threads take: told while its policy asks for it.

use gleaner_model::{Nanos, ThreadTime, Ties, TiesWanted, VcpuId};
use gleaner_observe::{ProcRoot, WakeCounter};
use gleaner_sys::{Stat, numbered, schedstat};
use std::collections::BTreeMap;

/// Threads at most whose times are read.
const THREADS_MAX: usize = 256;

/// Tells it, or does not.
#[derive(Debug, Default)]
pub(crate) struct Tying {
    counter: Counter,
    /// Times so far of those that are asked for.
    threads: BTreeMap<i32, ThreadTime>,
    /// From the beginning of the window on.
    whole: bool,
}

#[derive(Debug, Default)]
enum Counter {
    #[default]
    Idle,
    Counting(WakeCounter),
    /// This kernel or user does not allow it.
    Refused,
}

impl Tying {
    /// What is told from now on. `processes`: the group's.
    pub(crate) fn follow(&mut self, wanted: TiesWanted, processes: impl FnOnce() -> Vec<i32>) {
        let (threads, processes) = match wanted {
            TiesWanted::Nothing => (Vec::new(), None),
            TiesWanted::Times(threads) => (threads, None),
            TiesWanted::All => {
                let processes = processes();
                let tasks = |pid: &i32| numbered(&ProcRoot::default().proc.join(format!("{pid}/task")));
                (processes.iter().flat_map(tasks).take(THREADS_MAX).collect(), Some(processes))
            }
        };
        self.count(processes);
        self.threads.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            if let (None, Some(time)) = (self.threads.get(&tid), time_of(tid)) {
                self.threads.insert(tid, time);
            }
        }
        self.whole = !self.threads.is_empty();
    }

    fn count(&mut self, processes: Option<Vec<i32>>) {
        match (&mut self.counter, processes) {
            (Counter::Counting(counter), Some(processes)) => counter.follow(&processes),
            (Counter::Idle, Some(processes)) => {
                self.counter = match WakeCounter::open(&ProcRoot::default()) {
                    Ok(mut counter) => {
                        counter.follow(&processes);
                        Counter::Counting(counter)
                    }
                    Err(refusal) => {
                        tracing::info!("who wakes whom is not counted: {refusal}");
                        Counter::Refused
                    }
                }
            }
            (Counter::Counting(_), None) => {
                if let Counter::Counting(counter) = std::mem::take(&mut self.counter) {
                    counter.retire();
                }
            }
            (Counter::Idle, None) | (Counter::Refused, _) => {}
        }
    }

    /// What happened since this was asked last.
    pub(crate) fn since_last(&mut self) -> Option<Ties> {
        if !std::mem::take(&mut self.whole) {
            return None;
        }
        let wakes = match &mut self.counter {
            Counter::Counting(counter) => counter.since_last(),
            Counter::Idle | Counter::Refused => BTreeMap::new(),
        };
        let mut threads = BTreeMap::new();
        for (tid, last) in &mut self.threads {
            let Some(now) = time_of(*tid) else { continue };
            let ThreadTime { ran, waited, stints, vcpu } = std::mem::replace(last, now);
            let since = ThreadTime {
                ran: now.ran - ran,
                waited: now.waited - waited,
                stints: now.stints.saturating_sub(stints),
                vcpu: now.vcpu.or(vcpu),
            };
            threads.insert(*tid, since);
        }
        Some(Ties { threads, wakes })
    }
}

/// What a thread took so far; `None` where it is gone.
fn time_of(tid: i32) -> Option<ThreadTime> {
    let folder = ProcRoot::default().proc.join(tid.to_string());
    let (ran, waited, stints) = schedstat(&std::fs::read(folder.join("schedstat")).ok()?)?;
    let stat = std::fs::read(folder.join("stat")).ok()?;
    let stat = Stat::parse(&stat)?;
    if matches!(stat.state(), Some(b'Z' | b'X')) {
        return None;
    }
    let vcpu = stat.number(39).map(VcpuId);
    Some(ThreadTime { ran: Nanos(ran), waited: Nanos(waited), stints, vcpu })
}
