//! bodytrack, vips: a pool of threads that is woken for each parallel region, and a main thread that waits for it.
//!
//! An item is a region: the main thread prepares it (as much computation as one part), wakes the pool, and sleeps until
//! all [`PARTS`] parts are done. Parts are handed out under the mutex, so the work of a region is the same for every
//! number of threads.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::pthread::Monitor;

/// Parts of a region.
const PARTS: u64 = 8;
/// The part that the main thread does before it wakes the others.
const SERIAL: u64 = PARTS;

#[derive(Default)]
struct Region {
    item: u64,
    handed_out: u64,
    done: u64,
    over: bool,
}

struct Pool {
    region: Monitor<Region, 2>,
}

/// The condition variables.
const WORK: usize = 0;
const ALL_DONE: usize = 1;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let idle = Region { handed_out: PARTS, done: PARTS, ..Region::default() };
    let pool = Pool { region: Monitor::new(idle) };
    job.crew(job.plan.threads + 1, |number| Ok(if number == 0 { pool.lead(job) } else { pool.follow(job) }))
}

impl Pool {
    fn lead(&self, job: &Job) -> Tally {
        let mut tally = Tally::default();
        while let Some(item) = job.claim() {
            tally.checksum.add(job.number(item, SERIAL), job.compute(item, SERIAL));
            let mut region = self.region.lock();
            *region = Region { item, ..Region::default() };
            self.region.broadcast::<WORK>();
            region.wait_until::<ALL_DONE>(|region| region.done == PARTS);
            job.finish();
        }
        self.region.lock().over = true;
        self.region.broadcast::<WORK>();
        tally
    }

    fn follow(&self, job: &Job) -> Tally {
        let mut tally = Tally::default();
        let mut region = self.region.lock();
        loop {
            region.wait_until::<WORK>(|region| region.over || region.handed_out < PARTS);
            if region.over {
                return tally;
            }
            let (item, part) = (region.item, region.handed_out);
            region.handed_out += 1;
            drop(region);
            tally.checksum.add(job.number(item, part), job.compute(item, part));
            region = self.region.lock();
            region.done += 1;
            if region.done == PARTS {
                self.region.signal::<ALL_DONE>();
            }
        }
    }
}
