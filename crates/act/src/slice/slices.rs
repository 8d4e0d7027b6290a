//! Slices of many threads, over a long time: set, verified, and given back.
//!
//! A thread's slice is journalled once, with what it was before Gleaner first touched it, and known by id and start time: an
//! id that another thread has taken since is neither set nor undone.

use super::attr::{SliceSupport, ThreadAttr, set_slice, thread_attr};
use crate::ActError;
use crate::journal::Journal;
use crate::procs::thread_start_time;
use crate::undo::Undo;
use gleaner_model::Nanos;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The shortest and the longest slice that the kernel takes.
pub const SLICE_RANGE: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(100)..=Nanos::from_millis(100);

/// What became of setting one thread's slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It has this slice now, read back.
    Set(Nanos),
    /// This kernel gives threads no slices (before Linux 6.12): nothing was changed.
    NoSlices,
    /// The thread has ended.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Changed {
    start_time: u64,
    /// What to give back; zero: the base slice.
    was: Nanos,
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
    /// A slice out of [`SLICE_RANGE`]; a thread of a class without slices (SCHED_FIFO, SCHED_DEADLINE and the like); no permission;
    /// a kernel that keeps another slice than was set; a journal that cannot be written. Nothing is changed then.
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
        let Some(base) = self.support.base else { return Ok(SliceOutcome::NoSlices) };
        self.remember(tid, start_time, now.slice, base, journal)?;
        if now.slice == slice {
            return Ok(SliceOutcome::Set(slice));
        }
        match set_slice(tid, slice) {
            Ok(()) => self.verify(tid, slice),
            Err(Errno::SRCH) => Ok(self.gone(tid)),
            Err(errno) => Err(ActError::thread("sched_setattr", tid)(errno)),
        }
    }

    fn gone(&mut self, tid: i32) -> SliceOutcome {
        self.changed.remove(&tid);
        SliceOutcome::Gone
    }

    /// Journals what the thread had, the first time.
    fn remember(
        &mut self,
        tid: i32,
        start_time: u64,
        slice: Nanos,
        base: Nanos,
        journal: &mut Journal,
    ) -> Result<(), ActError> {
        let new = Changed { start_time, was: if slice == base { Nanos::ZERO } else { slice } };
        if self.changed.get(&tid).is_some_and(|known| known.start_time == start_time) {
            return Ok(());
        }
        journal.before(&Undo::Slice { tid, start_time, was_ns: new.was.0 })?;
        journal.compact_if_long()?;
        self.changed.insert(tid, new);
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

    /// Gives one thread back what it had before. A thread that has ended, or was never set, needs nothing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn give_back(&mut self, tid: i32) -> Result<(), ActError> {
        match self.changed.get(&tid) {
            Some(changed) => restore_slice(tid, changed.start_time, changed.was),
            None => Ok(()),
        }
        // It stays in the journal and in `changed`: giving back twice does no harm, and it may be set again.
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

/// Gives a slice back to the thread of this id and start time, if it still lives.
pub(crate) fn restore_slice(tid: i32, start_time: u64, was: Nanos) -> Result<(), ActError> {
    if thread_start_time(tid) != Some(start_time) {
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
    use crate::undo::{UndoOutcome, undo_own};
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
            eprintln!("\n*** SKIPPED: this kernel has no slices (Linux 6.12 has) ***\n");
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
        // One line a thread, however often it was set.
        assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 2 });
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
        let gone = (0..500).any(|_| {
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
        restore_slice(other.tid, start_time + 1, Nanos::from_millis(1)).unwrap();
        assert_eq!(thread_attr(other.tid).unwrap().slice, Nanos::from_millis(9));
        drop(other.end);
        other.thread.join().unwrap();
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
