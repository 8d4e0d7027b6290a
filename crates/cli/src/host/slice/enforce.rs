//! How a slice is enforced here: by the kernel, by tickers, or not at all.

use gleaner_act::{Competing, Enforcer, SliceSupport, by_kernel, hrtick, tick};
use gleaner_command::failure::Failure;
use gleaner_model::Nanos;
use gleaner_observe::RunIntervals;
use gleaner_report::SliceCpu;
use std::path::Path;

/// What ends slices in time.
pub struct Backend {
    pub method: &'static str,
    enforcer: Option<Enforcer>,
}

impl Backend {
    /// Starts to enforce `slice` on the threads that are watched.
    pub fn start(
        enforce: bool,
        slice: Nanos,
        support: SliceSupport,
        intervals: &RunIntervals,
    ) -> Result<Self, Failure> {
        if !enforce {
            return Ok(Self { method: "none", enforcer: None });
        }
        if let Some(method) = by_kernel(slice, support, hrtick(Path::new("/sys")), tick()) {
            return Ok(Self { method, enforcer: None });
        }
        let mut competition = intervals.competition().map_err(Failure::work)?;
        // All watched threads have the one slice.
        let ask = move |limit| {
            let found = competition.wait(limit);
            found.into_iter().map(|found| Competing { cpu: found.cpu, slice }).collect()
        };
        let enforcer = Enforcer::start(ask).map_err(|error| {
            Failure::work(format!("{error}. Nothing was changed; --no-enforce sets the slices without enforcing them"))
        })?;
        Ok(Self { method: "ticker", enforcer: Some(enforcer) })
    }

    /// What each ticker did in `wall`.
    pub fn cpus(&self, wall: Nanos) -> Vec<SliceCpu> {
        let costs = self.enforcer.as_ref().map(Enforcer::costs).unwrap_or_default();
        let one = |cost: gleaner_act::TickerCost| SliceCpu {
            cpu: cost.cpu,
            ticks: cost.ticks,
            cpu_ratio: cost.cpu_time.share_of(wall),
            awake_ratio: cost.awake.share_of(wall).min(1.0),
            stretched: cost.stretched,
        };
        costs.into_iter().map(one).collect()
    }

    /// CPU time of asking who competes; `None` where nobody asks.
    pub fn asking(&self) -> Option<Nanos> {
        self.enforcer.as_ref().map(Enforcer::asking_cpu_time)
    }

    pub fn notes(&self) -> Vec<String> {
        self.enforcer.as_ref().map(Enforcer::notes).unwrap_or_default()
    }
}
