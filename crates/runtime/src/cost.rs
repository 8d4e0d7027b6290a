//! What Gleaner itself takes of the machine, as the kernel counts it.
//!
//! Two figures, apart. One is the CPU time of this process, all of its threads: what `/proc/PID/stat` says. The other
//! is what its BPF programs take of whoever they interrupt: the kernel counts that where `kernel.bpf_stats_enabled` is
//! on, and nobody knows it elsewhere. Both are of the last ten seconds, because what a daemon took when it began says
//! little of what it takes now.

use gleaner_model::Nanos;
use gleaner_sys::{monotonic, process_cpu_time};
use std::collections::VecDeque;

/// What is told is of so long, or a little more.
const LATELY: Nanos = Nanos::from_secs(10);
/// How often it is noted.
const NOTE: Nanos = Nanos::from_secs(1);

/// What was taken lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// In how long.
    pub elapsed: Nanos,
    /// CPU time of this process, yielding threads included.
    pub cpu: Nanos,
    /// Run time of its BPF programs; `None` where the kernel does not count it, and where there are none.
    pub bpf: Option<Nanos>,
}

/// How much there had been at one moment.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Nanos,
    cpu: Nanos,
    /// Runs of the programs, and the time they took.
    bpf: Option<(u64, Nanos)>,
}

impl Note {
    fn now(bpf: Option<(u64, Nanos)>) -> Self {
        Self { at: monotonic(), cpu: process_cpu_time(0).unwrap_or(Nanos::ZERO), bpf }
    }

    fn since(self, earlier: Self) -> OwnCost {
        let counted = earlier.bpf.zip(self.bpf).filter(|(earlier, now)| now.0 > earlier.0);
        OwnCost {
            elapsed: self.at - earlier.at,
            cpu: self.cpu - earlier.cpu,
            bpf: counted.map(|(earlier, now)| now.1 - earlier.1),
        }
    }
}

/// Keeps the notes of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct CostMeter(VecDeque<Note>);

impl CostMeter {
    /// To be called now and then; `bpf`: runs of the programs, and the time they took.
    pub(crate) fn follow(&mut self, bpf: impl FnOnce() -> Option<(u64, Nanos)>) {
        let at = monotonic();
        if self.0.back().is_some_and(|last| at - last.at < NOTE) {
            return;
        }
        self.add(Note::now(bpf()));
    }

    fn add(&mut self, note: Note) {
        self.0.push_back(note);
        // The first one is what everything is told since.
        while self.0.get(1).is_some_and(|second| note.at - second.at >= LATELY) {
            self.0.pop_front();
        }
    }

    /// Until now.
    pub(crate) fn lately(&self, bpf: Option<(u64, Nanos)>) -> OwnCost {
        self.0.front().map_or_else(OwnCost::default, |first| Note::now(bpf).since(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(second: u64, cpu_ms: u64, bpf: Option<(u64, u64)>) -> Note {
        let ms = Nanos::from_millis;
        Note { at: Nanos::from_secs(second), cpu: ms(cpu_ms), bpf: bpf.map(|(runs, took)| (runs, ms(took))) }
    }

    #[test]
    fn what_is_told_is_of_the_last_ten_seconds() {
        let mut meter = CostMeter::default();
        // It begins with a busy second.
        (0..30).for_each(|second| meter.add(note(second, 900 + 10 * second, None)));
        let lately = note(29, 900 + 290, None).since(meter.0[0]);
        assert_eq!(lately, OwnCost { elapsed: LATELY, cpu: Nanos::from_millis(100), bpf: None });
        assert_eq!(meter.0.len(), 11);
    }

    #[test]
    fn programs_that_did_not_run_were_not_counted() {
        let (off, on) = (note(1, 0, Some((500, 7))), note(2, 0, Some((900, 9))));
        assert_eq!(note(3, 0, Some((500, 7))).since(off).bpf, None);
        assert_eq!(on.since(off).bpf, Some(Nanos::from_millis(2)));
        assert_eq!(on.since(note(1, 0, None)).bpf, None);
    }
}
