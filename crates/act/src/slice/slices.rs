//! Slices of many threads, over a long time: set, verified, and given back.
//!
//! A thread's slice is journalled once for each value it is given, with what it was before Gleaner first touched it,
//! and known by id and start time: an id that another thread has taken since is neither set nor undone. What is put
//! back is put back only where what we set is still there: somebody else's later word counts. And a thread belongs to
//! one run of Gleaner at a time: of two that overlap, the second would take the first one's slice for the thread's own.

use super::attr::{SliceSupport, ThreadAttr, set_slice, thread_attr};
use crate::ActError;
use crate::journal::{Change, Journal, Run};
use crate::procs::thread_start_time;
use gleaner_model::Nanos;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The shortest and the longest slice that the kernel takes.
pub const SLICE_RANGE: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(100)..=Nanos::from_millis(100);

/// What became of setting one thread's slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It has this slice now, read back.
    Set(Nanos),
    /// Likewise, and it had been given the same one before: somebody else has changed it since.
    SetBack {
        /// What it has now.
        slice: Nanos,
        /// What somebody else had given it.
        found: Nanos,
    },
    /// This kernel gives threads no slices (before Linux 6.12): nothing was changed.
    NoSlices,
    /// The thread has ended.
    Gone,
}

#[derive(Clone, Debug)]
struct Changed {
    start_time: u64,
    /// What to give back; zero: the base slice.
    was: Nanos,
    /// What it was given, each value once: those that a policy chooses from.
    given: Vec<Nanos>,
    /// What it was given last, and had.
    last: Option<Nanos>,
}

/// The threads whose slices were set.
#[derive(Debug)]
pub struct Slices {
    support: SliceSupport,
    changed: BTreeMap<i32, Changed>,
}

impl Default for Slices {
    fn default() -> Self {
        Self::new()
    }
}

impl Slices {
    /// None yet.
    pub fn new() -> Self {
        Self { support: SliceSupport::probe(), changed: BTreeMap::new() }
    }

    /// What the kernel can do.
    pub fn support(&self) -> SliceSupport {
        self.support
    }

    /// Gives thread `tid` the slice, which may be set anew as often as wanted, and reads it back.
    ///
    /// # Errors
    /// A slice out of [`SLICE_RANGE`]; a thread of a class without slices (SCHED_FIFO, SCHED_DEADLINE and the like), or
    /// that another run of Gleaner holds; no permission; a kernel that keeps another slice than was set; a journal that
    /// cannot be written. Nothing is changed then.
    pub fn set(&mut self, tid: i32, slice: Nanos, journal: &mut Journal) -> Result<SliceOutcome, ActError> {
        if !SLICE_RANGE.contains(&slice) {
            let why = format!("a slice is at least {} and at most {}", SLICE_RANGE.start(), SLICE_RANGE.end());
            return Err(ActError::Unavailable { what: format!("a slice of {slice}"), why });
        }
        let Some(start_time) = thread_start_time(tid) else { return Ok(self.gone(tid)) };
        let now = match thread_attr(tid) {
            Ok(now) => now,
            Err(ActError::Thread { source, .. }) if is_gone(&source) => return Ok(self.gone(tid)),
            Err(error) => return Err(error),
        };
        check_class(tid, &now)?;
        // Where the kernel has no slices too: the thread is this run's, and so is the ticker that shortens its turns.
        let was = if self.support.base.is_none_or(|base| now.slice == base) { Nanos::ZERO } else { now.slice };
        self.remember(tid, start_time, was, slice, journal)?;
        if self.support.base.is_none() {
            return Ok(SliceOutcome::NoSlices);
        }
        self.change(tid, now.slice, slice)
    }

    /// Sets the slice of a thread that has `found`, unless it is the same.
    fn change(&mut self, tid: i32, found: Nanos, slice: Nanos) -> Result<SliceOutcome, ActError> {
        let kernel_says = if found == slice { Ok(()) } else { set_slice(tid, slice) };
        let outcome = match kernel_says {
            Ok(()) if found == slice => SliceOutcome::Set(slice),
            Ok(()) => self.verify(tid, slice)?,
            Err(Errno::SRCH) => self.gone(tid),
            Err(errno) => return Err(ActError::thread("sched_setattr", tid)(errno)),
        };
        let last = self.changed.get_mut(&tid).and_then(|changed| changed.last.replace(slice));
        let by_another = last == Some(slice) && found != slice && outcome == SliceOutcome::Set(slice);
        Ok(if by_another { SliceOutcome::SetBack { slice, found } } else { outcome })
    }

    fn gone(&mut self, tid: i32) -> SliceOutcome {
        self.changed.remove(&tid);
        SliceOutcome::Gone
    }

    /// Journals what the thread had before it is given `slice`, unless that is in the journal.
    fn remember(
        &mut self,
        tid: i32,
        start_time: u64,
        was: Nanos,
        slice: Nanos,
        journal: &mut Journal,
    ) -> Result<(), ActError> {
        let known = self.changed.get(&tid).filter(|known| known.start_time == start_time);
        if known.is_some_and(|known| known.given.contains(&slice)) {
            return Ok(());
        }
        let mut changed = known.cloned().unwrap_or(Changed { start_time, was, given: Vec::new(), last: None });
        let undo = SliceChange { tid, start_time, was_ns: changed.was.0, set_ns: slice.0 };
        if changed.given.is_empty() {
            // Two that begin together must not both find nobody.
            let _folder = journal.lock_folder();
            let its = |other: &SliceChange| (other.tid, other.start_time) == (tid, start_time);
            if let Some(pid) = journal.made_by_another(its) {
                let why = format!("process {pid}, another run of Gleaner, has set it; end that one first");
                return Err(ActError::Unavailable { what: format!("the slice of thread {tid}"), why });
            }
            journal.before(&undo)?;
        } else {
            journal.before(&undo)?;
        }
        // Nobody else has anything of a dead thread's slice.
        journal.compact_if_long(|entry| {
            entry.get().is_none_or(|of: SliceChange| thread_start_time(of.tid) == Some(of.start_time))
        })?;
        changed.given.push(slice);
        self.changed.insert(tid, changed);
        Ok(())
    }

    fn verify(&mut self, tid: i32, wanted: Nanos) -> Result<SliceOutcome, ActError> {
        match thread_attr(tid) {
            Ok(attr) if attr.slice == wanted => Ok(SliceOutcome::Set(wanted)),
            Ok(attr) => Err(ActError::Unavailable {
                what: format!("a slice of {wanted} for thread {tid}"),
                why: format!("the kernel says {} after it was set", attr.slice),
            }),
            Err(_) => Ok(self.gone(tid)),
        }
    }

    /// Gives one thread back what it had before, unless somebody else has set it since. A thread that has ended, or was
    /// never set, needs nothing.
    pub fn give_back(&mut self, tid: i32) -> Result<(), ActError> {
        // It stays in the journal and in `changed`: giving back twice does no harm, and it may be set again.
        let Some(changed) = self.changed.get_mut(&tid) else { return Ok(()) };
        changed.last = None;
        restore_slice(tid, changed.start_time, changed.was, &changed.given)
    }

    /// The threads that were set, ascending.
    pub fn tids(&self) -> impl Iterator<Item = i32> + '_ {
        self.changed.keys().copied()
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

fn check_class(tid: i32, attr: &ThreadAttr) -> Result<(), ActError> {
    if attr.is_fair() {
        return Ok(());
    }
    let class = match i32::try_from(attr.policy) {
        Ok(libc::SCHED_FIFO) => "SCHED_FIFO".to_owned(),
        Ok(libc::SCHED_RR) => "SCHED_RR".to_owned(),
        Ok(libc::SCHED_DEADLINE) => "SCHED_DEADLINE".to_owned(),
        _ => format!("scheduling policy {}", attr.policy),
    };
    Err(ActError::Unavailable {
        what: format!("a slice for thread {tid}"),
        why: format!("it is of {class}, and only SCHED_OTHER, SCHED_BATCH and SCHED_IDLE have slices"),
    })
}

/// A thread's time slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceChange {
    /// Which thread.
    tid: i32,
    /// Its start time, in clock ticks since boot.
    start_time: u64,
    /// What it was, in nanoseconds; 0: the base slice.
    was_ns: u64,
    /// What it was given: put back only where that is still there.
    set_ns: u64,
}

impl Change for SliceChange {
    const NAME: &'static str = "slice";

    fn undo(&self, run: &Run<'_>) -> Result<(), ActError> {
        // Another namespace's thread: its id and start time name somebody else here.
        if run.foreign {
            return Ok(());
        }
        restore_slice(self.tid, self.start_time, Nanos(self.was_ns), &[Nanos(self.set_ns)])
    }
}

/// Gives a slice back to the thread of this id and start time, if it still lives and has one of those that it was
/// given.
fn restore_slice(tid: i32, start_time: u64, was: Nanos, given: &[Nanos]) -> Result<(), ActError> {
    if thread_start_time(tid) != Some(start_time) {
        return Ok(());
    }
    let now = match thread_attr(tid) {
        Ok(now) => now.slice,
        Err(ActError::Thread { source, .. }) if is_gone(&source) => return Ok(()),
        Err(error) => return Err(error),
    };
    // Another value: already given back, never set, or somebody else's since.
    if !given.contains(&now) {
        return Ok(());
    }
    match set_slice(tid, was) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(ActError::thread("sched_setattr", tid)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{UndoOutcome, undo_own};
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// A thread that does nothing until it is told to end.
    struct Sleeper {
        tid: i32,
        end: Sender<()>,
        thread: JoinHandle<()>,
    }

    fn sleeper(slice: Nanos) -> Sleeper {
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = set_slice(0, slice);
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = ended.recv();
        });
        Sleeper { tid: told.recv().unwrap(), end, thread }
    }

    fn has_slices() -> bool {
        let has = SliceSupport::probe().base.is_some();
        if !has {
            gleaner_testing::skipped("needs slices of threads (Linux 6.12)");
        }
        has
    }

    #[test]
    fn slices_are_set_anew_and_undone_to_the_first_one() {
        if !has_slices() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let own = Nanos::from_millis(7);
        let (chosen, default) = (sleeper(own), sleeper(Nanos::ZERO));
        let base = thread_attr(default.tid).unwrap().slice;
        let mut slices = Slices::new();
        for slice in [Nanos::from_millis(1), Nanos::from_micros(100), Nanos::from_millis(1)] {
            for tid in [chosen.tid, default.tid] {
                assert_eq!(slices.set(tid, slice, &mut journal).unwrap(), SliceOutcome::Set(slice));
                assert_eq!(thread_attr(tid).unwrap().slice, slice);
            }
        }
        slices.give_back(chosen.tid).unwrap();
        assert_eq!(thread_attr(chosen.tid).unwrap().slice, own);
        slices.set(chosen.tid, Nanos::from_millis(2), &mut journal).unwrap();
        // One line a thread and slice, however often it was set.
        assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 5 });
        assert_eq!([chosen.tid, default.tid].map(|tid| thread_attr(tid).unwrap().slice), [own, base]);
        for Sleeper { end, thread, .. } in [chosen, default] {
            drop(end);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_gone_and_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let mut slices = Slices::new();
        let Sleeper { tid, end, thread } = sleeper(Nanos::ZERO);
        slices.set(tid, Nanos::from_millis(1), &mut journal).unwrap();
        drop(end);
        thread.join().unwrap();
        let gone = (0..30_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            slices.set(tid, Nanos::from_millis(1), &mut journal).unwrap() == SliceOutcome::Gone
        });
        assert!(gone);
        slices.give_back(tid).unwrap();
        undo_own(&journal).unwrap();
    }

    #[test]
    fn a_recycled_id_is_left_alone() {
        if !has_slices() {
            return;
        }
        let other = sleeper(Nanos::from_millis(9));
        let start_time = thread_start_time(other.tid).unwrap();
        restore_slice(other.tid, start_time + 1, Nanos::from_millis(1), &[Nanos::from_millis(9)]).unwrap();
        assert_eq!(thread_attr(other.tid).unwrap().slice, Nanos::from_millis(9));
        drop(other.end);
        other.thread.join().unwrap();
    }

    #[test]
    fn what_somebody_else_set_is_set_back_and_said_and_undone_to_the_first_one() {
        if !has_slices() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let (own, ours, others) = (Nanos::from_millis(7), Nanos::from_millis(1), Nanos::from_millis(5));
        let thread = sleeper(own);
        let mut slices = Slices::new();
        let mut set = |slice| slices.set(thread.tid, slice, &mut journal).unwrap();
        assert_eq!((set(ours), set(ours)), (SliceOutcome::Set(ours), SliceOutcome::Set(ours)));
        for _ in 0..2 {
            set_slice(thread.tid, others).unwrap();
            assert_eq!(set(ours), SliceOutcome::SetBack { slice: ours, found: others });
        }
        // Another slice of ours, as a policy's step is.
        assert_eq!(set(Nanos::from_millis(2)), SliceOutcome::Set(Nanos::from_millis(2)));
        undo_own(&journal).unwrap();
        assert_eq!(thread_attr(thread.tid).unwrap().slice, own);
        drop(thread.end);
        thread.thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_took_the_id_of_another_is_new() {
        if !has_slices() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let (own, ours) = (Nanos::from_millis(7), Nanos::from_millis(1));
        let thread = sleeper(own);
        let mut slices = Slices::new();
        let start_time = thread_start_time(thread.tid).unwrap() - 1;
        let dead = Changed { start_time, was: Nanos::from_millis(3), given: vec![ours], last: Some(ours) };
        slices.changed.insert(thread.tid, dead);
        // Set, not set back, and what it had itself is given back.
        assert_eq!(slices.set(thread.tid, ours, &mut journal).unwrap(), SliceOutcome::Set(ours));
        undo_own(&journal).unwrap();
        assert_eq!(thread_attr(thread.tid).unwrap().slice, own);
        drop(thread.end);
        thread.thread.join().unwrap();
    }

    #[test]
    fn of_two_runs_that_overlap_the_second_is_refused_and_nothing_is_left() {
        if !has_slices() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (own, short, longer) = (Nanos::from_millis(7), Nanos::from_millis(1), Nanos::from_millis(2));
        let thread = sleeper(own);
        let now = || thread_attr(thread.tid).unwrap().slice;
        let mut first = Journal::create(dir.path(), "run-a").unwrap();
        let mut second = Journal::create(dir.path(), "run-b").unwrap();
        let (mut a, mut b) = (Slices::new(), Slices::new());
        a.set(thread.tid, short, &mut first).unwrap();
        let refused = b.set(thread.tid, longer, &mut second).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()) && refused.contains("end that one"), "{refused}");
        assert_eq!(now(), short);
        undo_own(&first).unwrap();
        assert_eq!(now(), own);
        // The first is over, so the second may; it found the thread's own slice.
        b.set(thread.tid, longer, &mut second).unwrap();
        undo_own(&second).unwrap();
        assert_eq!(now(), own);
        drop(thread.end);
        thread.thread.join().unwrap();
    }

    #[test]
    fn what_somebody_else_set_meanwhile_stays() {
        if !has_slices() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let thread = sleeper(Nanos::from_millis(7));
        let mut slices = Slices::new();
        slices.set(thread.tid, Nanos::from_millis(1), &mut journal).unwrap();
        set_slice(thread.tid, Nanos::from_millis(5)).unwrap();
        slices.give_back(thread.tid).unwrap();
        undo_own(&journal).unwrap();
        assert_eq!(thread_attr(thread.tid).unwrap().slice, Nanos::from_millis(5));
        drop(thread.end);
        thread.thread.join().unwrap();
    }

    #[test]
    fn slices_out_of_range_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path(), "run-1").unwrap();
        let mut slices = Slices::new();
        let before = thread_attr(0).unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        for slice in [Nanos(99_999), Nanos(100_000_001), Nanos::ZERO] {
            assert!(slices.set(own, slice, &mut journal).unwrap_err().to_string().contains("at least 100us"));
        }
        assert_eq!(thread_attr(0).unwrap(), before);
        assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 0 });
    }
}
