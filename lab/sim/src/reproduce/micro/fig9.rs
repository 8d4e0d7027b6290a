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
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use crate::{Costs, Simulation, Timeline};
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
    let fair = FairParams { slice: MS, tick: 0, run_to_parity: true };
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

/// Target utilization and share of time with at most three, percent.
const CLAIMS: [(f64, f64); 2] = [(88.8, 80.0), (79.2, 90.0)];

fn rows(&(target, paper): &(f64, f64), extent: &Extent) -> Result<Vec<Row>, ReproduceError> {
    let length = if extent.smoke { 4 * S } else { 400 * S };
    let busy = target / 100.0 / f64::from(VMS);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    let think = (JOB as f64 * (1.0 / busy - 1.0)) as Time;
    let (shares, utilization) = active(think, length, extent.seed)?;
    let at_most = |n: usize| 100.0 * shares[..=n].iter().sum::<f64>();
    let case = format!("target utilization {target} %");
    Ok(vec![
        Row::number(&case, "time with at most 3 active vCPUs, %", paper, at_most(3), Basis::Predicted),
        Row::measured(
            &case,
            "time with at most 3 waiting vCPUs beside the one that runs, %",
            at_most(4),
            Basis::Predicted,
        ),
        Row::measured(&case, "utilization that came out, %", 100.0 * utilization, Basis::Predicted),
    ])
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let rows: Result<Vec<Vec<Row>>, ReproduceError> = CLAIMS.par_iter().map(|claim| rows(claim, extent)).collect();
    let parameter = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Ok(Reproduced {
        title: "Figure 9: active vCPUs of ten on one pCPU".to_owned(),
        parameters: vec![parameter("vms", "10, a vCPU each, one pCPU"), parameter("job_ns", "10000000"), parameter("slice_ns", "1000000")],
        rows: rows?.into_iter().flatten().collect(),
        notes: vec![
            "The paper does not say whether a job can arrive while its VM has one, nor whether utilization is set or came out. Read here: \
             set, and a VM has one job at a time. With utilization that comes out (M/M/1//10) it would be 59 % and 77 %."
                .to_owned(),
        ],
    })
}
