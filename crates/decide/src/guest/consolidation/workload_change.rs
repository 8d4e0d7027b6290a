//! Has the program become another one (paper, section 5, last paragraph)? Then what was learnt is void, and it may need
//! every vCPU at once.
//!
//! The paper watches per-vCPU utilization, but that moves by our own steps; the *group's* CPU seconds per second do
//! not. The reference they are compared with is the first settled windows after a step or a change, kept: a sliding one
//! would miss a slow climb. A step that is taken back leaves the vCPUs, and so the reference, of before it: what looked
//! like the step's doing may have been a change. New threads and exec are seen at once; a steady rate of births (a
//! program that starts a thread per request) is no burst.

use super::measure::{Sample, Spread};
use crate::guest::GuestParams;
use gleaner_model::{Reason, Window};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A change is noise up to so many median absolute deviations of the reference.
const CPU_CHANGE_MADS: f64 = 3.0;
/// CPU seconds per second. An almost idle program always varies.
const CPU_CHANGE_MIN: f64 = 0.05;
/// A burst of threads is so many times the usual rate: a program that starts one per request has none.
const BURST_FACTOR: f64 = 2.0;
/// Windows that say what is usual.
const BURST_WINDOWS: usize = 10;

/// What the workload looked like since the last step or change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Reference {
    /// Per settled window, CPU seconds per second and g_comp in nanoseconds; at most `baseline_windows_max`.
    windows: Vec<(f64, f64)>,
    cpu: Spread,
    granularity: f64,
    /// Whether it takes no more windows: later ones may be of another workload.
    closed: bool,
}

impl Reference {
    /// Adds a settled window, unless there are enough.
    pub(super) fn add(&mut self, sample: &Sample, params: &GuestParams) {
        if self.closed || self.windows.len() >= params.tuning.baseline_windows_max as usize {
            return;
        }
        self.windows.push((sample.cpu_rate(), sample.granularity()));
        self.cpu = Spread::of(self.windows.iter().map(|(cpu, _)| *cpu));
        self.granularity = Spread::of(self.windows.iter().map(|(_, granularity)| *granularity)).median;
    }

    /// Forgets everything: after a step the baseline is taken anew.
    pub(super) fn clear(&mut self) {
        self.windows.clear();
        self.closed = false;
    }

    /// As it is now, for good: to be taken up again when the step before which it was taken is taken back.
    pub(super) fn close(mut self) -> Self {
        self.closed = true;
        self
    }

    /// Whether there is something to compare with.
    pub(super) fn ready(&self, params: &GuestParams) -> bool {
        self.windows.len() >= params.tuning.baseline_windows_min as usize
    }

    /// Whether the recent windows show another workload, and as what.
    pub(super) fn change<'a>(
        &self,
        recent: impl Iterator<Item = &'a Sample> + Clone,
        params: &GuestParams,
    ) -> Option<Reason> {
        if !self.ready(params) {
            return None;
        }
        let now = Spread::of(recent.clone().map(Sample::cpu_rate)).median;
        if moved(self.cpu, now, params) {
            return Some(Reason::UtilizationChanged { ratio: now / self.cpu.median.max(1e-3) });
        }
        let busy = now.max(self.cpu.median) >= CPU_CHANGE_MIN;
        let granularity = Spread::of(recent.map(Sample::granularity)).median;
        let ratio = granularity / self.granularity.max(1.0);
        let factor = params.tuning.granularity_change_factor;
        (busy && (ratio > factor || ratio < 1.0 / factor)).then_some(Reason::GranularityChanged { ratio })
    }
}

/// Whether CPU seconds per second moved from `before` to `now` by more than 20 % and by more than noise.
pub(super) fn moved(before: Spread, now: f64, params: &GuestParams) -> bool {
    let change = (now - before.median).abs();
    change > before.median * params.tuning.cpu_change_share
        && change > before.mad * CPU_CHANGE_MADS
        && change >= CPU_CHANGE_MIN
}

/// New threads per second in the last windows, whatever steps were taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Births {
    per_s: VecDeque<f64>,
}

impl Births {
    /// Takes a window; says whether a burst of threads or an exec shows in it. The first window is never a burst.
    pub(super) fn sudden(&mut self, window: &Window, params: &GuestParams) -> Option<Reason> {
        let new_threads = window.group.new_threads;
        let per_s = new_threads as f64 / window.length.as_secs_f64().max(1e-9);
        let usual = self.per_s.iter().copied().reduce(f64::max);
        if self.per_s.len() >= BURST_WINDOWS {
            self.per_s.pop_front();
        }
        self.per_s.push_back(per_s);
        if window.group.execs.is_some_and(|execs| execs > 0) {
            return Some(Reason::Exec);
        }
        let unusual = usual.is_some_and(|usual| per_s > BURST_FACTOR * usual);
        let burst = new_threads >= params.tuning.thread_burst_min && unusual;
        burst.then_some(Reason::ThreadBurst { new_threads })
    }
}
