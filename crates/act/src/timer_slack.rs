//! Timer slack: how late the kernel may let a thread's timers expire, so that several expire in one wake-up (Gleaner,
//! Figure 3a: delayed scheduling).
//!
//! A program that sleeps by the clock wakes an idle vCPU for each timer. With slack the timers of one vCPU that are due
//! within the bound share an interrupt. Sleeps and time-outs of ordinary threads are late by up to the slack, timerfds
//! and real-time threads are not. A thread inherits it from its creator and keeps it over exec, so it is set once,
//! before the program begins. What outlives Gleaner is given what it would have had, by a file that only a holder of
//! `CAP_SYS_NICE` may write for others: without it nothing is set.

use crate::ActError;
use crate::journal::{Change, Journal, Run};
use crate::procs::{process_start_time, threads_of};
use gleaner_model::Nanos;
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;

/// A program's timer slack, journalled.
#[derive(Clone, Copy, Debug)]
pub struct TimerSlack {
    slack: Nanos,
    /// The calling thread's, which the program would have inherited.
    had: Nanos,
}

impl TimerSlack {
    /// Notes in the journal that what carries the run's mark is given `slack`.
    ///
    /// # Errors
    /// Without `CAP_SYS_NICE`, when the kernel has no timer slack, or when the journal cannot be written.
    pub fn prepare(slack: Nanos, journal: &mut Journal) -> Result<Self, ActError> {
        let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
        if !may {
            let why = "it could not be undone; run as root, or with CAP_SYS_NICE".to_owned();
            return Err(ActError::Unavailable { what: "timer slack".into(), why });
        }
        let new = Self { slack, had: own()? };
        new.note(0, journal)?;
        Ok(new)
    }

    /// The program runs as `root_pid`: where an undo looks for its threads too.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn started(self, root_pid: i32, journal: &mut Journal) -> Result<(), ActError> {
        self.note(root_pid, journal)
    }

    fn note(self, root_pid: i32, journal: &mut Journal) -> Result<(), ActError> {
        let root_start_time = process_start_time(root_pid).unwrap_or(0);
        let (had_ns, set_ns) = (self.had.0, self.slack.0);
        journal.before(&TimerSlackChange { root_pid, root_start_time, had_ns, set_ns })
    }

    /// Gives it to the calling thread, and so to what it starts. Async-signal-safe.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_on(self) -> io::Result<()> {
        // SAFETY: the call takes numbers alone.
        let done = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack.0, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The calling thread's.
fn own() -> Result<Nanos, ActError> {
    // SAFETY: the call takes a number alone.
    let own = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    let unknown = |_| ActError::Unavailable { what: "timer slack".into(), why: "the kernel does not tell it".into() };
    u64::try_from(own).map(Nanos).map_err(unknown)
}

/// Threads of the program that have this timer slack get the one that they would have had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimerSlackChange {
    /// The managed program; 0: it was about to start.
    root_pid: i32,
    /// Its start time, in clock ticks since boot.
    root_start_time: u64,
    /// What it would have inherited, in nanoseconds.
    had_ns: u64,
    /// What it was given, in nanoseconds.
    set_ns: u64,
}

impl Change for TimerSlackChange {
    const NAME: &'static str = "timer-slack";

    fn undo(&self, run: &Run<'_>) -> Result<(), ActError> {
        let (had, set) = (Nanos(self.had_ns), Nanos(self.set_ns));
        let root = (self.root_pid, self.root_start_time);
        run.for_its_processes(root, self.root_pid != 0, |pids| restore(pids, had, set))
    }
}

/// Gives the threads of these processes that still have `set` what they would have had. How many there were.
fn restore(pids: impl IntoIterator<Item = i32>, had: Nanos, set: Nanos) -> Result<usize, ActError> {
    let mut count = 0;
    for tid in pids.into_iter().flat_map(threads_of) {
        let path = format!("/proc/{tid}/timerslack_ns");
        let is = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        if is != Some(set.0) {
            continue;
        }
        match fs::write(&path, had.0.to_string()) {
            Ok(()) => count += 1,
            // It has ended since.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(ActError::file("write", path.as_ref())(error)),
        }
    }
    Ok(count)
}
