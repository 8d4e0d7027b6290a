//! Interrupts are sent where the group runs, while it runs on fewer vCPUs.

use crate::Warning;
use crate::events::Events;
use gleaner_act::{Interrupts, Journal};
use gleaner_decide::guest::worth_moving;
use gleaner_model::{CpuSet, Nanos};
use gleaner_observe::{ProcRoot, irqbalance};

/// How often they are looked at.
const LOOK: Nanos = Nanos::from_secs(1);

/// Looks at them from time to time, and moves them.
#[derive(Debug)]
pub(crate) struct Steering {
    interrupts: Interrupts,
    /// When they were last looked at.
    looked_at: Nanos,
    active: CpuSet,
    /// Somebody else moves interrupts on this machine; `None`: nobody has looked.
    is_somebody_elses: Option<bool>,
}

impl Steering {
    /// For a group that runs on all of `vcpus`.
    pub(crate) fn new(vcpus: &CpuSet) -> Self {
        Self {
            interrupts: Interrupts::new(ProcRoot::default()),
            looked_at: Nanos::ZERO,
            active: vcpus.clone(),
            is_somebody_elses: None,
        }
    }

    /// What was sent away is back, because this process stood still: the next look sends it again.
    pub(crate) fn were_given_back(&mut self) {
        self.interrupts.were_given_back();
        self.active = CpuSet::new();
    }

    /// The group runs on `active` of `all` now, at `at`.
    pub(crate) fn look(
        &mut self,
        at: Nanos,
        (all, active): (&CpuSet, &CpuSet),
        journal: &mut Journal,
        events: &mut Events,
    ) {
        if self.active != *active {
            self.active.clone_from(active);
            if let Err(error) = self.interrupts.follow(active, journal) {
                events.warn(Warning::InterruptsStay { why: error.to_string() });
            }
        } else if at - self.looked_at < LOOK {
            return;
        }
        let elapsed = at - std::mem::replace(&mut self.looked_at, at);
        let parked = all.difference(active);
        if parked.is_empty()
            || *self.is_somebody_elses.get_or_insert_with(|| irqbalance(&ProcRoot::default()).is_some())
        {
            return;
        }
        let landing = self.interrupts.landing_on(&parked, elapsed);
        for irq in worth_moving(&landing) {
            self.interrupts.send_to(irq, active, journal);
        }
    }
}
