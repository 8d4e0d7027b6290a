//! What retention knows of one vCPU: the time-out in force, what its idle periods are like, and what holds it back.

use super::contention::{ContentionGuard, GuardChange};
use super::idle_lengths::{IdleLengths, LearntTimeout, Prices};
use crate::guest::GuestParams;
use gleaner_model::{Action, Nanos, Reason, VcpuId, VcpuWindow, Window};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Vcpu {
    /// The time-out in force, where it is retained.
    retained: Option<Nanos>,
    /// Where it follows the idle lengths.
    learnt: Option<LearntTimeout>,
    /// The same while its group is on this vCPU alone: then it is idle only where all threads wait.
    learnt_on_one: Option<LearntTimeout>,
    /// Whether it is released because its idle periods are too long.
    too_long: bool,
    guard: ContentionGuard,
    /// Time and steal not yet fed to the guard: windows shorter than its span are put together.
    length: Nanos,
    steal: Nanos,
    /// Why the guard stopped last.
    contended: Option<Reason>,
}

impl Vcpu {
    pub(super) fn new(learnt: Option<LearntTimeout>, params: &GuestParams) -> Self {
        Self {
            retained: None,
            learnt,
            learnt_on_one: None,
            too_long: false,
            guard: ContentionGuard::new(params),
            length: Nanos::ZERO,
            steal: Nanos::ZERO,
            contended: None,
        }
    }

    /// Takes a window's steal; says why the vCPU may be retained again, if it may.
    pub(super) fn feed(&mut self, window: &Window, vcpu: &VcpuWindow) -> Option<Reason> {
        let change = self.feed_guard(window.at, window.length, vcpu.steal);
        (change == GuardChange::Over).then_some(Reason::ContentionOver)
    }

    /// Takes a window's steal; says what the guard made of it.
    fn feed_guard(&mut self, at: Nanos, length: Nanos, steal: Nanos) -> GuardChange {
        self.length += length;
        self.steal += steal;
        if self.length < ContentionGuard::STEAL_SPAN {
            return GuardChange::None;
        }
        let steal_share = self.steal.share_of(self.length).min(1.0);
        (self.length, self.steal) = (Nanos::ZERO, Nanos::ZERO);
        let change = self.guard.feed(at, steal_share);
        if let GuardChange::Tripped { hold_off } = change {
            self.contended = Some(Reason::Contended { steal_share, hold_off });
        }
        change
    }

    /// Takes the idle periods of a window.
    pub(super) fn learn(&mut self, window: &Window, vcpu: &VcpuWindow, prices: Prices, placed: Placed) {
        let learnt = match placed {
            Placed::Apart => {
                self.learnt_on_one = None;
                &mut self.learnt
            }
            Placed::OnOne => &mut self.learnt_on_one,
            Placed::Tried => return,
        };
        let seen = IdleLengths::seen(vcpu, self.retained.unwrap_or(Nanos::ZERO));
        if let (Some(learnt), Some(seen)) = (learnt, seen) {
            learnt.feed(&seen, window.length, prices);
        }
    }

    /// The program is another one now.
    pub(super) fn workload_changed(&mut self) {
        self.learnt.iter_mut().for_each(LearntTimeout::forget);
        self.learnt_on_one = None;
    }

    pub(super) fn is_retained(&self) -> bool {
        self.retained.is_some()
    }

    /// Whether the guard has stopped it.
    pub(super) fn is_contended(&self) -> bool {
        self.guard.stopped()
    }

    /// Why the guard has stopped it, if it has.
    pub(super) fn contended(&self) -> Option<Reason> {
        self.contended.filter(|_| self.is_contended())
    }

    /// How long its idle periods are to be bridged; `group`: as long as the group's.
    pub(super) fn timeout(&self, group: Nanos) -> Nanos {
        self.learnt.as_ref().map_or(group, LearntTimeout::timeout)
    }

    /// Retains it, or lets go of it; says what changed.
    pub(super) fn reconcile(&mut self, vcpu: VcpuId, request: Request, group: Nanos) -> Option<(Action, Reason)> {
        let wanted = request.wanted && !self.is_contended();
        if request.on_one && self.learnt_on_one.is_none() {
            self.learnt_on_one = self.learnt.clone();
        }
        let learnt = if request.on_one { &self.learnt_on_one } else { &self.learnt };
        let timeout = learnt.as_ref().map_or(group, LearntTimeout::timeout);
        let retained = Some(timeout).filter(|timeout| wanted && *timeout > Nanos::ZERO);
        if retained == self.retained {
            return None;
        }
        let was = std::mem::replace(&mut self.retained, retained);
        let was_too_long = std::mem::replace(&mut self.too_long, wanted && retained.is_none());
        let by_lengths = learnt.as_ref().map(|learnt| Reason::IdleLengths { within: learnt.within() });
        if let Some(timeout) = retained {
            let other_timeout = by_lengths.filter(|_| was.is_some() || was_too_long);
            let reason = request.allowed_again.or(other_timeout).unwrap_or(request.because);
            return Some((Action::Retain { vcpu, timeout }, reason));
        }
        let reason = self.contended().or(request.forbidden).or(by_lengths.filter(|_| wanted));
        let reason = reason.filter(|_| request.active).unwrap_or(Reason::Deactivated);
        Some((Action::Release { vcpu }, reason))
    }
}

/// Where a group was in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::guest) enum Placed {
    /// On the vCPUs that consolidation left it.
    Apart,
    /// On one, because its threads take turns.
    OnOne,
    /// On one, for a trial: nothing is learnt.
    Tried,
}

/// What the group has to say of one of its vCPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Whether the group runs on it.
    pub active: bool,
    /// Whether the group runs on it alone, because its threads take turns.
    pub on_one: bool,
    /// Whether it should be retained, as far as the group is concerned.
    pub wanted: bool,
    /// Why the group may not retain at all.
    pub forbidden: Option<Reason>,
    /// Why this vCPU may be retained again.
    pub allowed_again: Option<Reason>,
    /// Why anything changes, where nothing above says it.
    pub because: Reason,
}
