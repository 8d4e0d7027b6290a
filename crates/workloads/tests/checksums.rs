//! The checksum proves the work: the same for the same items, however the threads took turns, and another one without
//! one of them.

use gleaner_workloads::{Ended, Outcome, Plan, Program, Progress, Stop, WorkloadError, run};
use std::time::Duration;

/// Small enough for a debug build.
const ITERATIONS: u64 = 200;
const ITEMS: u64 = 120;

fn plan(program: Program) -> Plan {
    Plan { iterations: ITERATIONS, stop: Stop::Items(ITEMS), threads: 2, ..Plan::new(program) }
}

#[track_caller]
fn outcome(plan: &Plan) -> Outcome {
    let progress = Progress::default();
    let outcome = run(plan, &progress).unwrap_or_else(|error| panic!("{}: {error}", plan.program));
    assert_eq!(outcome.items, progress.items());
    outcome
}

fn checksum(plan: &Plan) -> u64 {
    let outcome = outcome(plan);
    assert_eq!((Stop::Items(outcome.items), outcome.ended), (plan.stop, Ended::Items), "{}", plan.program);
    outcome.checksum
}

/// All but the one that needs a server.
fn programs() -> impl Iterator<Item = Program> {
    Program::ALL.into_iter().filter(|program| *program != Program::OpenLoop)
}

#[test]
fn the_same_work_gives_the_same_checksum() {
    for program in programs() {
        let first = checksum(&plan(program));
        for repetition in 1..4 {
            assert_eq!(checksum(&plan(program)), first, "{program}, repetition {repetition}");
        }
        for threads in [1, 3, 8] {
            // At a barrier and in a relay each thread has a part of its own in each item: more threads, more work.
            let same = checksum(&Plan { threads, ..plan(program) }) == first;
            assert_eq!(same, !matches!(program, Program::Barrier | Program::Relay), "{program} with {threads} threads");
        }
    }
}

#[test]
fn other_work_gives_another_checksum() {
    for program in programs() {
        let plan = plan(program);
        let first = checksum(&plan);
        for (what, other) in [
            ("an item less", Plan { stop: Stop::Items(ITEMS - 1), ..plan.clone() }),
            ("an item more", Plan { stop: Stop::Items(ITEMS + 1), ..plan.clone() }),
            ("another seed", Plan { seed: 2, ..plan.clone() }),
            // Enough for matmul's second row and the pipeline's chunks.
            ("another granularity", Plan { iterations: 50 * gleaner_workloads::ITERATIONS_PER_US, ..plan.clone() }),
        ] {
            assert_ne!(checksum(&other), first, "{program}, {what}");
        }
    }
}

#[test]
fn a_timed_run_did_the_items_it_says() {
    for program in programs() {
        let timed = outcome(&Plan { stop: Stop::After(Duration::from_millis(30)), ..plan(program) });
        assert_eq!(timed.ended, Ended::Time, "{program}");
        assert!(timed.items > 0 && timed.wall.0 >= 30_000_000, "{program}: {timed:?}");
        let fixed = checksum(&Plan { stop: Stop::Items(timed.items), ..plan(program) });
        assert_eq!(timed.checksum, fixed, "{program}: {} items", timed.items);
    }
}

#[test]
fn it_ends_when_told() {
    for program in programs() {
        let progress = Progress::default();
        let plan = Plan { stop: Stop::Told, threads: 3, ..plan(program) };
        let outcome = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&plan, &progress));
            while progress.items() < 5 {
                std::thread::yield_now();
            }
            progress.stop();
            running.join().unwrap().unwrap()
        });
        assert_eq!(outcome.ended, Ended::Told, "{program}");
        assert!(outcome.items >= 5, "{program}");
        // Told before it began: nothing is done.
        assert_eq!(run(&plan, &progress).unwrap().checksum, run(&plan, &progress).unwrap().checksum);
    }
}

#[test]
fn fewer_items_than_threads() {
    for program in programs() {
        let one = Plan { stop: Stop::Items(1), threads: 8, ..plan(program) };
        assert_eq!(outcome(&one).items, 1, "{program}");
    }
}

#[test]
fn programs_wait_as_they_say() {
    for (program, waits) in [
        (Program::Pipeline, true),
        (Program::Barrier, true),
        (Program::Relay, true),
        (Program::ForkJoin, true),
        (Program::Freqsleep, true),
        (Program::RequestReply, true),
        (Program::BlockIo, true),
        (Program::Independent, false),
        (Program::Matmul, false),
    ] {
        // Other tests of this process switch too, if they run in it (nextest gives each its own): only the lower bound
        // is sure. And that not at once: on a machine that is short of CPUs one thread may get to its second half
        // before the next one begins, and then finds nothing to wait for.
        let mut usages = std::iter::repeat_with(|| outcome(&plan(program)).usage).take(5);
        let enough = |usage: &gleaner_workloads::Usage| !waits || usage.voluntary_switches >= ITEMS / 4;
        let usage = usages.find(enough).unwrap_or_else(|| panic!("{program}: none of five runs waited"));
        assert!(usage.cpu_time.0 > 0, "{program}: {usage:?}");
    }
}

#[test]
fn transactions_and_spinlocks_have_latencies_and_others_none() {
    for program in programs() {
        let outcome = outcome(&plan(program));
        let expected = matches!(program, Program::RequestReply | Program::SpinLock).then_some(ITEMS);
        assert_eq!(outcome.latency.map(|latency| latency.n), expected, "{program}");
        assert_eq!(outcome.holding.map(|held| held.n), (program == Program::SpinLock).then_some(ITEMS), "{program}");
        assert_eq!((outcome.errors, outcome.send_delay), (None, None), "{program}");
        if let Some(latency) = outcome.latency {
            let rising = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
            assert!(rising.is_sorted() && rising[0].0 > 0, "{latency:?}");
        }
    }
}

#[test]
fn plans_that_do_not_work_are_refused() {
    let good = plan(Program::Independent);
    for (bad, words) in [
        (Plan { threads: 0, ..good.clone() }, "threads must be within 1 and 1024, not 0"),
        (Plan { threads: 1025, ..good.clone() }, "not 1025"),
        (Plan { iterations: u64::MAX, ..good.clone() }, "iterations must be within 0"),
        (Plan { stop: Stop::Items(0), ..good.clone() }, "items must be within 1"),
        (Plan { program: Program::OpenLoop, ..good.clone() }, "needs a server"),
    ] {
        let error = run(&bad, &Progress::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = WorkloadError::Panicked("pipeline").to_string();
    assert!(error.contains("pipeline"));
}

#[test]
fn names_are_unique_and_found() {
    for program in Program::ALL {
        assert_eq!(Program::by_name(program.description().name), Some(program));
    }
    assert_eq!(Program::by_name("list"), None, "the command line lists with it");
}
