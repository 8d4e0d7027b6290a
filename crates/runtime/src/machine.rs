//! What belongs to the whole machine, whatever groups there are: observer, means of retention, journal, housekeeping
//! CPU, pace.

mod source;

use crate::Session;
use crate::bursts::{Bursts, Tell};
use crate::config::Config;
use crate::cost::{CostMeter, OwnCost};
use crate::event::Warning;
use crate::events::Events;
use crate::observing::Observing;
use crate::pace::{Pace, WINDOW};
use crate::recent::{MachineTimes, Marks};
use crate::retention::{Retention, Spent};
use crate::steering::Steering;
use crate::timeout_requests::{GroupId, TimeoutRequests};
use gleaner_act::{ActError, HousekeepingCpu, Journal, SetValue};
use gleaner_decide::guest::{GuestParams, Urgency};
use gleaner_model::{Burst, BurstWatch, CpuSet, Nanos, RetainCounters, RetainMeans, Source, VcpuId, Window};
use gleaner_observe::{ObserveError, Seen};
use gleaner_sys::thread_cpu_time;
use std::path::Path;

/// The machine, and what Gleaner does to all of it.
pub(crate) struct Machine {
    vcpus: CpuSet,
    params: GuestParams,
    observing: Observing,
    bursts: Bursts,
    retention: Option<Retention>,
    /// What retention had set, and somebody else has set since: it ended by that.
    left: Option<Vec<SetValue>>,
    /// What groups want of it.
    requests: TimeoutRequests,
    session: Option<Session>,
    /// Of interrupts, where a group may run on fewer vCPUs.
    steering: Option<Steering>,
    /// Of the thread that ticks.
    housekeeping: HousekeepingCpu,
    pinned: bool,
    /// The vCPUs that any group runs on, and those to which a thread of one is bound.
    occupied: (CpuSet, CpuSet),
    /// How long windows are.
    pace: Pace,
    overhead_zero: Nanos,
    cost: CostMeter,
    /// Idle time that was bridged, as windows tell it.
    retained: Nanos,
    times: MachineTimes,
    marks: Marks<MachineTimes>,
    /// When the last window ended, on its own clock.
    at: Nanos,
}

impl Machine {
    /// `overhead_zero`: the CPU time of this thread that is not its own.
    pub(crate) fn new(
        config: &Config,
        vcpus: CpuSet,
        observing: Observing,
        retention: Option<Retention>,
        session: Option<Session>,
        overhead_zero: Nanos,
    ) -> Self {
        Self {
            housekeeping: HousekeepingCpu::new(vcpus.clone()),
            pinned: false,
            occupied: (vcpus.clone(), CpuSet::new()),
            vcpus,
            params: config.group.params(),
            observing,
            bursts: Bursts::default(),
            retention,
            left: None,
            requests: TimeoutRequests::default(),
            session,
            steering: None,
            pace: Pace::new(config.overhead_ratio),
            overhead_zero,
            cost: CostMeter::default(),
            retained: Nanos::ZERO,
            times: MachineTimes::default(),
            marks: Marks::default(),
            at: Nanos::ZERO,
        }
    }

    /// Interrupts follow the group.
    pub(crate) fn steering(self, steering: Option<Steering>) -> Self {
        Self { steering, ..self }
    }

    pub(crate) fn vcpus(&self) -> &CpuSet {
        &self.vcpus
    }

    /// Where changes are journalled, and who sees the groups' threads; `None` where nothing can be undone.
    pub(crate) fn journal_and_observing(&mut self) -> Option<(&mut Journal, &mut Observing)> {
        let session = self.session.as_mut()?;
        Some((&mut session.journal, &mut self.observing))
    }

    pub(crate) fn kept_to(&mut self, id: GroupId, active: &CpuSet) {
        self.observing.kept_to(id, active);
    }

    pub(crate) fn adopted(&mut self, root: i32) {
        self.observing.adopted(root);
    }

    /// Processes that run already, all of `cgroup` where there is one, are another group, the last one; false where the
    /// observer has no room for it, and may not be changed for one that has.
    pub(crate) fn add_group(&mut self, id: GroupId, roots: &[i32], cgroup: Option<&Path>, events: &mut Events) -> bool {
        if self.observing.add_group(id, roots, cgroup) {
            return true;
        }
        if !self.observing.may_leave_bpf() {
            return false;
        }
        let at = self.at;
        match self.unpinned(|machine| machine.leave_bpf(at, events)) {
            Ok(()) => events.warn(Warning::TooManyForBpf { at }),
            Err(why) => {
                self.observing.change_no_more();
                events.warn(Warning::NoRoom { why });
            }
        }
        self.observing.add_group(id, roots, cgroup)
    }

    /// The group at this place is managed no more, and wants nothing any more.
    pub(crate) fn remove_group(&mut self, place: usize, group: GroupId, events: &mut Events) {
        self.observing.remove_group(place);
        self.bursts.group_removed(place);
        self.requests.hold(group, false);
        self.wants_nothing(group, events);
    }

    /// Another process belongs to the group at this place.
    pub(crate) fn joined(&mut self, place: usize, pid: i32) {
        self.observing.joined(place, pid);
    }

    /// When the last window ended.
    pub(crate) fn now(&self) -> Nanos {
        self.at
    }

    /// Whether changes are journalled, and so may be made.
    pub(crate) fn may_act(&self) -> bool {
        self.session.is_some()
    }

    /// The guardian's process.
    pub(crate) fn guardian(&self) -> Option<i32> {
        self.session.as_ref()?.guardian_pid()
    }

    /// What it takes to change something, where it had been set up without.
    pub(crate) fn equip(&mut self, find: impl FnOnce(&Observing, &CpuSet) -> (Option<Session>, Option<Retention>)) {
        let (session, retention) = self.unpinned(|machine| find(&machine.observing, &machine.vcpus));
        if let Some(pid) = session.as_ref().and_then(Session::guardian_pid) {
            self.observing.guardian_is(pid);
        }
        (self.session, self.retention) = (session, retention);
        if let Some(retention) = &mut self.retention {
            retention.start(self.session.as_mut());
        }
    }

    /// Time and costs count from here.
    pub(crate) fn start(&mut self, events: &mut Events) {
        if let Err(error) = self.observing.start(&self.counters()) {
            events.warn(Warning::ObservedLate { why: error.to_string() });
        }
        self.overhead_zero = thread_cpu_time();
        self.cost.follow(|| self.observing.observer().programs_ran());
        if let Some(retention) = &mut self.retention {
            retention.start(self.session.as_mut());
        }
        // Whoever may have to take something back watches before it is set.
        self.beat(events);
    }

    /// What the vCPUs did since the start, and lately.
    pub(crate) fn times(&self) -> (MachineTimes, MachineTimes) {
        (self.times.clone(), self.times.since(self.marks.older()))
    }

    /// How long until the next window is due.
    pub(crate) fn window_length(&self) -> Nanos {
        self.pace.window()
    }

    /// The owner is alive. What was taken back while it was not is set again.
    pub(crate) fn beat(&mut self, events: &mut Events) {
        self.session.iter_mut().for_each(Session::have_journal_held);
        let Some(retention) = &mut self.retention else { return };
        retention.beat();
        let Some(session) = self.session.as_mut().filter(|_| retention.stays_when_stopped()) else { return };
        if session.beat() {
            for (vcpu, error) in retention.set_again(&mut session.journal) {
                events.warn(Warning::NotRetained { vcpu, why: error.to_string() });
            }
            if let Some(steering) = &mut self.steering {
                steering.were_given_back();
            }
        }
    }

    /// Ends retention where somebody else has set what it had set; says so once. Whether it ended.
    pub(crate) fn leave_to_others(&mut self, events: &mut Events) -> bool {
        let (Some(retention), Some(session)) = (&self.retention, &mut self.session) else { return false };
        // What the guardian gives back is nobody else's word.
        let lost = retention.lost().filter(|_| !session.is_taken_back());
        let Some(why) = lost else { return false };
        self.left = Some(retention.values().into_iter().filter(|value| !value.is_as_set()).collect());
        self.retention.take().into_iter().for_each(|retention| retention.give_up(&mut session.journal));
        self.requests.end();
        events.warn(Warning::RetentionEnded { why: why.to_string() });
        true
    }

    /// Whether it ended so.
    pub(crate) fn has_left_retention(&self) -> bool {
        self.left.is_some()
    }

    /// Whether it ended so because somebody else has set a file: a write may have been refused.
    pub(crate) fn is_left_to_others(&self) -> bool {
        self.left.as_ref().is_some_and(|left| !left.is_empty())
    }

    /// What happened since the last call.
    pub(crate) fn observe(&mut self) -> Result<Seen, ObserveError> {
        let seen = self.observing.look(&self.counters())?;
        if seen.groups.is_empty() {
            // Without a group nobody looks, and what was seen of the last one is no longer recent.
            self.marks.forget(&self.times, self.times.observed);
        } else {
            self.retained += seen.machine.vcpus.iter().map(|vcpu| vcpu.retained).sum();
            self.times.add(&seen.machine);
            self.marks.follow(&self.times, self.times.observed);
        }
        self.at = self.at_end_of(&seen);
        Ok(seen)
    }

    /// Time goes on where there is no group to look at.
    fn at_end_of(&self, seen: &Seen) -> Nanos {
        if seen.groups.is_empty() { self.observing.now().max(self.at) } else { seen.machine.at }
    }

    /// Whether the host took so much of a vCPU in this window that a guard may have to be told at once.
    pub(crate) fn is_contended(&self, window: &Window) -> bool {
        window.vcpus.iter().any(|vcpu| vcpu.steal.share_of(window.length) >= self.params.steal_share_stop)
    }

    /// Bursts are told by this.
    pub(crate) fn tell_bursts_by(&mut self, tell: Tell) {
        self.bursts.tell_by(tell);
    }

    /// The group at this place is to be watched for bursts, or no more.
    pub(crate) fn watch_bursts(&mut self, place: usize, watch: Option<BurstWatch>) {
        if self.bursts.is_to_begin(watch.as_ref()) {
            let begun = self.unpinned(|machine| machine.bursts.begin(&machine.observing));
            if let Err(error) = begun {
                tracing::warn!("bursts are seen by the window only: {error}");
                self.bursts.give_up();
            }
        }
        self.bursts.watch(&mut self.observing, place, watch);
    }

    /// The burst of the group at this place, once. Not before the last window.
    pub(crate) fn take_burst(&mut self, place: usize) -> Option<Burst> {
        let burst = self.bursts.take(&mut self.observing, place)?;
        Some(Burst { at: burst.at.max(self.at), ..burst })
    }

    /// Forgets what happened since the last call.
    pub(crate) fn skip(&mut self) -> Result<(), ObserveError> {
        let seen = self.observing.look(&self.counters())?;
        self.at = self.at_end_of(&seen);
        Ok(())
    }

    fn counters(&self) -> Vec<RetainCounters> {
        self.retention.as_ref().map(Retention::counters).unwrap_or_default()
    }

    /// `group` wants idle periods of `vcpu` bridged up to `timeout`, or not at all. Nothing is done before
    /// [`Self::apply_timeouts`].
    pub(crate) fn wants(&mut self, group: GroupId, vcpu: VcpuId, timeout: Option<Nanos>) {
        self.requests.set(group, vcpu, timeout);
    }

    /// `group` wants nothing any more.
    pub(crate) fn wants_nothing(&mut self, group: GroupId, events: &mut Events) {
        self.requests.forget(group);
        self.apply_timeouts(events);
    }

    /// What `group` wants does not count from now on, or counts again.
    pub(crate) fn hold(&mut self, group: GroupId, held: bool, events: &mut Events) {
        self.requests.hold(group, held);
        self.apply_timeouts(events);
    }

    /// `group` tries something, and has the vCPUs to itself meanwhile; `None`: nobody does.
    pub(crate) fn leave_alone(&mut self, group: Option<GroupId>, events: &mut Events) {
        self.requests.count_alone(group);
        self.apply_timeouts(events);
    }

    /// The time-out in force on each retained vCPU.
    pub(crate) fn retaining(&self) -> Vec<(VcpuId, Nanos)> {
        self.requests.in_force().iter().map(|(vcpu, timeout)| (*vcpu, *timeout)).collect()
    }

    /// Does what groups want.
    pub(crate) fn apply_timeouts(&mut self, events: &mut Events) {
        let (Some(retention), Some(session)) = (&mut self.retention, &mut self.session) else { return };
        if !self.requests.have_changed() {
            return;
        }
        let before = self.requests.in_force().clone();
        let changes = self.requests.changes();
        let any = !changes.is_empty();
        for (vcpu, timeout) in changes {
            let Err(error) = retention.set(vcpu, timeout, &mut session.journal) else { continue };
            self.requests.stays(vcpu, before.get(&vcpu).copied());
            // The next window ends it, and says so.
            if !error.is_theirs() {
                events.warn(Warning::NotRetained { vcpu, why: error.to_string() });
            }
        }
        if any && retention.means() == RetainMeans::Yielding {
            // Some threads may be new: what they do is no work.
            self.observing.yielding_are(&retention.counters());
        }
    }

    /// Keeps this thread to a vCPU where it displaces nobody: groups run on `active`, and threads of theirs are bound
    /// to `pinned`.
    /// `late`: it was kept waiting there, for longer than a window, so it takes another.
    pub(crate) fn pin(&mut self, active: CpuSet, pinned: CpuSet, late: Nanos) {
        self.occupied = (active, pinned);
        self.pinned = true;
        let (active, pinned) = &self.occupied;
        if late > WINDOW {
            self.housekeeping.pin_elsewhere(active, pinned);
        } else {
            self.housekeeping.pin(active, pinned);
        }
    }

    /// Sends interrupts to where groups run.
    pub(crate) fn steer_interrupts(&mut self, events: &mut Events) {
        let (Some(steering), Some(session)) = (&mut self.steering, &mut self.session) else { return };
        // What the guardian gives back is nobody else's word.
        if session.is_taken_back() {
            return;
        }
        let active: CpuSet = self.occupied.0.iter().chain(self.occupied.1.iter()).collect();
        steering.look(self.at, (&self.vcpus, &active), &mut session.journal, events);
    }

    /// Does what starts a process or a thread, which must not inherit the one vCPU.
    pub(crate) fn unpinned<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.housekeeping.unpin();
        let done = work(self);
        if !self.pinned {
            return done;
        }
        self.housekeeping.pin(&self.occupied.0, &self.occupied.1);
        done
    }

    /// A window cost so much; the next one is waited for as `urgency` says.
    pub(crate) fn pace(&mut self, cost: Nanos, urgency: Urgency) {
        self.cost.follow(|| self.observing.observer().programs_ran());
        self.pace.cost(cost);
        self.pace.set_urgency(urgency);
    }

    /// How much somebody waits for the next window.
    pub(crate) fn set_urgency(&mut self, urgency: Urgency) {
        self.pace.set_urgency(urgency);
    }

    /// The processes of the group at this place.
    pub(crate) fn processes(&self, place: usize) -> Vec<i32> {
        self.observing.observer().processes(place)
    }

    /// A child process ended. Where it was the guardian, there has to be another.
    pub(crate) fn child_ended(&mut self, pid: i32, events: &mut Events) {
        if self.session.as_ref().and_then(Session::guardian_pid) != Some(pid) {
            return;
        }
        let warning = self.unpinned(|machine| machine.session.as_mut()?.look_after_guardian());
        if let Some(pid) = self.session.as_ref().and_then(Session::guardian_pid) {
            self.observing.guardian_is(pid);
        }
        events.warn_of(warning);
    }

    pub(crate) fn source(&self) -> Source {
        self.observing.observer().source()
    }

    /// Threads of groups that were seen and not tracked.
    pub(crate) fn untracked(&self) -> u64 {
        self.observing.observer().untracked()
    }

    /// The means of retention, and what it rests on.
    pub(crate) fn retention(&self) -> Option<(RetainMeans, String)> {
        self.retention.as_ref().map(|retention| (retention.means(), retention.detail()))
    }

    /// What the kernel's files hold that were set, if nobody else has written them. What was left to somebody counts.
    pub(crate) fn values(&self) -> Vec<SetValue> {
        self.retention.as_ref().map(Retention::values).or_else(|| self.left.clone()).unwrap_or_default()
    }

    /// What retention has spent since the start.
    pub(crate) fn spent(&self) -> Spent {
        let spent = self.retention.as_ref().map(Retention::spent).unwrap_or_default();
        // What yielding threads count themselves is exact to the end; what the kernel polls is known by the window.
        let polls = self.retention.as_ref().is_none_or(|retention| retention.means().polls_in_idle_task());
        Spent { retained: if polls { self.retained } else { spent.retained }, ..spent }
    }

    /// CPU time of observing and deciding since the start.
    pub(crate) fn overhead(&self) -> Nanos {
        thread_cpu_time() - self.overhead_zero
    }

    /// What this process and its programs took lately.
    pub(crate) fn cost(&self) -> OwnCost {
        self.cost.lately(self.observing.observer().programs_ran())
    }

    /// Whether windows are longer than they should be, because observing takes all that it may.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_used_up()
    }

    /// Undoes everything; `release` gives groups back what they had, as long as their threads can still be seen.
    pub(crate) fn end(self, release: impl FnOnce(&mut Observing, &mut Journal)) -> Result<(), ActError> {
        let Self { retention, mut observing, mut bursts, session, .. } = self;
        bursts.end();
        drop(retention);
        let Some(mut session) = session else { return Ok(()) };
        release(&mut observing, &mut session.journal);
        drop(observing);
        session.end().map(drop)
    }
}
