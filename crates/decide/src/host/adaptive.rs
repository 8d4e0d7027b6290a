//! The slice of one set of VMs that share pCPUs: a walk on the ladder, one step at a time, each judged.
//!
//! ```text
//! settle -> gather judge_windows -> judge the last step -> has the workload changed? -> step towards the smallest toll
//! ```
//!
//! What was seen at a slice is believed for a while, and only then what [`super::harm`] predicts for it from the slice
//! in force. A step is taken if the best slice promises `gain_min` (or, to a longer one, saves [`SAVING_MIN`]). A step
//! down after which neither the waits are shorter nor the VMs get more done is taken back, and so is one that made
//! shares unfair; nor does a step lead back up where they got less done before that one. After a step that was taken
//! back, and after every turn, what was seen is believed twice as long. So on a stationary load there are few steps,
//! and ever fewer.

use super::HostParams;
use super::explain::HostNoStep;
use super::fairness::{FairnessMeter, VmShare, deviation};
use super::harm::SetHarm;
use super::sharing::SharingSet;
use gleaner_model::{HostReason, HostWindow, Nanos, SwitchPrice, VmId};
use std::collections::VecDeque;

/// A wait that became this many times as long after a step down says that the load is another.
const OTHER_LOAD: f64 = 1.5;

/// Windows that are looked at together, at most, in units of those that a step is decided on: what differs from one
/// window to the next hides less the longer a slice is in force.
const RECENT_TIMES: usize = 5;

/// A step down that has gained nothing is taken back once so many times the windows that a step is decided on say so:
/// of few, half of the good ones seem to be none.
const DOUBT_TIMES: usize = 3;

/// Standard errors that a step has to promise; of three windows that is about half of their range.
const NOISE_ERRORS: f64 = 1.5;

/// A rest doubles if the turn before is less than so many rests, or the longest rest, ago: what is noise by chance
/// comes back at long intervals, too.
const REST_QUIET_TIMES: u64 = 4;

/// A set whose pCPUs had more than one runnable vCPU for less than this share of the time is left alone.
const CONTENDED_SHARE_MIN: f64 = 0.02;
/// A longer slice has to save at least this share.
const SAVING_MIN: f64 = 0.001;
/// After a step down waits must have fallen by this part of what the slice fell by, or more got done by `gain_min`.
const FALL_MIN: f64 = 0.3;
/// What was lost in all moved by more without a step: the workload changed.
const CHANGE_MIN: f64 = 0.10;
/// How long what was seen at another slice is believed at first, and at most: it doubles with each turn.
pub(super) const MEMORY: (Nanos, Nanos) = (Nanos::from_secs(60), Nanos::from_secs(1920));
/// No step for so long after a turn, at first and at most.
const REST: (Nanos, Nanos) = (Nanos::from_secs(10), Nanos::from_secs(640));

/// What was found at a slice, and when.
#[derive(Clone, Copy, Debug)]
struct Seen {
    toll: f64,
    /// Its standard error.
    error: f64,
    /// Waiting in full: by its weight it would not tell a new load from the old one.
    unweighted: f64,
    at: Nanos,
}

/// A step that has not been judged yet.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: usize,
    /// Whom it was for, and its y (lost per time used) before; for a step down.
    relief: Option<(VmId, f64)>,
    /// What the VMs got done before.
    got: f64,
    /// The state's before.
    longer_got: Option<(f64, Nanos)>,
    /// How far from fair the set was before.
    unfair: f64,
}

/// What became of a step.
enum Verdict {
    Stands,
    /// It has gained nothing yet; more windows may say otherwise.
    Unclear,
    Back(HostReason),
}

#[derive(Clone, Debug)]
pub(super) struct SetState {
    params: HostParams,
    /// Index into the ladder.
    level: usize,
    settle: u32,
    recent: VecDeque<SetHarm>,
    /// By level.
    seen: Vec<Option<Seen>>,
    pending: Option<Step>,
    /// What the VMs got done at the next longer slice, before the step that led here; and when that was found to stand.
    longer_got: Option<(f64, Nanos)>,
    /// How long what was seen is believed.
    memory: Nanos,
    /// No longer slice than this level's until then: one was taken back.
    longest: Option<(usize, Nanos)>,
    /// No shorter slice than this level's until then.
    shortest: Option<(usize, Nanos)>,
    forgot_at: Nanos,
    went_down: Option<bool>,
    /// The last turn, and how long no step was taken after it.
    turned: Option<(Nanos, Nanos)>,
    fairness: FairnessMeter,
    no_step: HostNoStep,
}

impl SetState {
    pub(super) fn new(level: usize, memory: Nanos, params: &HostParams) -> Self {
        Self {
            level,
            settle: params.settle_windows,
            recent: VecDeque::new(),
            seen: vec![None; params.ladder_us.len()],
            pending: None,
            longer_got: None,
            memory,
            longest: None,
            shortest: None,
            forgot_at: Nanos::ZERO,
            went_down: None,
            turned: None,
            fairness: FairnessMeter::new(Nanos::from_millis(params.fairness_span_ms), params.runnable_share_min),
            no_step: HostNoStep::Settling,
            params: params.clone(),
        }
    }

    pub(super) fn level(&self) -> usize {
        self.level
    }

    pub(super) fn memory(&self) -> Nanos {
        self.memory
    }

    pub(super) fn no_step(&self) -> HostNoStep {
        self.no_step
    }

    /// What the last windows say: lost, and the cost of switches.
    pub(super) fn toll(&self, price: SwitchPrice) -> Option<(f64, f64)> {
        let harm = self.gathered()?;
        Some((harm.lost(self.slice(self.level)), harm.cost(self.slice(self.level), price)))
    }

    fn slice(&self, level: usize) -> Nanos {
        self.params.ladder_us.get(level).copied().map_or(Nanos::ZERO, Nanos::from_micros)
    }

    /// One window; why the level changed, if it did.
    pub(super) fn step(&mut self, window: &HostWindow, set: &SharingSet, price: SwitchPrice) -> Option<HostReason> {
        if self.settle > 0 {
            self.settle -= 1;
            self.no_step = HostNoStep::Settling;
            return None;
        }
        self.fairness.push(window);
        self.recent.push_back(SetHarm::of(window, set, self.slice(self.level), price, &self.params));
        if self.recent.len() < self.judged() {
            self.no_step = HostNoStep::Settling;
            return None;
        }
        self.keep_recent(self.judged().max(1).saturating_mul(RECENT_TIMES));
        self.drop_another_load(price);
        let harm = self.gathered()?;
        if harm.contended() < CONTENDED_SHARE_MIN {
            self.no_step = HostNoStep::NoCompetition;
            self.pending = None;
            return None;
        }
        let unfair = self.fairness.worst(&set.vms);
        match self.judge(window.at, &harm, unfair, price) {
            Verdict::Stands => {}
            Verdict::Unclear => {
                self.no_step = HostNoStep::Settling;
                return None;
            }
            Verdict::Back(reason) => return Some(reason),
        }
        self.notice(window.at, &harm, price);
        self.walk(window.at, &harm, unfair.as_ref().map_or(0.0, deviation), price)
    }

    /// Windows that a step is decided on and judged over, at least.
    fn judged(&self) -> usize {
        usize::try_from(self.params.judge_windows).unwrap_or(usize::MAX)
    }

    fn keep_recent(&mut self, most: usize) {
        self.recent.drain(..self.recent.len().saturating_sub(most));
    }

    /// Drops the windows before the last ones where these say that the workload is another.
    fn drop_another_load(&mut self, price: SwitchPrice) {
        let judged = self.judged().max(1);
        let at = self.recent.len().saturating_sub(judged);
        let (before, last) = (sum(self.recent.range(..at)), sum(self.recent.range(at..)));
        let moved = before
            .zip(last)
            .map(|(before, last)| (self.unweighted(&before, price) - self.unweighted(&last, price)).abs());
        if moved.is_some_and(|moved| moved > CHANGE_MIN) {
            self.keep_recent(judged);
            (self.pending, self.longer_got) = (None, None);
        }
    }

    fn gathered(&self) -> Option<SetHarm> {
        sum(self.recent.iter())
    }

    /// Waiting in full, and switches.
    fn unweighted(&self, harm: &SetHarm, price: SwitchPrice) -> f64 {
        let here = self.slice(self.level);
        harm.lost(here) + harm.cost(here, price)
    }

    /// Takes the last step back if it did harm, or not what it was for. Waits alone do not tell: VMs at a barrier wait
    /// as long, but more often, and get more CPU time.
    fn judge(&mut self, at: Nanos, harm: &SetHarm, worst: Option<VmShare>, price: SwitchPrice) -> Verdict {
        let Some(step) = self.pending.take() else { return Verdict::Stands };
        let ratio = self.slice(self.level).as_f64() / self.slice(step.from).as_f64().max(1.0);
        let relief = step.relief.and_then(|(vm, before)| {
            let after = harm.vms.iter().find(|harm| harm.vm == vm)?.lost_per_used();
            Some(if before > 0.0 { after / before } else { 0.0 })
        });
        let hardly = 1.0 - FALL_MIN * (1.0 - ratio);
        let more_done = harm.got(price) > step.got * (1.0 + self.params.gain_min);
        let doubt = self.judged().saturating_mul(DOUBT_TIMES);
        let reason = match (relief, worst) {
            // A shorter slice lengthens no wait: that is another load.
            (Some(found), _) if found > OTHER_LOAD => return Verdict::Stands,
            (_, Some(share)) if deviation(&share) > self.unfair_from(step.unfair) + self.fairness.spread(share.vm) => {
                HostReason::Unfair { vm: share.vm, ratio: share.ratio }
            }
            (Some(found), _) if found > hardly && !more_done && self.recent.len() < doubt => {
                self.pending = Some(step);
                return Verdict::Unclear;
            }
            (Some(found), _) if found > hardly && !more_done => HostReason::NoGain { expected: ratio, found },
            _ => {
                self.longer_got = relief.map(|_| (step.got, at));
                return Verdict::Stands;
            }
        };
        self.turn(at);
        let limit = if step.from < self.level { &mut self.shortest } else { &mut self.longest };
        *limit = Some((step.from, at + self.memory));
        self.went_down = None;
        self.go_to(step.from);
        self.longer_got = step.longer_got;
        Verdict::Back(reason)
    }

    /// A share this far from fair is unfair, where it was `before` before the step: one slice more or less within the
    /// time that is looked at is not. What single windows differ by comes on top.
    fn unfair_from(&self, before: f64) -> f64 {
        let grain = self.slice(self.level).share_of(self.fairness.length());
        (self.params.unfair_share + grain).max(before + self.params.unfair_share / 2.0)
    }

    /// Notes what is seen here; forgets the rest where it is old, or where this slice is not what it was.
    fn notice(&mut self, at: Nanos, harm: &SetHarm, price: SwitchPrice) {
        let now = self.see(at, harm, price);
        let before = self.seen[self.level];
        let moved = |before: Seen| (before.unweighted - now.unweighted).abs();
        let changed = before.is_some_and(|before| moved(before) > CHANGE_MIN);
        if changed && at - self.forgot_at >= MEMORY.0 {
            self.seen.fill(None);
            (self.longest, self.shortest) = (None, None);
            (self.forgot_at, self.memory) = (at, MEMORY.0);
        }
        // While the slice stays, what it was found to be like at first is what changes are compared with.
        let here = before.filter(|_| !changed).map_or(now, |before| Seen { at, ..before });
        self.seen[self.level] = Some(here);
        for seen in &mut self.seen {
            *seen = seen.filter(|seen| at - seen.at < self.memory);
        }
        self.longer_got = self.longer_got.filter(|(_, since)| !changed && at - *since < self.memory);
        self.longest = self.longest.filter(|(_, until)| at < *until);
        self.shortest = self.shortest.filter(|(_, until)| at < *until);
    }

    fn see(&self, at: Nanos, harm: &SetHarm, price: SwitchPrice) -> Seen {
        let here = self.slice(self.level);
        Seen { toll: harm.toll(here, price), error: self.error(price), unweighted: self.unweighted(harm, price), at }
    }

    /// A step towards the level with the smallest toll, if it promises more than is needed and more than windows
    /// differ.
    fn walk(&mut self, at: Nanos, harm: &SetHarm, unfair: f64, price: SwitchPrice) -> Option<HostReason> {
        if self.turned.is_some_and(|(turned, rest)| at < turned + rest) {
            self.no_step = HostNoStep::Resting;
            return None;
        }
        let toll = |level: usize| match self.seen[level].filter(|_| level != self.level) {
            Some(seen) => seen.toll,
            None => harm.toll(self.slice(level), price),
        };
        let (longest, shortest) = self.limits(harm, harm.got(price));
        // Of equals the longest.
        let best = (longest..=shortest).min_by(|&a, &b| toll(a).total_cmp(&toll(b)))?;
        let gain = toll(self.level) - toll(best);
        let down = best > self.level;
        let needed = if down { self.params.gain_min } else { SAVING_MIN };
        // What is predicted is as uncertain as what is seen here; what was seen elsewhere is so by itself.
        let elsewhere = self.seen[best].map_or(0.0, |seen| seen.error);
        if best == self.level || gain < needed.max(NOISE_ERRORS * self.error(price).hypot(elsewhere)) {
            self.no_step = HostNoStep::NothingToGain;
            return None;
        }
        let to = if down { self.level + 1 } else { self.level - 1 };
        let (here, there) = (self.slice(self.level), self.slice(to));
        let worst = *harm.worst()?;
        let reason = if down {
            down_reason(&worst, harm.cost(there, price))
        } else {
            let (cost, saved_to) = (harm.cost(here, price), harm.cost(there, price));
            HostReason::SwitchesCost { cost, saved_to, lost: harm.lost(there) }
        };
        if self.went_down.is_some_and(|went_down| went_down != down) {
            self.turn(at);
        }
        self.went_down = Some(down);
        let relief = down.then(|| (worst.vm, worst.lost_per_used()));
        let (got, longer_got) = (harm.got(price), self.longer_got);
        self.pending = Some(Step { from: self.level, relief, got, longer_got, unfair });
        // The clock of what was seen here starts now.
        self.seen[self.level] = self.seen[self.level].map(|_| self.see(at, harm, price));
        self.go_to(to);
        Some(reason)
    }

    /// The longest and the shortest slice allowed, as levels: not longer than `blind_slice` where spinning cannot be
    /// seen, and not the next longer one where the VMs got less done than here.
    fn limits(&self, harm: &SetHarm, got: f64) -> (usize, usize) {
        let last = self.seen.len().saturating_sub(1);
        let blind = self.params.ladder_us.iter().position(|us| *us <= self.params.blind_slice_us).unwrap_or(last);
        let blind = if harm.blind { blind.min(self.level) } else { 0 };
        let less_done = if self.longer_got.is_some_and(|(longer, _)| longer < got) { self.level } else { 0 };
        let longest = self.longest.map_or(0, |(level, _)| level).max(blind).max(less_done).min(self.level);
        (longest, self.shortest.map_or(last, |(level, _)| level).max(self.level))
    }

    /// What windows differ by: the standard error of their mean toll.
    fn error(&self, price: SwitchPrice) -> f64 {
        let tolls = || self.recent.iter().map(|harm| harm.toll(self.slice(self.level), price));
        let n = self.recent.len() as f64;
        if n < 2.0 {
            return 0.0;
        }
        let mean = tolls().sum::<f64>() / n;
        let squares: f64 = tolls().map(|toll| (toll - mean).powi(2)).sum();
        (squares / (n - 1.0) / n).sqrt()
    }

    /// A step back, or in the other direction than the last: what was seen is believed longer, and no step is taken for
    /// a while, which doubles unless the turn before was long ago.
    fn turn(&mut self, at: Nanos) {
        self.memory = self.memory.times(2).min(MEMORY.1);
        let (min, max) = REST;
        let again = self.turned.filter(|(turned, rest)| at - *turned < rest.times(REST_QUIET_TIMES).max(max));
        self.turned = Some((at, again.map_or(min, |(_, rest)| rest.times(2).min(max))));
    }

    fn go_to(&mut self, level: usize) {
        self.level = level;
        self.settle = self.params.settle_windows;
        self.recent.clear();
        self.longer_got = None;
        self.fairness.clear();
    }
}

/// Windows together.
fn sum<'a>(mut windows: impl Iterator<Item = &'a SetHarm>) -> Option<SetHarm> {
    let mut sum = windows.next()?.clone();
    windows.for_each(|harm| sum.add(harm));
    Some(sum)
}

fn down_reason(worst: &super::harm::VmHarm, cost: f64) -> HostReason {
    let (vm, lost) = (worst.vm, worst.lost(1.0));
    if worst.spun > worst.waited {
        return HostReason::SpinningHurts { vm, lost, cost };
    }
    HostReason::WaitsHurt { vm, wait: Nanos::from_f64(worst.wake_wait / worst.wakeups.max(1.0)), lost, cost }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: SwitchPrice = SwitchPrice { direct: Nanos::ZERO, refill: Nanos::ZERO, tick: Nanos::ZERO };
    const BEGAN: Nanos = Nanos::from_secs(10_000);

    fn seconds(seconds: u64) -> Nanos {
        BEGAN + Nanos::from_secs(seconds)
    }

    fn state(memory: Nanos) -> SetState {
        let mut state = SetState::new(0, memory, &HostParams::default());
        // Something was seen at another slice, too.
        state.seen[1] = Some(Seen { toll: 0.1, error: 0.0, unweighted: 0.1, at: BEGAN });
        state
    }

    /// A window in which so much was lost.
    fn lost(state: &SetState, share: f64) -> SetHarm {
        SetHarm::of_vms(state.slice(state.level), &[(1.0, share / (1.0 - share), 0.0)])
    }

    #[test]
    fn changes_are_told_from_what_a_slice_was_like_at_first() {
        let mut state = state(Nanos::from_secs(100_000));
        let change = CHANGE_MIN;
        // Each step is too small for a change, and two are not.
        for (at, drift, known) in [(0, 0.0, true), (1, 0.7, true), (2, -0.7, true), (3, 0.7, true), (4, 1.4, false)] {
            let harm = lost(&state, 0.3 + drift * change);
            state.notice(seconds(at), &harm, FREE);
            assert_eq!(state.seen[1].is_some(), known, "{at}");
        }
        assert!((state.seen[0].unwrap().unweighted - (0.3 + 1.4 * change)).abs() < 1e-12);
    }

    #[test]
    fn what_is_seen_stays_known_and_what_was_seen_is_forgotten() {
        let mut state = state(Nanos::from_secs(100));
        let harm = lost(&state, 0.3);
        for (at, known) in [(0, true), (60, true), (99, true), (100, false), (160, false)] {
            (state.longest, state.shortest) = (Some((0, seconds(60))), Some((2, seconds(61))));
            state.longer_got = Some((1.0, BEGAN));
            state.notice(seconds(at), &harm, FREE);
            assert_eq!((state.seen[1].is_some(), state.longer_got.is_some()), (known, known), "{at}");
            assert_eq!((state.longest.is_some(), state.shortest.is_some()), (at < 60, at < 61), "{at}");
            assert_eq!(state.seen[0].map(|seen| seen.at), Some(seconds(at)));
        }
    }

    #[test]
    fn windows_differ_by_the_standard_error_of_their_mean() {
        let mut state = state(Nanos::from_secs(100));
        for (shares, expected) in [
            (&[][..], 0.0),
            (&[0.3], 0.0),
            (&[0.3, 0.5], 0.1),
            // Deviations of -0.1, 0, 0.1: the root of 0.02 / 2 / 3.
            (&[0.3, 0.4, 0.5], (0.02_f64 / 6.0).sqrt()),
            (&[0.4; 4], 0.0),
        ] {
            state.recent = shares.iter().map(|share| lost(&state, *share)).collect();
            assert!((state.error(FREE) - expected).abs() < 1e-12, "{shares:?}: {}", state.error(FREE));
        }
    }
}
