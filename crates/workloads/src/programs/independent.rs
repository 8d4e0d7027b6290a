//! Threads that never wait for one another, as in blackscholes and swaptions: nothing for Gleaner to gain, and nothing
//! to lose.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    job.crew(job.plan.threads, |_| {
        let mut tally = Tally::default();
        while let Some(item) = job.claim() {
            tally.checksum.add(item, job.compute(item, 0));
            job.finish();
        }
        Ok(tally)
    })
}
