//! streamcluster: all threads compute a little, wait for each other, and go on; thousands of times.
//!
//! An item is a phase. Each thread has its own part in each, so the work of a phase grows with the threads.

use crate::barrier::Barrier;
use crate::job::{Job, Tally};
use crate::plan::WorkloadError;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let barrier = Barrier::new(job.plan.threads, None);
    job.crew(job.plan.threads, |number| {
        let mut tally = Tally::default();
        let part = number as u64;
        // The last to arrive decides for all whether there is another phase.
        let mut phase = barrier.wait(|| job.claim());
        while let Some(item) = phase {
            tally.checksum.add(job.number(item, part), job.compute(item, part));
            phase = barrier.wait(|| {
                job.finish();
                job.claim()
            });
        }
        Ok(tally)
    })
}
