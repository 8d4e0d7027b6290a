//! A guest kernel's spinlocks: a ticket lock that its waiters spin for, in the order in which they came.
//!
//! What the micro-sliced paper's Table I is about: a vCPU that loses its pCPU while it holds the lock makes everybody
//! wait for as long as others' slices last, and so does one that loses it while it waits, for those behind it. Kernels
//! up to 4.1 had ticket locks; today's queued ones hand over in the same order. Here it is a program's own, so that
//! holding and waiting can be timed in any guest.
//!
//! An item is a computation outside, of the plan's granularity, and a critical section of [`HELD`] turns. Both wait
//! times and holding times are recorded: from wanting the lock to having it, and from having it to giving it back.

use crate::job::{Job, Tally};
use crate::latency::Latencies;
use crate::plan::WorkloadError;
use crate::work::{ITERATIONS_PER_US, compute};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// The critical section, in turns of the loop: 1 us, as kernel sections are (Table I, solo: 0.9 to 4.2 us).
const HELD: u64 = ITERATIONS_PER_US;

/// Served in the order of arrival; waiters spin with PAUSE, which is what pause-loop exits look for.
#[derive(Default)]
struct TicketLock {
    next: AtomicU32,
    served: AtomicU32,
}

impl TicketLock {
    fn with<T>(&self, section: impl FnOnce() -> T) -> T {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        while self.served.load(Ordering::Acquire) != ticket {
            spin_loop();
        }
        let result = section();
        // Nobody else writes while the lock is held.
        self.served.store(ticket.wrapping_add(1), Ordering::Release);
        result
    }
}

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let lock = TicketLock::default();
    // Guarded by the lock alone: two at a time would lose additions, and the checksum would say so.
    let sum = AtomicU64::new(0);
    let mut tally = job.crew(job.plan.threads, |_| {
        let mut tally =
            Tally { latency: Some(Latencies::default()), holding: Some(Latencies::default()), ..Tally::default() };
        while let Some(item) = job.claim() {
            let result = job.compute(item, 0);
            let asked_at = Instant::now();
            let (waited, held) = lock.with(|| {
                let begun = Instant::now();
                let more = compute(result, HELD);
                sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
                (begun - asked_at, begun.elapsed())
            });
            tally.latency.iter_mut().for_each(|all| all.record(waited));
            tally.holding.iter_mut().for_each(|all| all.record(held));
            job.finish();
        }
        Ok(tally)
    })?;
    tally.checksum.add(0, sum.into_inner());
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Program, Progress, Stop};

    #[test]
    fn nobody_is_in_the_section_twice() {
        let plan = Plan { threads: 2, iterations: 20, stop: Stop::Items(300), ..Plan::new(Program::SpinLock) };
        let outcome = crate::run(&plan, &Progress::default()).unwrap();
        let progress = Progress::default();
        let job = Job::new(&plan, &progress);
        let sum = (0..300).fold(0u64, |sum, item| sum.wrapping_add(compute(job.compute(item, 0), HELD)));
        let mut expected = crate::work::Checksum::default();
        expected.add(0, sum);
        assert_eq!(outcome.checksum, expected.value());
        let (waited, held) = (outcome.latency.unwrap(), outcome.holding.unwrap());
        assert_eq!((waited.n, held.n), (300, 300));
        assert!(held.p50.0 > 0);
    }
}
