//! Threads that change their common address space all the time, as allocators under load and garbage collectors do.
//!
//! Each item maps memory, touches it, takes the right to write away and gives it back, and unmaps it. After each change
//! the other vCPUs on which this process runs must forget their translations (a TLB shootdown): an interrupt that a
//! vCPU without a physical CPU answers late, while the one that sent it waits.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::region::Region;
use crate::work::mix;

const PAGES: usize = 16;
/// Larger pages are touched more than once, which does no harm.
const PAGE_BYTES: usize = 4096;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    job.crew(job.plan.threads, |_| {
        let mut tally = Tally::default();
        while let Some(item) = job.claim() {
            tally.checksum.add(item, churn(job.compute(item, 0))?);
            job.finish();
        }
        Ok(tally)
    })
}

/// A number that went through every page of a region.
fn churn(number: u64) -> Result<u64, WorkloadError> {
    let mut region = Region::map(PAGES * PAGE_BYTES)?;
    for (page, first) in region.chunks_mut(PAGE_BYTES).zip(0..) {
        page[..8].copy_from_slice(&mix(number, first).to_le_bytes());
    }
    let (region, number) = region.while_read_only(|bytes| {
        bytes.chunks(PAGE_BYTES).fold(0, |sum, page| {
            let word = std::array::from_fn(|n| page[n]);
            mix(sum, u64::from_le_bytes(word))
        })
    })?;
    drop(region);
    Ok(number)
}
