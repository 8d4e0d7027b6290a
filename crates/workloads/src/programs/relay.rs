//! A chain of threads that hand items on through places for one: nearly every hand-over blocks somebody and wakes
//! somebody else.
//!
//! What is left of a pipeline when its critical sections are short: blocked-waiter wake-ups and hardly anything else.
//! An item is computed on once by every thread, so its work grows with the threads.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::queue::Queue;

/// One place: who is ahead waits.
const CAPACITY: usize = 1;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let last = job.plan.threads - 1;
    // The place between thread n and the next.
    let places: Vec<Queue<u64>> = (0..last).map(|_| Queue::new(CAPACITY, 1, 1)).collect();
    job.crew(job.plan.threads, |number| {
        let before = number.checked_sub(1).map(|place| places[place].consumer());
        let after = places.get(number).map(Queue::producer);
        let mut tally = Tally::default();
        loop {
            let item = before.as_ref().map_or_else(|| job.claim(), crate::queue::Consumer::take);
            let Some(item) = item else { return Ok(tally) };
            let part = number as u64;
            tally.checksum.add(job.number(item, part), job.compute(item, part));
            match &after {
                // Whoever would take it has failed to start.
                Some(after) if !after.put(item) => return Ok(tally),
                Some(_) => {}
                None => job.finish(),
            }
        }
    })
}
