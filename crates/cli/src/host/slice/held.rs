//! Sets slices, watches them for a while, and puts them back.

use super::chosen::Chosen;
use super::command::Running;
use super::enforce::Backend;
use crate::host::shared::{interrupted_before, kernel_notes};
use crate::session;
use gleaner_act::{ActError, SliceOutcome, Slices};
use gleaner_command::failure::Failure;
use gleaner_command::output::say;
use gleaner_decide::host::HostParams;
use gleaner_model::{Nanos, Source};
use gleaner_observe::{IntervalDistribution, Intervals, IntervalsWindow, RunIntervals, RunIntervalsConfig};
use gleaner_report::{SliceReport, SliceThread};
use gleaner_runtime::Session;
use gleaner_runtime::event_loop::{self, Task};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two windows; each sets the slices anew, for whoever was given another since.
const WINDOW: Duration = Duration::from_secs(1);
/// A limit: slices may be held for weeks.
const MOST_NOTES: usize = 50;

/// What is asked for.
pub struct Request<'a> {
    pub slice: Nanos,
    pub enforce: bool,
    pub length: Option<Duration>,
    pub command: &'a [OsString],
    /// The threads that are meant now: VMs start, and get more vCPUs, while their slices are held.
    pub look_again: &'a dyn Fn() -> Vec<Chosen>,
}

/// One thread and what was seen of it.
struct HeldThread {
    chosen: Chosen,
    set: Option<Nanos>,
    ended: bool,
    /// Its slice could not be set, so it is no longer meant.
    left_out: bool,
    run: Nanos,
    wait: Nanos,
    runs: u64,
    intervals: Option<Intervals>,
}

/// Holds the slices until the time is over, the command has ended, somebody interrupts, or no thread is left.
pub fn hold(
    request: &Request<'_>,
    threads: Vec<Chosen>,
    switch: Option<Nanos>,
    interrupted: &AtomicBool,
) -> Result<SliceReport, Failure> {
    let mut session = session::begin().map_err(Failure::work)?;
    let mut notes = kernel_notes();
    notes.extend(session.warning().map(|warning| warning.to_string()));
    let tids: Vec<i32> = threads.iter().map(|thread| thread.tid).collect();
    let mut intervals = RunIntervals::new(&RunIntervalsConfig::default().with_room_for(tids.len()));
    notes.extend(intervals.refusal().map(|why| format!("only means are known, no distributions: {why}")));
    intervals.watch(&tids);
    let mut seen: Vec<HeldThread> = threads.into_iter().map(HeldThread::nothing).collect();
    let mut slices = Slices::new();
    if slices.support().base.is_none() && !request.enforce {
        return Err(Failure::work(format!("{}; --no-enforce leaves nothing to do", slices.support().describe())));
    }
    // This first: where it is refused, nothing has been changed.
    let backend = Backend::start(request.enforce, request.slice, slices.support(), &intervals)?;
    let refused = set_all(&mut seen, |tid| slices.set(tid, request.slice, &mut session.journal));
    if let Some(Refused { error, .. }) = refused.into_iter().next() {
        return Err(refusal(&error, session));
    }
    let command = Running::start(request.command)?;
    let began = Instant::now();
    let mut held = Held {
        request,
        interrupted,
        session,
        seen,
        backend,
        slices,
        intervals,
        switch,
        command,
        began,
        next: began + WINDOW,
        exit_status: None,
        newcomers: 0,
        notes,
    };
    let first = held.until_next();
    event_loop::run(&mut held, first);
    Ok(held.conclude())
}

/// A slice cannot be set: all are put back.
fn refusal(error: &ActError, session: Session) -> Failure {
    let advice = if is_forbidden(error) { "; run as root, with CAP_SYS_NICE, or as its owner" } else { "" };
    let then = match session.end() {
        Ok(_) => "Every slice is as it was".to_owned(),
        Err(left) => format!("Not everything could be undone ({left}): run `gleaner restore`"),
    };
    Failure::work(format!("{error}{advice}. {then}"))
}

impl HeldThread {
    fn nothing(chosen: Chosen) -> Self {
        let (run, wait, runs) = (Nanos::ZERO, Nanos::ZERO, 0);
        Self { chosen, set: None, ended: false, left_out: false, run, wait, runs, intervals: None }
    }

    fn is_held(&self) -> bool {
        !self.ended && !self.left_out
    }
}

/// Adds those that were not there before; says which they are.
fn take_in(seen: &mut Vec<HeldThread>, now: Vec<Chosen>) -> std::ops::Range<usize> {
    let before = seen.len();
    for chosen in now {
        if !seen.iter().any(|thread| thread.chosen.tid == chosen.tid && !thread.ended) {
            seen.push(HeldThread::nothing(chosen));
        }
    }
    before..seen.len()
}

/// Says it now, for the end may be far, and once more in the report.
fn tell(notes: &mut Vec<String>, told: impl Iterator<Item = String>) {
    for note in told.take(MOST_NOTES.saturating_sub(notes.len())) {
        say(&format!("gleaner: {note}"));
        notes.push(note);
    }
}

/// Of threads beyond those that BPF has room for.
pub fn without_room(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| {
        "more vCPU threads than BPF was given room for at the start: those beyond are watched through /proc, which \
         knows means only and sees competition late; starting anew makes room"
            .to_owned()
    })
}

/// A thread whose slice could not be set, by its place in the list.
#[derive(Debug)]
struct Refused {
    at: usize,
    error: ActError,
}

impl Refused {
    fn note(&self, seen: &[HeldThread]) -> String {
        let chosen = &seen[self.at].chosen;
        let vm = chosen.vm.as_ref().map(|vm| format!(" of VM {vm}")).unwrap_or_default();
        let error = &self.error;
        format!(
            "thread {} ({}){vm} is left out: its slice cannot be set ({error}); the others go on",
            chosen.tid, chosen.name
        )
    }
}

/// Sets the slice of all that are held. Those whose slice cannot be set are left out from now on; the others are set
/// all the same.
fn set_all(seen: &mut [HeldThread], mut set: impl FnMut(i32) -> Result<SliceOutcome, ActError>) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (at, thread) in seen.iter_mut().enumerate().filter(|(_, thread)| thread.is_held()) {
        match set(thread.chosen.tid) {
            Ok(SliceOutcome::Set(set) | SliceOutcome::SetBack { slice: set, .. }) => thread.set = Some(set),
            Ok(SliceOutcome::NoSlices) => {}
            Ok(SliceOutcome::Gone) => thread.ended = true,
            Err(error) => {
                thread.left_out = true;
                refused.push(Refused { at, error });
            }
        }
    }
    refused
}

fn is_forbidden(error: &ActError) -> bool {
    matches!(error, ActError::Thread { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}

fn add(seen: &mut [HeldThread], window: IntervalsWindow) {
    let mut by_tid: BTreeMap<i32, _> = window.threads.into_iter().map(|thread| (thread.tid, thread)).collect();
    for thread in seen {
        let Some(found) = by_tid.remove(&thread.chosen.tid) else { continue };
        thread.ended |= found.ended;
        thread.run += found.run;
        thread.wait += found.wait;
        thread.runs += found.runs;
        if let Some(intervals) = &found.intervals {
            thread.intervals.get_or_insert_default().merge(intervals);
        }
    }
}

/// Slices in force, and all that a report is made of.
struct Held<'a> {
    request: &'a Request<'a>,
    interrupted: &'a AtomicBool,
    session: Session,
    seen: Vec<HeldThread>,
    backend: Backend,
    slices: Slices,
    intervals: RunIntervals,
    switch: Option<Nanos>,
    command: Option<Running>,
    began: Instant,
    /// When the next window ends, if the time is not over before.
    next: Instant,
    exit_status: Option<i32>,
    newcomers: usize,
    notes: Vec<String>,
}

impl Task for Held<'_> {
    /// The command has ended, or somebody interrupts.
    type Event = ();
    type Outcome = ();

    fn wait_until(&mut self, due: Instant) -> Option<()> {
        match &self.command {
            Some(command) => {
                command.sleep_until(due, self.interrupted);
                (Instant::now() < due).then_some(())
            }
            None => interrupted_before(due, self.interrupted).map(drop),
        }
    }

    fn tick(&mut self, _: Nanos) -> ControlFlow<(), Duration> {
        if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(self.until_next()) }
    }

    fn event(&mut self, (): ()) -> ControlFlow<(), Option<Duration>> {
        if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(Some(self.until_next())) }
    }
}

impl Held<'_> {
    fn until_next(&self) -> Duration {
        let until = self.request.length.map_or(self.next, |length| self.next.min(self.began + length));
        until.saturating_duration_since(Instant::now())
    }

    /// Looks whether there is a reason to end, and ends the window if it is time.
    fn is_over(&mut self) -> bool {
        self.exit_status = self.command.as_mut().and_then(Running::ended);
        let told = self.interrupted.load(Ordering::Relaxed);
        let over = told || self.request.length.is_some_and(|length| self.began.elapsed() >= length);
        let done = match &mut self.command {
            Some(_) => self.exit_status.is_some(),
            None => over || self.seen.iter().all(|thread| !thread.is_held()),
        };
        self.command.iter_mut().filter(|_| told).for_each(Running::tell_to_end);
        if Instant::now() >= self.next || done {
            self.window();
            self.next = Instant::now() + WINDOW;
        }
        done
    }

    fn window(&mut self) {
        let Self { request, session, seen, slices, intervals, newcomers, notes, .. } = self;
        notes.extend(session.look_after_guardian().map(|warning| warning.to_string()));
        add(seen, intervals.window());
        let came = take_in(seen, (request.look_again)());
        // Whoever is already held is not let go because of one that cannot be.
        let refused = set_all(seen, |tid| slices.set(tid, request.slice, &mut session.journal));
        *newcomers += seen[came.clone()].iter().filter(|thread| thread.is_held()).count();
        tell(notes, refused.iter().map(|refused| refused.note(seen)));
        if !(came.is_empty() && refused.is_empty()) {
            let held = seen.iter().filter(|thread| thread.is_held()).map(|thread| thread.chosen.tid);
            intervals.watch(&held.collect::<Vec<i32>>());
            let note = without_room(intervals.left_out()).filter(|note| !notes.contains(note));
            tell(notes, note.into_iter());
        }
    }

    fn conclude(self) -> SliceReport {
        let wall = Nanos::from(self.began.elapsed());
        let Self {
            request, session, seen, backend, slices, intervals, switch, exit_status, newcomers, mut notes, ..
        } = self;
        if newcomers > 0 {
            notes.push(format!("vCPU threads that came meanwhile and got the slice too: {newcomers}"));
        }
        let cpus = backend.cpus(wall);
        notes.extend(backend.notes());
        let (method, asking) = (backend.method, backend.asking());
        drop(backend);
        let base = slices.support().base;
        if base.is_none() {
            notes.push(slices.support().describe());
        }
        let ended = seen.iter().filter(|thread| thread.ended).count();
        if ended > 0 {
            notes.push(format!("{ended} of {} threads ended meanwhile", seen.len()));
        }
        let restored = session.end().map_err(|error| {
            let note = format!("not everything could be undone ({error}): run `gleaner restore`");
            say(&format!("gleaner: {note}"));
            notes.push(note);
        });
        let users = users_of_slices(&seen, wall);
        if users.len() < seen.len() {
            let (users, all) = (users.len(), seen.len());
            notes.push(format!(
                "what was delivered is told of the {users} of {all} threads that could run all the time"
            ));
        }
        let mut all = IntervalDistribution::default();
        let known = users.iter().filter_map(|thread| thread.intervals.as_ref());
        known.for_each(|intervals| all.merge(&intervals.preempted));
        let bpf = intervals.source() == Source::Bpf;
        let mean_of_all = {
            let (run, runs) = users.iter().fold((0, 0), |(run, runs), seen| (run + seen.run.0, runs + seen.runs));
            run.checked_div(runs)
        };
        let ratio = cpus.iter().map(|cpu| cpu.cpu_ratio).fold(0.0, |all, one| all + one) / cpus.len().max(1) as f64;
        SliceReport {
            schema: SliceReport::SCHEMA.to_owned(),
            requested_ns: request.slice.0,
            delivered_p50_ns: all.quantile(0.5).map(|ns| ns.0),
            delivered_p90_ns: all.quantile(0.9).map(|ns| ns.0),
            delivered_mean_ns: if bpf { all.mean().map(|ns| ns.0) } else { mean_of_all },
            delivered_n: bpf.then(|| all.count()),
            method: method.to_owned(),
            enforcement_cpu_ratio: (!["hrtick", "tick"].contains(&method)).then_some(ratio),
            asking_cpu_ratio: asking.map(|asking| asking.share_of(wall)),
            observer: if bpf { "bpf" } else { "procfs" }.to_owned(),
            wall_ns: wall.0,
            base_slice_ns: base.map(|base| base.0),
            switch_cost_ns: switch.map(|switch| switch.0),
            threads: seen.into_iter().map(|seen| thread(seen, base)).collect(),
            cpus,
            command: request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_status,
            notes,
            restored: restored.is_ok(),
        }
    }
}

/// Threads whose run intervals show slices: the continuously runnable ones, or all where there is none. A vCPU that
/// idles has thousands of short intervals that no slice ended.
fn users_of_slices(seen: &[HeldThread], wall: Nanos) -> Vec<&HeldThread> {
    let share_min = HostParams::default().runnable_share_min;
    let runnable = |thread: &&HeldThread| (thread.run + thread.wait).share_of(wall) >= share_min;
    let users: Vec<&HeldThread> = seen.iter().filter(runnable).collect();
    if users.is_empty() { seen.iter().collect() } else { users }
}

fn thread(seen: HeldThread, base: Option<Nanos>) -> SliceThread {
    let HeldThread { chosen, set, ended, run, wait, intervals, .. } = seen;
    let of = |which: fn(&Intervals) -> &IntervalDistribution| intervals.as_ref().map(which);
    let quantile = |which: fn(&Intervals) -> &IntervalDistribution, q| of(which)?.quantile(q).map(|ns: Nanos| ns.0);
    let policy = match i32::try_from(chosen.attr.policy) {
        Ok(libc::SCHED_BATCH) => "batch",
        Ok(libc::SCHED_IDLE) => "idle",
        _ => "other",
    };
    SliceThread {
        tid: chosen.tid,
        name: chosen.name,
        vm: chosen.vm,
        vcpu: chosen.vcpu,
        policy: policy.to_owned(),
        nice: chosen.attr.nice,
        was_ns: base.map(|_| chosen.attr.slice.0),
        set_ns: set.map(|set| set.0),
        ended,
        run_ns: run.0,
        wait_ns: wait.0,
        preempted_n: of(|seen| &seen.preempted).map(IntervalDistribution::count),
        delivered_p50_ns: quantile(|seen| &seen.preempted, 0.5),
        delivered_p90_ns: quantile(|seen| &seen.preempted, 0.9),
        slept_n: of(|seen| &seen.slept).map(IntervalDistribution::count),
        slept_p50_ns: quantile(|seen| &seen.slept, 0.5),
        wake_to_run_p50_ns: quantile(|seen| &seen.wake_to_run, 0.5),
        wake_to_run_p99_ns: quantile(|seen| &seen.wake_to_run, 0.99),
        latency_p50_ns: quantile(|seen| &seen.off_preempted, 0.5),
        latency_p99_ns: quantile(|seen| &seen.off_preempted, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_act::ThreadAttr;

    fn chosen(tid: i32) -> Chosen {
        let attr = ThreadAttr { policy: 0, nice: 0, slice: Nanos::from_millis(3) };
        Chosen { tid, name: format!("CPU {tid}/KVM"), vm: Some("web".into()), vcpu: None, attr }
    }

    /// A kernel that refuses threads from 90 on, and in which 50 has ended.
    fn kernel(tid: i32) -> Result<SliceOutcome, ActError> {
        match tid {
            50 => Ok(SliceOutcome::Gone),
            90.. => Err(ActError::Unavailable { what: format!("a slice for {tid}"), why: "not permitted".into() }),
            _ => Ok(SliceOutcome::Set(Nanos::from_millis(1))),
        }
    }

    #[test]
    fn a_newcomer_that_cannot_be_set_is_left_out_and_the_others_go_on() {
        let mut seen: Vec<HeldThread> = [1, 2].map(|tid| HeldThread::nothing(chosen(tid))).into();
        assert_eq!(set_all(&mut seen, kernel).len(), 0);
        // Named again, new and refused, new and ended meanwhile, new.
        let came = take_in(&mut seen, [1, 90, 50, 3].map(chosen).into());
        assert_eq!(came, 2..5);
        let refused = set_all(&mut seen, kernel);
        let notes: Vec<String> = refused.iter().map(|refused| refused.note(&seen)).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        for word in ["thread 90 (CPU 90/KVM) of VM web is left out", "not permitted", "the others go on"] {
            assert!(notes[0].contains(word), "{word}: {notes:?}");
        }
        let held = |seen: &[HeldThread]| -> Vec<i32> {
            seen.iter().filter(|thread| thread.is_held()).map(|thread| thread.chosen.tid).collect()
        };
        assert_eq!(held(&seen), [1, 2, 3]);
        assert!(seen.iter().all(|thread| thread.set.is_some() == thread.is_held()));
        // Neither asked again nor told again, nor taken for a newcomer.
        assert!(take_in(&mut seen, [90, 3].map(chosen).into()).is_empty());
        assert_eq!(set_all(&mut seen, |tid| if tid == 90 { panic!("asked again") } else { kernel(tid) }).len(), 0);
    }

    #[test]
    fn what_was_delivered_is_told_by_those_who_could_always_run() {
        let ms = Nanos::from_millis;
        let thread = |tid, run, wait| HeldThread { run: ms(run), wait: ms(wait), ..HeldThread::nothing(chosen(tid)) };
        let tids = |seen: &[HeldThread]| -> Vec<i32> {
            users_of_slices(seen, ms(1000)).iter().map(|seen| seen.chosen.tid).collect()
        };
        assert_eq!(tids(&[thread(1, 500, 490), thread(2, 60, 30), thread(3, 480, 480), thread(4, 900, 0)]), [1, 3]);
        // Nobody: better all than nothing.
        assert_eq!(tids(&[thread(1, 500, 100), thread(2, 60, 30)]), [1, 2]);
    }

    #[test]
    fn one_that_is_held_and_cannot_be_any_more_is_left_out_too() {
        let mut seen: Vec<HeldThread> = [1, 2].map(|tid| HeldThread::nothing(chosen(tid))).into();
        set_all(&mut seen, kernel);
        let refused = set_all(&mut seen, |tid| kernel(if tid == 1 { 91 } else { tid }));
        assert_eq!(refused.len(), 1);
        assert_eq!((seen[0].is_held(), seen[1].is_held(), seen[0].set), (false, true, Some(Nanos::from_millis(1))));
    }
}
