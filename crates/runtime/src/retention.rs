//! The means of retention in use: which vCPUs it keeps awake, and what it has spent.

use crate::Session;
use crate::retain::Opened;
use crate::yielding::prepare_yielding;
use gleaner_act::{ActError, Fallback, IdleGroup, Journal, Retainer, SetValue};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Nanos, RetainCounters, RetainMeans, VcpuId};
use std::collections::BTreeMap;

/// Retained time, and how often a guard stopped it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) retained: Nanos,
    pub(crate) guard_trips: u64,
}

impl Spent {
    fn of(counters: &[RetainCounters]) -> Self {
        Self {
            retained: counters.iter().map(|counters| counters.retained).sum(),
            guard_trips: counters.iter().map(|counters| counters.guard_trips).sum(),
        }
    }
}

/// Keeps vCPUs awake.
pub(crate) struct Retention {
    retainer: Box<dyn Retainer>,
    group: IdleGroup,
    /// The time-out of each vCPU that is retained.
    retaining: BTreeMap<VcpuId, Nanos>,
    /// When counting began: what was spent before is nobody's.
    zero: Spent,
    /// What yielding threads that are no more had spent.
    before: Spent,
}

impl Retention {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { retainer, group } = opened;
        Self { retainer, group, retaining: BTreeMap::new(), zero: Spent::default(), before: Spent::default() }
    }

    pub(crate) fn means(&self) -> RetainMeans {
        self.retainer.means()
    }

    pub(crate) fn detail(&self) -> String {
        self.retainer.detail()
    }

    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = &Fallback> {
        self.group.fallback().into_iter().chain(self.retainer.fallbacks())
    }

    pub(crate) fn counters(&self) -> Vec<RetainCounters> {
        self.retainer.counters()
    }

    pub(crate) fn values(&self) -> Vec<SetValue> {
        self.retainer.values()
    }

    pub(crate) fn beat(&self) {
        self.retainer.beat();
    }

    /// Whether what it has set stays while this process is stopped, or hangs.
    pub(crate) fn stays_when_stopped(&self) -> bool {
        self.means().is_set_in_files()
    }

    /// What was set was taken back meanwhile; whoever could not be given it again, and why.
    pub(crate) fn set_again(&mut self, journal: &mut Journal) -> Vec<(VcpuId, ActError)> {
        self.retainer.was_taken_back();
        self.set_all(journal)
    }

    /// Why its means keeps nothing awake any more.
    pub(crate) fn lost(&self) -> Option<ActError> {
        self.retainer.lost()
    }

    /// Gives back what is still ours.
    pub(crate) fn give_up(mut self, journal: &mut Journal) {
        for vcpu in std::mem::take(&mut self.retaining).into_keys() {
            // What is somebody else's by now stays.
            let _ = self.retainer.set(vcpu, None, journal);
        }
        self.retainer.retire();
    }

    fn set_all(&mut self, journal: &mut Journal) -> Vec<(VcpuId, ActError)> {
        let set = |(&vcpu, &timeout)| Some((vcpu, self.retainer.set(vcpu, Some(timeout), journal).err()?));
        self.retaining.iter().filter_map(set).collect()
    }

    /// From now on it counts. What takes long to close, the guardian closes at the end: nobody waits for that.
    pub(crate) fn start(&mut self, session: Option<&mut Session>) {
        self.zero = Spent::of(&self.counters());
        if let Some(session) = session {
            session.leave_closing(self.retainer.slow_to_close());
        }
    }

    /// What it has spent since it counts. Retained time is not in it where the kernel polls: windows tell that.
    pub(crate) fn spent(&self) -> Spent {
        let now = Spent::of(&self.counters());
        Spent {
            retained: self.before.retained + (now.retained - self.zero.retained),
            guard_trips: self.before.guard_trips + now.guard_trips.saturating_sub(self.zero.guard_trips),
        }
    }

    /// Bridges idle periods of `vcpu` up to `timeout`, or lets it halt.
    pub(crate) fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, journal: &mut Journal) -> Result<(), ActError> {
        match timeout {
            Some(timeout) => self.retaining.insert(vcpu, timeout),
            None => self.retaining.remove(&vcpu),
        };
        self.retainer.set(vcpu, timeout, journal)
    }

    /// BPF will no longer tell when a vCPU is busy: yielding threads that wait for that are replaced by others that
    /// nap.
    pub(crate) fn nap_instead(
        &mut self,
        vcpus: &CpuSet,
        params: &GuestParams,
        journal: &mut Journal,
    ) -> Result<Vec<(VcpuId, ActError)>, ActError> {
        if self.means() != RetainMeans::Yielding {
            return Ok(Vec::new());
        }
        let yields = prepare_yielding(vcpus, &self.group, params, |_| None)?;
        self.before = self.spent();
        self.zero = Spent::default();
        std::mem::replace(&mut self.retainer, Box::new(yields)).retire();
        Ok(self.set_all(journal))
    }
}
