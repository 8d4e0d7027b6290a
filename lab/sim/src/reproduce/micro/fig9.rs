//! Figure 9: how many of ten vCPUs want their one pCPU at a time.
//!
//! As the text has it: ten machines with one vCPU, each set to a tenth of the target utilization, jobs that arrive at
//! random, a fair scheduler that leaves nothing idle. Each vCPU sleeps for a random time after a job (a closed system),
//! and wants the pCPU for the job. Active contexts count, so the one that runs does. Under fair sharing the
//! distribution does not depend on the jobs' lengths.

use super::bed::{MS, S};
use crate::config::{Config, FairParams, HostConfig, Scheduler, VmConfig};
use crate::engine::Time;
use crate::program::{Builder, Op, Span};
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use crate::{Costs, Simulation, Timeline};
use gleaner_papers::Found;
use rayon::prelude::*;

const VMS: u32 = 10;
const JOB: Time = 10 * MS;

/// Shares of time during which 0, 1, ... vCPUs were active, and the pCPU's utilization.
fn active(think: Time, length: Time, seed: u64) -> Result<(Vec<f64>, f64), ReproduceError> {
    let vms = (0..VMS).map(|n| {
        let mut b = Builder::new();
        let again = b.label_here();
        b.op(Op::Sleep(Span::Exponential { mean: think })).op(Op::Compute(Span::Fixed(JOB))).jump(again);
        b.threads(1, 0);
        VmConfig::new(&format!("vm-{n}"), 1, Costs::FREE, b.build())
    });
    let fair = FairParams { slice: MS, tick: 0 };
    let config = Config::new(HostConfig::new(1, Scheduler::Fair(fair)), vms.collect());
    let config = Config { seed, end: length, trace: true, ..config };
    let error = |error| ReproduceError::Simulation { case: "ten vCPUs on one pCPU".to_owned(), error };
    let (result, timeline) = Simulation::new(config).and_then(Simulation::run).map_err(error)?;
    let shares = shares(&timeline.unwrap_or_default(), result.end_ns);
    Ok((shares, result.pcpu_busy_ns[0] as f64 / result.end_ns as f64))
}

/// From the spans in which vCPUs run or wait.
fn shares(timeline: &Timeline, end: Time) -> Vec<f64> {
    let mut changes: Vec<(Time, i32)> =
        timeline.spans.iter().flat_map(|span| [(span.from_ns, 1), (span.from_ns + span.length_ns, -1)]).collect();
    changes.sort_unstable();
    let mut times = vec![0; VMS as usize + 1];
    let (mut since, mut now) = (0, 0i32);
    for (at, change) in changes {
        times[usize::try_from(now).unwrap_or(0).min(VMS as usize)] += at - since;
        (since, now) = (at, now + change);
    }
    times[0] += end - since;
    times.into_iter().map(|time| time as f64 / end as f64).collect()
}

/// Target utilizations, percent.
const TARGETS: [f64; 2] = [88.8, 79.2];

fn shares_of(target: f64, extent: &Extent) -> Result<(Vec<f64>, f64), ReproduceError> {
    let length = if extent.smoke { 4 * S } else { 400 * S };
    let busy = target / 100.0 / f64::from(VMS);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    let think = (JOB as f64 * (1.0 / busy - 1.0)) as Time;
    active(think, length, extent.seed)
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let all: Result<Vec<_>, ReproduceError> = TARGETS.par_iter().map(|target| shares_of(*target, extent)).collect();
    let mut found = Found::default();
    for (target, (shares, utilization)) in TARGETS.iter().zip(all?) {
        for n in [3, 4] {
            found.put(format!("{target}, at most {n}"), 100.0 * shares[..=n].iter().sum::<f64>());
        }
        found.put(format!("{target}, utilization"), 100.0 * utilization);
    }
    let parameters = [("vms", "10, a vCPU each, one pCPU"), ("job_ns", "10000000"), ("slice_ns", "1000000")];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Ok(reproduced("micro:fig9", parameters, &found))
}
