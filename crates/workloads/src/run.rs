//! Runs a plan, and says what it did.

use crate::catalogue::Program;
use crate::job::{Ended, Job, Progress};
use crate::latency::{Latencies, LatencySummary};
use crate::plan::{Plan, WorkloadError};
use crate::programs;
use crate::usage::Usage;
use gleaner_model::Nanos;
use std::sync::atomic::Ordering;

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub items: u64,
    /// From the moment all threads were there to the end of the last one.
    pub wall: Nanos,
    /// Depends on every item's result and on nothing else: the same for the same program, items, seed and iterations.
    pub checksum: u64,
    /// Threads started.
    pub threads_total: usize,
    /// Why it ended.
    pub ended: Ended,
    /// How long requests took, or a lock was waited for; `None` where there are none.
    pub latency: Option<LatencySummary>,
    /// How long the lock of `spin-lock` was held at a time, where `latency` is how long it was waited for; `None`
    /// elsewhere.
    pub holding: Option<LatencySummary>,
    /// How late the open-loop client sent its requests (a part of `latency`); `None` elsewhere.
    pub send_delay: Option<LatencySummary>,
    /// Requests that failed; `None` where none can.
    pub errors: Option<u64>,
    /// What it took of this process's CPU time, and its context switches.
    pub usage: Usage,
}

/// Runs the plan to its end.
///
/// # Errors
/// When the plan is not one that works, or a thread, memory, a file or the server fails.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Outcome, WorkloadError> {
    plan.check()?;
    let job = Job::new(plan, progress);
    let before = Usage::now();
    let tally = programs::of(plan.program)(&job)?;
    let usage = Usage::now() - before;
    Ok(Outcome {
        items: progress.items(),
        wall: Nanos(job.wall_ns.load(Ordering::Relaxed)),
        checksum: tally.checksum.value(),
        threads_total: job.threads_total.load(Ordering::Relaxed),
        ended: job.ended(),
        latency: tally.latency.as_ref().and_then(Latencies::summary),
        holding: tally.holding.as_ref().and_then(Latencies::summary),
        send_delay: tally.send_delay.as_ref().and_then(Latencies::summary),
        errors: (plan.program == Program::OpenLoop).then_some(tally.errors),
        usage,
    })
}
