//! The programs that only compute, against the same work done by one thread in a loop: nothing is left out and nothing
//! done twice.

use crate::job::Job;
use crate::work::Checksum;
use crate::{Plan, Program, Progress, Stop, run};

const ITEMS: u64 = 100;
const THREADS: u64 = 3;

/// The checksum of a loop over all items; `parts` says how many an item has where each is a result of its own.
fn in_a_loop(plan: &Plan, parts: Option<u64>) -> u64 {
    let progress = Progress::default();
    let job = Job::new(plan, &progress);
    let mut checksum = Checksum::default();
    for item in 0..ITEMS {
        match parts {
            None => checksum.add(item, job.compute(item, 0)),
            Some(parts) => (0..parts).for_each(|part| checksum.add(job.number(item, part), job.compute(item, part))),
        }
    }
    checksum.value()
}

#[test]
fn the_work_is_that_of_a_loop() {
    for (program, parts) in [
        (Program::Independent, None),
        (Program::Freqsleep, None),
        (Program::TaskQueue, None),
        (Program::Barrier, Some(THREADS)),
        (Program::Relay, Some(THREADS)),
        // Eight parts, and the one that the main thread does.
        (Program::ForkJoin, Some(9)),
    ] {
        let threads = usize::try_from(THREADS).unwrap();
        let plan = Plan { threads, iterations: 50, stop: Stop::Items(ITEMS), ..Plan::new(program) };
        let outcome = run(&plan, &Progress::default()).unwrap();
        assert_eq!(outcome.checksum, in_a_loop(&plan, parts), "{program}");
    }
}
