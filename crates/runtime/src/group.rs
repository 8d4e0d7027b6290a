//! What belongs to one managed group of threads: its policy, where it may run, what it did.

use crate::active_set::ActiveSet;
use crate::config::Config;
use crate::decisions::DecisionLog;
use crate::event::Warning;
use crate::events::Events;
use crate::machine::Machine;
use crate::members::Members;
use crate::observing::Observing;
use crate::snapshot::GroupSnapshot;
use crate::totals::Totals;
use gleaner_act::{Journal, Placement};
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{Action, CpuSet, Decision, Nanos, Reason, RetainMeans, Window};
use std::path::PathBuf;

/// One program, with all that it starts.
pub(crate) struct Group {
    members: Option<Members>,
    policy: GuestPolicy,
    retains: bool,
    placement: Option<Placement>,
    active: ActiveSet,
    /// vCPUs that a thread of it is bound to, as the last window told.
    pinned: CpuSet,
    totals: Totals,
    decisions: DecisionLog,
    /// How often the policy's own guard, which reads steal, stopped retention.
    guard_releases: u64,
}

impl Group {
    /// One that may run on all of `vcpus`. `means`: by what they are retained.
    pub(crate) fn new(
        config: &Config,
        vcpus: &CpuSet,
        means: Option<RetainMeans>,
        placement: Option<Placement>,
    ) -> Self {
        let policy =
            GuestPolicy::new(config.policy, config.profile, config.params.clone(), config.costs, vcpus.clone());
        let policy = match means {
            Some(means) => policy.by(means, config.timeout),
            None => policy,
        };
        let policy = match config.budget {
            Some(budget) => policy.within_budget(budget),
            None => policy,
        };
        Self {
            members: None,
            policy,
            retains: means.is_some(),
            placement,
            active: ActiveSet::new(vcpus.clone()),
            pinned: CpuSet::new(),
            totals: Totals::default(),
            decisions: DecisionLog::default(),
            guard_releases: 0,
        }
    }

    /// Where its first process has to enter itself before exec.
    pub(crate) fn join_file(&self) -> Option<PathBuf> {
        self.placement.as_ref().and_then(Placement::join_file)
    }

    /// Its first process, `root`, runs.
    pub(crate) fn started(&mut self, root: i32) {
        self.members = Some(Members::ProcessTree { root });
        self.placement.iter_mut().for_each(|placement| placement.program_started(root));
    }

    /// At time 0.
    pub(crate) fn begin(&mut self, machine: &mut Machine, events: &mut Events) {
        if self.placement.is_some() {
            machine.kept_to(self.active());
        }
        let decisions = self.policy.begin();
        self.carry_out(&decisions, machine, events);
    }

    /// The vCPUs it runs on.
    pub(crate) fn active(&self) -> &CpuSet {
        self.active.vcpus()
    }

    /// Those to which a thread of it is bound.
    pub(crate) fn pinned(&self) -> &CpuSet {
        &self.pinned
    }

    /// Whether it needs an observer that sees wake-ups.
    pub(crate) fn wants_wakeups(&self) -> bool {
        self.policy.wants_wakeups()
    }

    /// Whether it waits for its next window to go on.
    pub(crate) fn wants_quick_windows(&self) -> bool {
        self.policy.wants_quick_windows()
    }

    /// One window: decides, and carries that out. Says whether it was moved to other vCPUs.
    pub(crate) fn tick(&mut self, window: &Window, machine: &mut Machine, events: &mut Events) -> bool {
        let active = self.active().clone();
        self.pinned.clone_from(&window.group.pinned);
        let decisions = self.policy.step(window);
        self.active.follow(window);
        tracing::debug!(
            at_ms = window.at.0 / 1_000_000,
            ms = window.length.0 / 1_000_000,
            switches = window.group.voluntary_switches,
            "window"
        );
        let moved = self.carry_out(&decisions, machine, events);
        if decisions.is_empty() && self.placement.as_ref().is_some_and(Placement::follows_threads) {
            self.confine(machine, events);
        }
        self.totals.add(window, &active);
        moved
    }

    fn carry_out(&mut self, decisions: &[Decision], machine: &mut Machine, events: &mut Events) -> bool {
        let mut moved = false;
        for decision in decisions {
            events.decided(*decision);
            self.guard_releases += u64::from(matches!(decision.reason, Reason::Contended { .. }));
            self.decisions.add(*decision);
            match decision.action {
                Action::Retain { vcpu, timeout } => machine.retain(vcpu, Some(timeout), events),
                Action::Release { vcpu } => machine.retain(vcpu, None, events),
                Action::Deactivate { .. } | Action::Activate { .. } | Action::ActivateAll => {
                    moved |= self.active.carry_out(decision.action);
                }
            }
        }
        if moved {
            self.confine(machine, events);
        }
        moved
    }

    /// Keeps all its threads to the active vCPUs.
    fn confine(&mut self, machine: &mut Machine, events: &mut Events) {
        let Some(placement) = &mut self.placement else { return };
        machine.kept_to(self.active.vcpus());
        let Some((journal, tids)) = machine.journal_and_threads() else { return };
        match placement.confine(self.active.vcpus(), &tids, journal) {
            Ok(None) => {}
            Ok(Some(fallback)) => events.warn(Warning::Weaker(fallback)),
            Err(error) => events.warn(Warning::NotMoved { why: error.to_string() }),
        }
    }

    pub(crate) fn guard_releases(&self) -> u64 {
        self.guard_releases
    }

    /// As it stands.
    pub(crate) fn snapshot(&self) -> GroupSnapshot {
        let timeout: Option<Nanos> = self.retains.then(|| self.policy.timeout());
        GroupSnapshot {
            members: self.members.clone(),
            placement: self.placement.as_ref().map(Placement::kind),
            timeout,
            active: self.active().clone(),
            decisions: self.decisions.kept(),
            decisions_left_out: self.decisions.left_out(),
            totals: self.totals.clone(),
            explanation: self.policy.explain(),
        }
    }

    /// Gives it back what it had, while the observer still knows processes that outlive it with an environment of their own.
    pub(crate) fn release(self, observing: &mut Observing, journal: &mut Journal) {
        if let Some(mut placement) = self.placement
            && let Err(error) = placement.release(|| observing.threads(), journal)
        {
            tracing::warn!("{error}");
        }
    }
}
