//! The paper's second neighbour (section 3.2): a thread per vCPU that calls `nanosleep(1)` over and over.
//!
//! It keeps its vCPUs busy with going to sleep and waking up, so a hypervisor that has to share a CPU between it and
//! somebody else switches all the time, where beside [`super::matmul`] it switches at the end of slices only.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use rustix::thread::{Timespec, nanosleep};

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    job.crew(job.plan.threads, |_| {
        let mut tally = Tally::default();
        while let Some(item) = job.claim() {
            tally.checksum.add(item, job.compute(item, 0));
            // A signal ends it early, which changes nothing.
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1 });
            job.finish();
        }
        Ok(tally)
    })
}
