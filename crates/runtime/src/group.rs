//! What belongs to one managed group of threads: its policy, where it may run, what it did.

use crate::active_set::ActiveSet;
use crate::call_counting::CallCounting;
use crate::coexistence::without_retention;
use crate::config::Config;
use crate::decisions::DecisionLog;
use crate::event::Warning;
use crate::events::Events;
use crate::machine::Machine;
use crate::members::Members;
use crate::observing::Observing;
use crate::recent::{Marks, RecentFigures};
use crate::snapshot::GroupSnapshot;
use crate::timeout_requests::GroupId;
use crate::totals::Totals;
use gleaner_act::{ActError, Journal, Placement};
use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup, Urgency};
use gleaner_model::{
    Action, Burst, BurstWatch, CpuSet, Decision, Nanos, Reason, RetainMeans, Source, SystemCalls, Topology, Window,
};
use gleaner_observe::{ProcRoot, ProgressFile};
use gleaner_sys::topology;
use std::borrow::Cow;

/// One program, with all that it starts.
pub(crate) struct Group {
    id: GroupId,
    since: Nanos,
    /// The vCPUs that it may use, where that is not the whole machine.
    only: Option<CpuSet>,
    /// Decisions are told, and not carried out.
    dry_run: bool,
    /// Nothing is decided.
    held: bool,
    config: Config,
    members: Option<Members>,
    policy: GuestPolicy,
    means: Option<RetainMeans>,
    retains: bool,
    placement: Option<Placement>,
    active: ActiveSet,
    /// vCPUs that a thread of it is bound to, as the last window told.
    pinned: CpuSet,
    totals: Totals,
    marks: Marks<RecentFigures>,
    decisions: DecisionLog,
    progress: Option<ProgressFile>,
    calls: CallCounting,
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
        Self {
            id: GroupId::default(),
            since: Nanos::ZERO,
            only: None,
            dry_run: config.dry_run,
            held: false,
            config: config.clone(),
            members: None,
            policy: GuestPolicy::of(setup_of(config, vcpus, means)),
            means,
            retains: means.is_some(),
            placement,
            active: ActiveSet::new(vcpus.clone()),
            pinned: CpuSet::new(),
            totals: Totals::default(),
            marks: Marks::default(),
            decisions: DecisionLog::default(),
            progress: progress_of(config),
            calls: CallCounting::default(),
            guard_releases: 0,
        }
    }

    /// The same for processes that run already. `whole`: the machine's vCPUs.
    pub(crate) fn adopted(self, id: GroupId, since: Nanos, members: Members, whole: &CpuSet) -> Self {
        let only = Some(self.active().clone()).filter(|own| own != whole);
        let mut placement = self.placement;
        if let (Some(placement), Members::ProcessTree { root }) = (&mut placement, &members) {
            placement.program_started(*root);
        }
        Self { id, since, only, members: Some(members), placement, ..self }
    }

    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// From now on it is managed by this; what it did so far stays.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Config,
        means: Option<RetainMeans>,
        machine: &mut Machine,
        events: &mut Events,
    ) {
        self.config = config.clone();
        machine.wants_nothing(self.id, events);
        let vcpus = self.only.clone().unwrap_or_else(|| machine.vcpus().clone());
        self.means = means;
        self.active = ActiveSet::new(vcpus);
        self.retains = means.is_some();
        self.progress = progress_of(config);
        self.dry_run = config.dry_run;
        self.begin(machine, events);
    }

    /// No vCPU can be retained any more.
    pub(crate) fn without_retention(&mut self, machine: &mut Machine, events: &mut Events) {
        if self.retains && !self.dry_run {
            self.reconfigure(&without_retention(&self.config), None, machine, events);
        }
    }

    /// Its first process, `root`, runs.
    pub(crate) fn started(&mut self, root: i32) {
        self.members = Some(Members::ProcessTree { root });
        self.placement.iter_mut().for_each(|placement| placement.program_started(root));
    }

    /// Another process belongs to it, which none of the others has started.
    pub(crate) fn another_joined(&mut self, pid: i32) {
        self.placement.iter_mut().for_each(|placement| placement.another_joined(pid));
    }

    pub(crate) fn begin(&mut self, machine: &mut Machine, events: &mut Events) {
        if self.placement.is_some() {
            machine.kept_to(self.id, self.active());
        }
        let setup = self.setup(machine);
        self.policy = GuestPolicy::of(setup.clone());
        let mut decisions = self.policy.begin();
        for decision in &mut decisions {
            decision.at = machine.now();
        }
        if let Some(recorder) = events.recorder() {
            recorder.group(self.id.0, machine.now(), &self.config.name, &setup, &decisions);
        }
        self.carry_out(&decisions, machine, events);
    }

    /// How far it got since this was asked last, where it counts that.
    pub(crate) fn take_progress(&mut self, events: &mut Events) -> Option<u64> {
        match self.progress.as_mut()?.since_last() {
            Ok(progress) => progress,
            Err(error) => {
                self.progress = None;
                events.warn(Warning::NoProgress { why: error.to_string() });
                None
            }
        }
    }

    /// Its progress file, where that never had a number.
    pub(crate) fn missed_progress(&self) -> Option<Warning> {
        let file = self.progress.as_ref()?.missing()?.display();
        Some(Warning::NoProgress { why: format!("{file} has no number, or is not there") })
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

    /// How much it waits for its next window to go on.
    pub(crate) fn urgency(&self) -> Urgency {
        self.policy.urgency()
    }

    /// System calls that it made since this was asked last, where they are counted.
    pub(crate) fn take_system_calls(&mut self) -> Option<SystemCalls> {
        self.calls.since_last()
    }

    /// Has them counted for as long as its policy compares places.
    pub(crate) fn count_system_calls(&mut self, place: usize, machine: &Machine) {
        let wanted = self.policy.wants_system_calls() && self.placement.is_some();
        self.calls.follow(wanted.then(|| machine.processes(place)));
    }

    /// Whether it is left alone, because somebody said so.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// It is left alone from now on, or no more. What is known of it stays.
    pub(crate) fn hold(&mut self, held: bool, machine: &mut Machine, events: &mut Events) {
        self.held = held;
        machine.hold(self.id, held, events);
    }

    /// Whether it tries whether retention pays: then nobody else may change the vCPUs.
    pub(crate) fn is_trying(&self) -> bool {
        !self.dry_run && !self.held && self.policy.is_trying()
    }

    /// What of a window of the machine concerns it: the vCPUs that it may use.
    fn own<'a>(&self, window: &'a Window) -> Cow<'a, Window> {
        let Some(only) = &self.only else { return Cow::Borrowed(window) };
        let vcpus: Vec<_> = window.vcpus.iter().filter(|vcpu| only.contains(vcpu.id)).cloned().collect();
        if vcpus.len() == window.vcpus.len() {
            return Cow::Borrowed(window);
        }
        // Those are of all vCPUs together.
        Cow::Owned(Window { vcpus, idle_entries: None, halts: None, ..window.clone() })
    }

    /// Whether it need not be told of windows in which nothing happens to it. `contended`: the host takes vCPUs away,
    /// which whoever retains them has to hear of.
    pub(crate) fn may_rest(&self, contended: bool) -> bool {
        let watches_itself = self.progress.is_some() || self.placement.as_ref().is_some_and(Placement::follows_threads);
        !watches_itself && (self.held || self.policy.rests() && !(contended && self.policy.retains()))
    }

    /// Whether vCPUs are kept awake for it.
    pub(crate) fn retains(&self) -> bool {
        self.policy.retains()
    }

    /// One window in which it is held, or somebody else has the vCPUs to itself: it is counted, and nothing is learnt
    /// from it.
    pub(crate) fn watch(&mut self, window: &Window, events: &mut Events) {
        let active = self.active().clone();
        let window = self.own(window);
        if let Some(recorder) = events.recorder() {
            recorder.window(self.id.0, false, &window, &[]);
        }
        self.count(&window, &active);
    }

    fn count(&mut self, window: &Window, active: &CpuSet) {
        let before = self.totals.figures();
        self.totals.add(window, active);
        self.marks.before(&before, window.length, before.observed);
        self.marks.follow(&self.totals.figures(), self.totals.observed);
    }

    /// Whether its first process runs.
    pub(crate) fn has_begun(&self) -> bool {
        self.members.is_some()
    }

    /// As it is, for a recorder that does not know it.
    pub(crate) fn record(&self, machine: &Machine, events: &mut Events) {
        if let Some(recorder) = events.recorder() {
            recorder.group_as_it_is(self.id.0, &self.config.name, &self.setup(machine), &self.policy);
        }
    }

    /// What its policy is set up with. Which vCPUs share what is read here: with hundreds that takes a while, which no
    /// program should wait for.
    fn setup(&self, machine: &Machine) -> GuestSetup {
        let vcpus = self.only.as_ref().unwrap_or_else(|| machine.vcpus());
        let mut setup = setup_of(&self.config, vcpus, self.means);
        setup.params = self.params_of(&self.config);
        if self.config.group.policy().consolidates() {
            setup.topology = topology(&ProcRoot::default(), vcpus);
        }
        setup
    }

    /// What cannot be carried out is not tried.
    fn params_of(&self, config: &Config) -> GuestParams {
        let mut params = config.group.params();
        params.retention_trials &= !config.dry_run;
        if config.dry_run || self.placement.is_none() {
            params.turns_cpus_max = 0.0;
        }
        params
    }

    /// One window: decides, and carries that out. Says whether it was moved to other vCPUs.
    pub(crate) fn tick(&mut self, window: &Window, machine: &mut Machine, events: &mut Events) -> bool {
        let window = &*self.own(window);
        let active = self.active().clone();
        self.pinned.clone_from(&window.group.pinned);
        let decisions = self.policy.step(window);
        if let Some(recorder) = events.recorder() {
            recorder.window(self.id.0, true, window, &decisions);
        }
        self.active.follow(window);
        tracing::debug!(
            at_ms = window.at.0 / 1_000_000,
            ms = window.length.0 / 1_000_000,
            cpus = window.group.cpu_time.share_of(window.length),
            switches = window.group.voluntary_switches,
            preempted = window.group.involuntary_switches,
            calls = ?window.group.system_calls,
            "window"
        );
        let moved = self.carry_out(&decisions, machine, events);
        if !moved && self.placement.as_ref().is_some_and(Placement::follows_threads) {
            self.confine(machine, events);
        }
        self.count(window, &active);
        moved
    }

    /// What to be told of between two windows.
    pub(crate) fn burst_watch(&self) -> Option<BurstWatch> {
        let confines = self.placement.is_some() && !self.dry_run && !self.held;
        if confines { self.policy.burst_watch() } else { None }
    }

    /// Its threads wait for a vCPU.
    pub(crate) fn burst(&mut self, burst: &Burst, machine: &mut Machine, events: &mut Events) {
        let decisions = self.policy.burst(burst);
        if let Some(recorder) = events.recorder() {
            recorder.burst(self.id.0, burst, &decisions);
        }
        self.carry_out(&decisions, machine, events);
    }

    fn carry_out(&mut self, decisions: &[Decision], machine: &mut Machine, events: &mut Events) -> bool {
        let mut moved = false;
        for decision in decisions {
            events.decided(self.id, *decision);
            self.guard_releases += u64::from(matches!(decision.reason, Reason::Contended { .. }));
            self.decisions.add(*decision);
            match decision.action {
                Action::Retain { .. } | Action::Release { .. } if self.dry_run => {}
                Action::Retain { vcpu, timeout } => machine.wants(self.id, vcpu, Some(timeout)),
                Action::Release { vcpu } => machine.wants(self.id, vcpu, None),
                Action::Deactivate { .. } | Action::Activate { .. } | Action::ActivateAll => {
                    moved |= self.active.carry_out(decision.action);
                }
            }
        }
        machine.apply_timeouts(events);
        if moved {
            self.confine(machine, events);
        }
        moved
    }

    /// Keeps all its threads to the active vCPUs.
    fn confine(&mut self, machine: &mut Machine, events: &mut Events) {
        let Some(placement) = &mut self.placement else { return };
        machine.kept_to(self.id, self.active.vcpus());
        let Some((journal, observing)) = machine.journal_and_observing() else { return };
        let threads = observing.threads_of(self.id);
        if let Err(error) = placement.confine(self.active.vcpus(), &threads, journal) {
            events.warn(Warning::NotMoved { why: error.to_string() });
        }
    }

    pub(crate) fn guard_releases(&self) -> u64 {
        self.guard_releases
    }

    /// As it stands, seen by `source`.
    pub(crate) fn snapshot(&self, source: Source) -> GroupSnapshot {
        let timeout: Option<Nanos> = self.retains.then(|| self.policy.timeout());
        GroupSnapshot {
            id: self.id,
            source,
            since: self.since,
            members: self.members.clone(),
            may_be_confined: self.placement.is_some(),
            timeout,
            held: self.held,
            active: self.active().clone(),
            decisions: self.decisions.kept(),
            decisions_left_out: self.decisions.left_out(),
            totals: self.totals.clone(),
            recent: self.totals.figures().since(self.marks.older()),
            explanation: self.policy.explain(),
        }
    }

    /// Gives it back what it had, while the observer still knows processes that outlive it with an environment of their
    /// own.
    pub(crate) fn release(&mut self, observing: &mut Observing, journal: &mut Journal) -> Result<(), ActError> {
        let Some(mut placement) = self.placement.take() else { return Ok(()) };
        let released = placement.release(|| observing.threads_of(self.id), journal);
        released.inspect_err(|error| tracing::warn!("{error}"))
    }
}

fn progress_of(config: &Config) -> Option<ProgressFile> {
    config.group.progress.as_ref().map(|counter| ProgressFile::new(counter.file(), counter.pattern()))
}

fn setup_of(config: &Config, vcpus: &CpuSet, means: Option<RetainMeans>) -> GuestSetup {
    GuestSetup {
        policy: config.group.policy(),
        profile: config.group.profile().of_policy(),
        params: config.group.params(),
        vcpus: vcpus.clone(),
        means,
        timeout: config.group.timeout(),
        budget: config.group.budget_ratio(),
        topology: Topology::default(),
    }
}
