//! One machine and its groups: observe, decide, act, once a window.

use crate::Config;
use crate::coexistence::{beside_others, without_retention};
use crate::event::{Event, Listener, Warning};
use crate::events::Events;
use crate::group::Group;
use crate::machine::Machine;
use crate::members::Members;
use crate::observing::Together;
use crate::resting::{CROWD, Resting};
use crate::session::run_id;
use crate::setup::{self, SetupError, likely_means, set_up};
use crate::snapshot::{GroupSnapshot, RetentionSnapshot, Snapshot, steal_is_reported};
use crate::timeout_requests::GroupId;
use gleaner_act::SetValue;
use gleaner_capture::{Recorder, Target};
use gleaner_decide::guest::Urgency;
use gleaner_model::{CpuSet, Nanos, RetainMeans, Window};
use gleaner_observe::{ProcRoot, Seen};
use gleaner_sys::{children, numbered, thread_cpu_time, why_refused};
use std::borrow::Cow;
use std::sync::Arc;

/// Manages groups on this machine. To be used by one thread, which it keeps to one vCPU.
pub struct Runtime {
    pub(crate) machine: Machine,
    pub(crate) groups: Vec<Group>,
    pub(crate) events: Events,
    resting: Resting,
    /// Adopted so far.
    adopted: u64,
    /// Guard trips of those that are gone.
    guard_releases: u64,
}

impl Runtime {
    pub(crate) fn new(machine: Machine, groups: Vec<Group>, events: Events) -> Self {
        Self { machine, groups, events, resting: Resting::default(), adopted: 0, guard_releases: 0 }
    }

    /// Sets up for groups that run already, and come and go: see [`Self::adopt`]. There is none yet, and it has begun.
    ///
    /// # Errors
    /// Where nothing can be observed, or what was asked for by name is refused.
    pub fn open(config: &Config, vcpus: CpuSet, listener: Listener) -> Result<Self, SetupError> {
        let mut runtime = setup::open(config, vcpus, listener)?;
        runtime.machine.start(&mut runtime.events);
        Ok(runtime)
    }

    /// Manages processes that run already, with all that they start, as one more group, which may use `vcpus`. To be
    /// called right after a tick. `None` where the observer has no room for them.
    pub fn adopt(&mut self, config: &Config, vcpus: &CpuSet, members: Members, roots: &[i32]) -> Option<GroupId> {
        let Self { machine, groups, events, adopted, .. } = self;
        let config = &*left_by_others(config, machine, events);
        let id = GroupId(*adopted + 1);
        if !machine.add_group(id, roots, members.cgroup(), events) {
            return None;
        }
        *adopted += 1;
        let means = means_for(config, machine, events);
        let placement = setup::masks_for(config, vcpus, machine);
        let group = Group::new(config, vcpus, means, placement);
        let mut group = group.adopted(id, machine.now(), members, machine.vcpus());
        group.begin(machine, events);
        groups.push(group);
        Some(id)
    }

    /// Another process belongs to this group.
    pub fn group_joined(&mut self, id: GroupId, pid: i32) {
        if let Some(place) = self.place(id) {
            self.machine.joined(place, pid);
            self.groups[place].another_joined(pid);
        }
    }

    /// The group is managed by another configuration from now on. What is known of it stays.
    pub fn reconfigure(&mut self, id: GroupId, config: &Config) {
        let Some(place) = self.place(id) else { return };
        self.rouse(id);
        let Self { machine, groups, events, .. } = self;
        let config = &*left_by_others(config, machine, events);
        let means = means_for(config, machine, events);
        groups[place].reconfigure(config, means, machine, events);
    }

    /// The group is left alone from now on: nothing is decided, and no vCPU is kept awake for it. Or no more: it goes
    /// on with what was known of it. Where it is confined it stays. To be called right after a tick.
    pub fn hold(&mut self, id: GroupId, held: bool) {
        let Some(place) = self.place(id) else { return };
        self.rouse(id);
        let Self { machine, groups, events, .. } = self;
        groups[place].hold(held, machine, events);
    }

    /// The group is managed no more. What there was to tell of it, and whether it has back what it had.
    pub fn let_go(&mut self, id: GroupId) -> Option<(GroupSnapshot, bool)> {
        let place = self.place(id)?;
        self.rouse(id);
        let mut group = self.groups.remove(place);
        let snapshot = group.snapshot(self.machine.source());
        self.guard_releases += group.guard_releases();
        let released = self.machine.journal_and_observing();
        let released = released.map_or(Ok(()), |(journal, observing)| group.release(observing, journal));
        self.machine.remove_group(place, id, &mut self.events);
        if let Some(recorder) = self.events.recorder() {
            recorder.gone(id.0);
        }
        Some((snapshot, released.is_ok()))
    }

    fn place(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|group| group.id() == id)
    }

    /// Sets everything up for one group, the program that is to be started next, which may use `vcpus`.
    ///
    /// # Errors
    /// Where nothing can be observed, or what was asked for by name is refused.
    pub fn prepare(config: &Config, vcpus: CpuSet, listener: Listener) -> Result<Self, SetupError> {
        set_up(config, vcpus, listener, || true)
    }

    /// The same, for a program that runs already and may end meanwhile: `go_on` is asked before anything is changed.
    ///
    /// # Errors
    /// As [`Self::prepare`]; [`SetupError::Over`] where it is not to go on.
    pub fn prepare_unless(
        config: &Config,
        vcpus: CpuSet,
        listener: Listener,
        go_on: impl FnOnce() -> bool,
    ) -> Result<Self, SetupError> {
        set_up(config, vcpus, listener, go_on)
    }

    /// Everything that decide is told and decides is recorded from now on, and groups as they are. `began_unix_s`: what
    /// the machine's clock says. Where it cannot be recorded that is a warning.
    pub fn record_to(&mut self, target: Target, began_unix_s: u64) {
        let machine = gleaner_capture::Machine {
            gleaner: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            vcpus: self.machine.vcpus().clone(),
            began_unix_s,
            session: run_id(),
            ..gleaner_capture::Machine::default()
        };
        match self.machine.unpinned(|_| Recorder::start(target, machine)) {
            Ok(recorder) => {
                self.events.record(Some(recorder));
                self.record_groups();
            }
            Err(error) => self.events.warn(Warning::NotRecorded { why: why_refused(&error) }),
        }
    }

    /// Nothing is recorded any more.
    pub fn record_no_more(&mut self) {
        self.events.record(None);
    }

    /// The recorder begins a segment: what comes from now on can be replayed without what was before.
    pub fn cut_recording(&mut self) {
        if let Some(recorder) = self.events.recorder() {
            recorder.begin_segment();
            self.record_groups();
        }
    }

    /// Who records, as long as nothing is in the way.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.events.look_after_recorder();
        self.events.recorder()
    }

    fn record_groups(&mut self) {
        let Self { machine, groups, events, .. } = self;
        for group in groups.iter().filter(|group| group.has_begun()) {
            group.record(machine, events);
        }
        if let Some(recorder) = events.recorder() {
            recorder.segment_begun();
        }
    }

    /// Manages what runs below `pid` already, and all that it will start. What fails now must not cost the program: it
    /// is a warning.
    fn started(&mut self, pid: i32) {
        let Self { machine, groups, events, .. } = self;
        machine.adopted(pid);
        for group in groups.iter_mut() {
            group.started(pid);
        }
        machine.start(events);
        for group in groups.iter_mut() {
            group.begin(machine, events);
        }
        machine.set_urgency(urgency_of(groups));
        self.pin(Nanos::ZERO);
    }

    /// Manages processes that run already, with all that they start, as one group.
    pub fn attach(&mut self, roots: &[i32]) {
        let (Some(first), rest) = (roots.first(), roots.iter().skip(1)) else { return };
        self.started(*first);
        rest.for_each(|pid| self.joined(*pid));
    }

    /// The same for a child of this process, which is a subreaper: its orphans have come here.
    pub fn attach_child(&mut self, pid: i32) {
        self.attach(&[pid]);
        // By now nothing is forked unseen.
        let own = ProcRoot::default().proc.join("self/task");
        let of_thread = |tid: i32| std::fs::read(own.join(format!("{tid}/children"))).unwrap_or_default();
        let all: Vec<i32> = numbered(&own).flat_map(|tid| children(&of_thread(tid)).collect::<Vec<_>>()).collect();
        let guardian = self.machine.guardian();
        let orphans = all.into_iter().filter(|child| *child != pid && Some(*child) != guardian);
        orphans.for_each(|orphan| self.joined(orphan));
    }

    /// Another process belongs to it, which none of the others has started.
    pub fn joined(&mut self, pid: i32) {
        self.machine.adopted(pid);
        self.groups.iter_mut().for_each(|group| group.another_joined(pid));
    }

    /// How long until the next window is due.
    pub fn window_length(&self) -> Nanos {
        self.machine.window_length()
    }

    /// One window, `late` after it was due.
    pub fn tick(&mut self, late: Nanos) {
        let before = thread_cpu_time();
        self.pin(late);
        self.machine.beat(&mut self.events);
        let Self { machine, groups, events, .. } = self;
        if machine.leave_to_others(events) {
            for group in groups.iter_mut() {
                group.without_retention(machine, events);
            }
        }
        if self.recorder().is_some_and(|recorder| recorder.is_segment_full()) {
            self.cut_recording();
        }
        let seen = match self.machine.observe() {
            Ok(seen) => seen,
            Err(error) => {
                self.events.warn(Warning::WindowLost { why: error.to_string() });
                return;
            }
        };
        let together = Together::of(&seen);
        if self.look_at(seen) {
            self.pin(Nanos::ZERO);
        }
        self.machine.steer_interrupts(&mut self.events);
        tracing::debug!(us = (thread_cpu_time() - before).0 / 1_000, "cost");
        self.machine.pace(thread_cpu_time() - before, urgency_of(&self.groups));
        let trial = self.groups.iter().any(Group::wants_wakeups);
        self.machine.fall_back_to_procfs(&together, trial, &mut self.events);
        self.machine.go_over_to_bpf(&together, &mut self.events);
        self.watch_bursts();
    }

    /// Each group decides on its window, or rests. Says whether one was moved.
    fn look_at(&mut self, mut seen: Seen) -> bool {
        // Whoever tries something would measure the others' doings.
        let trying = self.groups.iter().find(|group| group.is_trying()).map(Group::id);
        let contended = self.machine.is_contended(&seen.machine);
        let nobody_rests = self.groups.len() < CROWD || trying.is_some() || !self.resting.fits(&seen.machine);
        let mut turn = Turn { trying, moved: false };
        for place in 0..self.groups.len() {
            let Self { machine, groups, events, resting, .. } = self;
            let group = &mut groups[place];
            let is_quiet = seen.groups.get(place).is_some_and(|seen| seen.quiet);
            let rests = is_quiet && !nobody_rests && group.may_rest(contended);
            if rests && !resting.is_due(group.id(), group.retains()) {
                resting.join(group.id(), || std::mem::take(&mut seen.groups[place]));
                continue;
            }
            let all = if rests { resting.leave_after(group.id(), &seen.machine) } else { None };
            let last = if all.is_none() { seen.take(place) } else { None };
            for mut window in all.or_else(|| resting.leave(group.id())).into_iter().chain(last) {
                turn.take(place, group, &mut window, machine, events);
            }
        }
        if nobody_rests {
            self.resting.forget();
        } else {
            self.resting.add(&seen.machine);
        }
        self.machine.leave_alone(turn.trying, &mut self.events);
        turn.moved
    }

    /// The group rests no more: it takes what came meanwhile.
    fn rouse(&mut self, id: GroupId) {
        let (Some(place), Some(mut window)) = (self.place(id), self.resting.leave(id)) else { return };
        let Self { machine, groups, events, .. } = self;
        let trying = groups.iter().find(|group| group.is_trying()).map(Group::id);
        Turn { trying, moved: false }.take(place, &mut groups[place], &mut window, machine, events);
    }

    /// Whoever rests takes what came meanwhile: somebody asks how everything stands.
    pub fn rouse_all(&mut self) {
        self.resting.groups().into_iter().for_each(|id| self.rouse(id));
    }

    /// Bursts are told by this, from another thread, once a group is packed: [`Self::burst`] is to be called then.
    pub fn tell_bursts_by(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        self.machine.tell_bursts_by(Arc::new(tell));
    }

    /// Threads of a group may wait for a vCPU: decides, between two windows.
    pub fn burst(&mut self) {
        let Self { machine, groups, events, .. } = self;
        for (place, group) in groups.iter_mut().enumerate().filter(|(_, group)| !group.is_held()) {
            if let Some(burst) = machine.take_burst(place) {
                group.burst(&burst, machine, events);
            }
        }
        self.pin(Nanos::ZERO);
        self.watch_bursts();
    }

    fn watch_bursts(&mut self) {
        let Self { machine, groups, .. } = self;
        for (place, group) in groups.iter().enumerate() {
            machine.watch_bursts(place, group.burst_watch());
        }
    }

    /// Does what starts a process that may use every vCPU that this thread could.
    pub fn unpinned<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.machine.unpinned(|_| work())
    }

    /// Keeps this thread out of the groups' way.
    fn pin(&mut self, late: Nanos) {
        let whole = self.machine.vcpus();
        let active = if self.groups.iter().any(|group| group.active() == whole) {
            whole.clone()
        } else {
            self.groups.iter().flat_map(|group| group.active().iter()).collect()
        };
        let pinned = self.groups.iter().flat_map(|group| group.pinned().iter()).collect();
        self.machine.pin(active, pinned, late);
    }

    /// Forgets the time up to now: the program was stopped.
    pub fn skip(&mut self) {
        self.machine.beat(&mut self.events);
        self.resting.forget();
        for group in &mut self.groups {
            group.take_progress(&mut self.events);
        }
        if let Err(error) = self.machine.skip() {
            self.events.warn(Warning::WindowLost { why: error.to_string() });
        }
    }

    /// A child process of this one ended, and was reaped. It may have been the guardian, and there has to be one.
    pub fn child_ended(&mut self, pid: i32) {
        self.machine.child_ended(pid, &mut self.events);
    }

    /// As everything stands.
    pub fn snapshot(&self) -> Snapshot {
        let overhead = self.machine.overhead();
        let spent = self.machine.spent();
        let releases = self.guard_releases + self.groups.iter().map(Group::guard_releases).sum::<u64>();
        let retention = self.machine.retention();
        let (times, recent) = self.machine.times();
        Snapshot {
            vcpus: self.machine.vcpus().clone(),
            source: self.machine.source(),
            retention: retention.map(|(means, detail)| RetentionSnapshot { means, detail }),
            is_left_to_others: self.machine.is_left_to_others(),
            retained: spent.retained,
            guard_trips: spent.guard_trips + releases,
            steal_is_reported: steal_is_reported(),
            overhead,
            cost: self.machine.cost(),
            is_paced: self.machine.is_paced(),
            at: self.machine.now(),
            retaining: self.machine.retaining(),
            window_length: self.machine.window_length(),
            times,
            recent,
            groups: self.groups.iter().map(|group| group.snapshot(self.machine.source())).collect(),
            warnings: self.events.warnings().to_vec(),
        }
    }

    /// What the kernel's files hold that were set, if nobody else has written them.
    pub fn set_values(&self) -> Vec<SetValue> {
        self.machine.values()
    }

    /// Undoes everything. What there was to tell, and whether that worked.
    pub fn end(mut self) -> (Snapshot, bool) {
        self.rouse_all();
        self.events.record(None);
        let threads = self.machine.untracked();
        if threads > 0 {
            self.events.warn(Warning::Untracked { threads });
        }
        self.groups.iter().for_each(|group| self.events.warn_of(group.missed_progress()));
        let snapshot = self.snapshot();
        let Self { machine, groups, events, .. } = self;
        let ended = machine.end(|observing, journal| {
            for mut group in groups {
                // What that left the undo gives back.
                let _ = group.release(observing, journal);
            }
        });
        let restored = ended.map_err(|error| events.tell(&Event::NotUndone { why: error.to_string() })).is_ok();
        (snapshot, restored)
    }
}

/// One turn of all groups.
struct Turn {
    /// The group that has the vCPUs to itself.
    trying: Option<GroupId>,
    moved: bool,
}

impl Turn {
    fn take(
        &mut self,
        place: usize,
        group: &mut Group,
        window: &mut Window,
        machine: &mut Machine,
        events: &mut Events,
    ) {
        window.group.progress = group.take_progress(events);
        window.group.system_calls = group.take_system_calls().map(Box::new);
        if group.is_held() || self.trying.is_some_and(|trying| trying != group.id()) {
            group.watch(window, events);
            return;
        }
        self.moved |= group.tick(window, machine, events);
        group.count_system_calls(place, machine);
        self.trying = Some(group.id()).filter(|_| group.is_trying());
    }
}

/// How much any of them waits for its next window.
fn urgency_of(groups: &[Group]) -> Urgency {
    groups.iter().map(Group::urgency).max().unwrap_or(Urgency::None)
}

/// `config`, without what is somebody else's here, and without retention where that was left to somebody.
fn left_by_others<'a>(config: &'a Config, machine: &Machine, events: &mut Events) -> Cow<'a, Config> {
    let config = beside_others(config, events);
    if machine.has_left_retention() { Cow::Owned(without_retention(&config)) } else { config }
}

/// By what the vCPUs of a group are retained. The first one that wants something makes the machine ready for it.
fn means_for(config: &Config, machine: &mut Machine, events: &mut Events) -> Option<RetainMeans> {
    if !config.group.policy().retains() {
        return None;
    }
    if config.dry_run {
        return Some(likely_means(machine.vcpus()));
    }
    if !machine.may_act() {
        setup::equip(config, machine, events);
    }
    machine.retention().map(|(means, _)| means)
}
