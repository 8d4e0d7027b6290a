//! Which vCPUs the group runs on: one step at a time, of one vCPU or several, judged, undone if it hurt, given up when
//! the workload changes (imbalanced scheduling, paper sections 4.2 and 5).
//!
//! ```text
//!   settle (3 windows) -> judge the last step (3) -> change? -> saturated? -> hold-off? -> conditions -> step
//!          ^                    | hurt: restore, learn  | activate all                                  |
//!          +--------------------+-----------------------+---------------------------------------------- +
//!          |                    now and then, on a full vCPU: a recheck -> slower without the step: take it again
//! ```
//!
//! A change of the workload that comes with a step is told from the step's own doing where that can be: see
//! [`Consolidation::undo`] and `tests/changes.rs`.

mod burst;
mod conditions;
mod judge;
mod learned;
mod load;
mod measure;
mod order;
mod workload_change;

pub use burst::expands;
pub use conditions::{Check, Factors, check, granularity_ratio, load_ratio};
pub use order::deactivation_order;

use super::backoff::Backoff;
use super::{GuestParams, NoStep};
use burst::Patience;
use gleaner_model::{CpuSet, Lengths, Nanos, Reason, Topology, VcpuId, Window};
use judge::Step;
use learned::LearnedLimits;
use load::Load;
use measure::{Measure, Sample, Speed};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use workload_change::{Births, Reference, moved};

/// A step that fills a vCPU does so within `judge_windows` and so many more. Later, the program grew.
const FILLING_WINDOWS: u32 = 2;
/// Changes keep coming unless it was quiet for so many times the last hold-off.
const HOLD_OFF_QUIET_TIMES: u64 = 4;

/// What a window led to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Stay(NoStep),
    Deactivate { vcpus: CpuSet, reason: Reason },
    Restore { vcpus: CpuSet, reason: Reason },
    ActivateAll { reason: Reason },
}

/// A step that was taken back to see whether the group is faster without it by now, and how fast it was with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Recheck {
    step: Step,
    packed: Speed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Consolidation {
    params: GuestParams,
    all: CpuSet,
    active: CpuSet,
    /// The steps that are in force, in their order; each vCPU that is not active is in one of them.
    steps: Vec<Step>,
    /// Whether the last of them has yet to be judged.
    judging: bool,
    /// Whether what is measured began with the last of them.
    just_stepped: bool,
    learned: LearnedLimits,
    hold_off: Backoff,
    /// When a step that pays on a full vCPU is next taken back for a moment.
    recheck_backoff: Backoff,
    /// Whether the first recheck was hurried because the group computed more after a step.
    rechecked: bool,
    /// The recheck that is going on.
    recheck: Option<Recheck>,
    /// How long waking a halted vCPU takes, where it was measured.
    wakeup_cost: Option<Nanos>,
    settle_left: u32,
    /// The last settled windows since the last step or change, at most `baseline_windows_max`.
    history: VecDeque<Sample>,
    reference: Reference,
    loads: BTreeMap<VcpuId, Load>,
    births: Births,
    patience: Patience,
    /// vCPUs that a thread is bound to, as of the last window.
    pinned: CpuSet,
    topology: Topology,
}

impl Consolidation {
    pub(super) fn new(vcpus: CpuSet, wakeup_cost: Option<Nanos>, params: GuestParams) -> Self {
        let ms = Nanos::from_millis;
        Self {
            learned: LearnedLimits::none(&params),
            hold_off: Backoff::new(
                ms(params.tuning.hold_off_min_ms),
                ms(params.tuning.hold_off_max_ms),
                HOLD_OFF_QUIET_TIMES,
            ),
            // Nothing but a change makes it start small again.
            recheck_backoff: Backoff::new(
                ms(params.tuning.look_out_min_ms),
                ms(params.tuning.look_out_max_ms),
                u64::MAX,
            ),
            rechecked: false,
            recheck: None,
            wakeup_cost,
            settle_left: params.tuning.settle_windows,
            active: vcpus.clone(),
            all: vcpus,
            steps: Vec::new(),
            judging: false,
            just_stepped: false,
            history: VecDeque::new(),
            reference: Reference::default(),
            loads: BTreeMap::new(),
            births: Births::default(),
            patience: Patience::default(),
            pinned: CpuSet::new(),
            topology: Topology::default(),
            params,
        }
    }

    /// Which vCPUs share what.
    pub(super) fn set_topology(&mut self, topology: Topology) {
        self.topology = topology;
    }

    pub(super) fn all(&self) -> &CpuSet {
        &self.all
    }

    pub(super) fn active(&self) -> &CpuSet {
        &self.active
    }

    pub(super) fn factors(&self) -> Factors {
        self.learned.factors
    }

    pub(super) fn hold_off_remaining(&self, now: Nanos) -> Nanos {
        self.hold_off.remaining(now)
    }

    /// vCPUs came or went: all that are there are active again. `vcpus` is not empty.
    pub(super) fn set_vcpus(&mut self, now: Nanos, vcpus: CpuSet) -> Outcome {
        self.all = vcpus;
        self.give_all_back(now);
        Outcome::ActivateAll { reason: Reason::TopologyChanged }
    }

    /// What was measured does not hold any more; steps stay in force and what was learnt stays.
    pub(super) fn measure_anew(&mut self) {
        let judging = self.judging;
        self.forget();
        self.judging = judging;
    }

    /// Leaves the group one vCPU, and says which go. Threads that take turns lose nothing by it.
    pub(super) fn keep_one(&mut self) -> CpuSet {
        let gone = self.first_to_go(self.active.len().saturating_sub(1));
        self.active = self.active.difference(&gone);
        self.forget();
        gone
    }

    /// Whether it has taken no step that holds, and gave nothing back lately.
    pub(super) fn has_not_stepped(&self) -> bool {
        self.steps.is_empty() && self.recheck.is_none() && !self.judging
    }

    /// Gives the group all vCPUs again.
    pub(super) fn keep_all(&mut self) {
        self.active = self.all.clone();
        self.steps.clear();
        self.forget();
    }

    /// One window in which nothing but what is seen at once may bring a change: retention is being tried.
    pub(super) fn watch(&mut self, window: &Window) -> Outcome {
        self.weigh_burst(window);
        match self.births.sudden(window, &self.params) {
            Some(reason) => self.sudden(window.at, reason),
            None => Outcome::Stay(NoStep::Trying),
        }
    }

    /// One window over exactly the vCPUs of `all`.
    pub(super) fn step(&mut self, window: &Window) -> Outcome {
        self.weigh_burst(window);
        if let Some(reason) = self.births.sudden(window, &self.params) {
            return self.sudden(window.at, reason);
        }
        if self.settle_left > 0 {
            self.settle_left -= 1;
            return Outcome::Stay(NoStep::Settling);
        }
        self.record(window);
        self.pinned.clone_from(&window.group.pinned);
        if let Some(recheck) = self.recheck.take() {
            if self.history.len() < self.params.tuning.judge_windows as usize {
                self.recheck = Some(recheck);
                return Outcome::Stay(NoStep::Judging);
            }
            if let Some(outcome) = self.retake(window.at, recheck) {
                return outcome;
            }
        }
        if self.judging {
            if self.history.len() < self.params.tuning.judge_windows as usize {
                return Outcome::Stay(NoStep::Judging);
            }
            self.judging = false;
            if let Some(outcome) = self.judge(window.at) {
                return outcome;
            }
        }
        if let Some(reason) = self.rose().or_else(|| self.moved()) {
            match reason {
                Reason::GranularityChanged { ratio } if ratio < 1.0 => self.unlearn(),
                Reason::GranularityChanged { .. } if !self.too_coarse() => {}
                _ => return self.change(window.at, reason),
            }
        }
        if let Some((vcpu, utilization)) = self.saturated() {
            return self.relieve(window.at, vcpu, utilization);
        }
        let remaining = self.hold_off.remaining(window.at);
        if remaining > Nanos::ZERO {
            return Outcome::Stay(NoStep::HoldingOff { remaining });
        }
        self.consider(window.at)
    }

    /// New threads or an exec. At the start, while all are active and nothing is known yet, that is the program itself
    /// and no change: it begins to be measured anew, and nothing is held off.
    fn sudden(&mut self, now: Nanos, reason: Reason) -> Outcome {
        if !self.steps.is_empty() || self.recheck.is_some() || self.reference.ready(&self.params) {
            return self.change(now, reason);
        }
        self.forget();
        Outcome::Stay(NoStep::Settling)
    }

    fn record(&mut self, window: &Window) {
        let sample = Sample::of(window, &self.active);
        self.reference.add(&sample, &self.params);
        if self.history.len() >= self.params.tuning.baseline_windows_max as usize {
            self.history.pop_front();
        }
        self.history.push_back(sample);
        for vcpu in window.active(&self.active) {
            self.loads.entry(vcpu.id).or_default().add(vcpu, window.length, &self.params);
        }
    }

    /// The last `judge_windows` settled windows.
    fn recent(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.history.iter().rev().take(self.params.tuning.judge_windows as usize)
    }

    /// A vCPU that was nearly full in each of the recent windows.
    fn saturated(&self) -> Option<(VcpuId, f64)> {
        let (id, load) = self.loads.iter().find(|(_, load)| load.saturated >= self.params.tuning.judge_windows)?;
        Some((*id, load.utilization))
    }

    /// The recent windows are exactly those since the step settled.
    fn judge(&mut self, now: Nanos) -> Option<Outcome> {
        let after = Speed::of(self.recent());
        let Some(cpu_loss) = self.steps.last()?.loss(&self.steps.first()?.before, &after, &self.params) else {
            self.steps.last_mut()?.credit(&after);
            return None;
        };
        let overloaded = self.overloaded();
        self.undo(now, Reason::StepHurt { cpu_loss, overloaded }, overloaded)
    }

    /// Whether the group computes more than before the last step, and the step is not why: that is the workload's
    /// doing, and the reference, taken anew after the step, may have been taken too late to show it.
    fn rose(&self) -> Option<Reason> {
        let before = self.steps.last()?.usual();
        let now = Speed::of(self.recent()).cpu.median;
        let ratio = now / before.median.max(1e-3);
        (now > before.median && moved(before, now, &self.params)).then_some(Reason::UtilizationChanged { ratio })
    }

    /// Whether the recent windows are of another workload than the reference, which after a step back is there before
    /// they are.
    fn moved(&self) -> Option<Reason> {
        let enough = self.history.len() >= self.params.tuning.judge_windows as usize;
        enough.then(|| self.reference.change(self.recent(), &self.params)).flatten()
    }

    /// Whether g_comp has become so long that a step in force would not be taken any more, by condition (2).
    fn too_coarse(&self) -> bool {
        let lengths = Measure::of(self.recent()).map(|measure| measure.lengths);
        let fits = |lengths: &Lengths| {
            conditions::granularity_ratio(lengths)
                <= self.learned.factors.granularity * self.params.tuning.fine_grained_allowance
                && lengths.g_comp <= self.params.min_time_slice().as_f64()
        };
        // Where it switches as often as before the last step, it is the step that made it finer for a while.
        let recent = Speed::of(self.recent());
        let slower = |step: &Step| step.gain(&recent, &self.params).is_none();
        self.steps.last().is_some_and(slower) && !lengths.as_ref().is_some_and(fits)
    }

    /// Pieces are finer: what earlier steps taught does not hold any more, and all is measured anew.
    fn unlearn(&mut self) {
        self.learned = LearnedLimits::none(&self.params);
        self.forget();
    }

    /// A vCPU is full. Where the group computes as much as before the last step, on fewer vCPUs, the step did it and
    /// not the workload: activating all and forgetting what was learnt would lead straight back here.
    fn relieve(&mut self, now: Nanos, vcpu: VcpuId, utilization: f64) -> Outcome {
        let Some(step) = self.steps.last() else { return Outcome::Stay(NoStep::Saturated { vcpu, utilization }) };
        let reason = Reason::Saturated { vcpu, utilization };
        // What was seen to pay is not given up for three windows.
        let after = if step.paid { Speed::of(self.history.iter()) } else { Speed::of(self.recent()) };
        let grew = step.grew(&after, &self.params);
        // A step that fills a vCPU does so at once; what fills it later, and computes more, is somebody else.
        let at_once = self.params.tuning.judge_windows.saturating_add(FILLING_WINDOWS) as usize;
        let by_the_step = step.paid || !grew || self.just_stepped && self.history.len() <= at_once;
        if let Some(gain) = step.gain(&after, &self.params).filter(|_| by_the_step) {
            return self.keep(now, gain, grew);
        }
        if grew {
            return self.change(now, reason);
        }
        self.undo(now, reason, self.overloaded()).unwrap_or_else(|| self.change(now, reason))
    }

    /// The last step filled a vCPU and pays. From time to time it is taken back: it will be taken again, and judged
    /// again, if conditions still hold. The first time soon, where the group computes more, too: the program may have
    /// grown just then.
    fn keep(&mut self, now: Nanos, gain: f64, grew: bool) -> Outcome {
        let first = self.steps.last_mut().is_some_and(|step| !std::mem::replace(&mut step.paid, true));
        if first && grew && !std::mem::replace(&mut self.rechecked, true) {
            self.recheck_backoff.hold(now + Nanos::from_millis(self.params.tuning.look_out_doubtful_ms));
        } else if first {
            self.recheck_backoff.trigger(now, now, now);
        }
        let over = self.recheck_backoff.remaining(now) == Nanos::ZERO;
        let Some(step) = self.steps.pop_if(|_| over) else { return Outcome::Stay(NoStep::FullAndNoSlower { gain }) };
        self.give_back(&step);
        let (vcpus, packed) = (step.vcpus.clone(), Speed::of(self.history.iter()));
        self.forget();
        self.recheck = Some(Recheck { step, packed });
        Outcome::Restore { vcpus, reason: Reason::Recheck }
    }

    /// The step is taken again at once where the group is slower without it. Else conditions decide. They also decide
    /// where the group computes much more: packed threads may hand over more often for the same work.
    fn retake(&mut self, now: Nanos, recheck: Recheck) -> Option<Outcome> {
        let Recheck { step, packed } = recheck;
        let before = Speed::of(self.recent());
        let loss = Step::slower(&packed, &before, &self.params)?;
        let computes_more = before.cpu.median > packed.cpu.median && moved(packed.cpu, before.cpu.median, &self.params);
        if computes_more || step.vcpus.iter().any(|id| self.pinned.contains(id)) {
            return None;
        }
        let vcpus = step.vcpus.clone();
        for vcpu in vcpus.iter() {
            self.active.remove(vcpu);
        }
        let reference = std::mem::take(&mut self.reference).close();
        self.steps.push(Step { taken_at: now, before, reference, faster: Some(packed.cpu), paid: true, ..step });
        self.forget();
        self.recheck_backoff.trigger(now, now, now);
        Some(Outcome::Deactivate { vcpus, reason: Reason::RecheckSlower { loss } })
    }

    /// Whether a vCPU was full in most of the settled windows since the last step.
    fn overloaded(&self) -> bool {
        self.loads.values().any(Load::is_overloaded)
    }

    /// The workload changed.
    fn change(&mut self, now: Nanos, reason: Reason) -> Outcome {
        let was_packed = !self.steps.is_empty();
        self.give_all_back(now);
        if was_packed {
            return Outcome::ActivateAll { reason };
        }
        Outcome::Stay(NoStep::HoldingOff { remaining: self.hold_off.remaining(now) })
    }

    fn give_all_back(&mut self, now: Nanos) {
        self.learned = LearnedLimits::none(&self.params);
        self.recheck_backoff.reset();
        self.rechecked = false;
        self.hold_off.trigger(now, self.hold_off.until(), now);
        self.active = self.all.clone();
        self.steps.clear();
        self.forget();
    }

    /// What was measured is of another active set, or of another workload.
    fn forget(&mut self) {
        self.judging = false;
        self.just_stepped = false;
        self.recheck = None;
        self.settle_left = self.params.tuning.settle_windows;
        self.history.clear();
        self.reference.clear();
        self.loads.clear();
    }

    fn consider(&mut self, now: Nanos) -> Outcome {
        let n = self.active.len();
        if n <= 1 {
            return Outcome::Stay(NoStep::OneVcpu);
        }
        if self.history.len() < self.params.tuning.baseline_windows_min as usize {
            return Outcome::Stay(NoStep::Settling);
        }
        // A program that hardly waits makes no idle periods: say that rather than "unknown".
        let rates = self.recent().map(Sample::idle_period_rate);
        let Some(per_s) = rates.reduce(|a, b| Some(a?.min(b?))).flatten() else {
            return Outcome::Stay(NoStep::Unmeasured);
        };
        let needed = self.params.tuning.idle_periods_per_s_min;
        if per_s < needed {
            return Outcome::Stay(NoStep::TooFewIdlePeriods { per_s, needed });
        }
        let Some(measure) = Measure::of(self.recent()) else { return Outcome::Stay(NoStep::Unmeasured) };
        let check = |k: usize| {
            let Measure { lengths, utilization } = &measure;
            match conditions::check(lengths, *utilization, (n, k), self.learned.factors, self.wakeup_cost, &self.params)
            {
                Check::Fits { load_ratio, granularity_ratio, utilization } => {
                    Ok(Reason::IdleFits { vcpus: k, load_ratio, granularity_ratio, utilization })
                }
                Check::Fails(why) => Err(why),
            }
        };
        // A step that hurt has taught that lengths say too little here: one at a time then, as in the paper.
        let candidates = self.active.difference(&self.pinned).len();
        let bold = self.learned == LearnedLimits::none(&self.params) && self.params.several_at_once;
        let most = if bold { candidates.min(n - 1) } else { 1 };
        let found = (2..=most).rev().find_map(|k| Some((k, check(k).ok()?))).map_or_else(|| Ok((1, check(1)?)), Ok);
        match found {
            Err(why) => Outcome::Stay(why),
            Ok(_) if candidates == 0 => Outcome::Stay(NoStep::Pinned),
            Ok((k, reason)) => self.take_step(now, measure, self.first_to_go(k), reason),
        }
    }

    fn take_step(&mut self, now: Nanos, measure: Measure, vcpus: CpuSet, reason: Reason) -> Outcome {
        let n = self.active.len();
        for vcpu in vcpus.iter() {
            self.active.remove(vcpu);
        }
        let before = Speed::of(self.history.iter());
        let reference = std::mem::take(&mut self.reference).close();
        let step =
            Step { vcpus: vcpus.clone(), taken_at: now, n, measure, before, reference, paid: false, faster: None };
        self.steps.push(step);
        self.forget();
        self.judging = true;
        self.just_stepped = true;
        Outcome::Deactivate { vcpus, reason }
    }
}

#[cfg(test)]
mod tests;
