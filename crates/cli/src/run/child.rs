//! The managed program: started so that it sees what it would see without Gleaner.

use super::signals::Inherited;
use crate::refusal::{Refusal as LaunchError, refusal};
use gleaner_act::RUN_ID_VARIABLE;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How to start it.
pub struct Launch {
    command: Command,
    words: Vec<OsString>,
    /// Signals that we found ignored (nohup, a shell's background job) or blocked: the program must find them so too.
    inherited: Inherited,
    /// cgroup.procs files the child writes itself into before exec.
    join: Vec<File>,
}

impl Launch {
    pub fn new(command: &[OsString], inherited: Inherited) -> Self {
        let mut process = Command::new(command.first().cloned().unwrap_or_default());
        process.args(command.iter().skip(1));
        Self { command: process, words: command.to_vec(), inherited, join: Vec::new() }
    }

    /// Marks the program's environment, so that an undo finds processes that left its tree.
    pub fn mark(&mut self, run_id: &str) {
        self.command.env(RUN_ID_VARIABLE, run_id);
    }

    /// The program writes itself into this cgroup.procs file before exec.
    pub fn join(&mut self, path: &PathBuf) -> io::Result<()> {
        self.join.push(OpenOptions::new().write(true).open(path)?);
        Ok(())
    }

    /// Forks and executes. Says when it executed: on a busy machine the parent learns of it milliseconds later, and not equally
    /// late under each policy.
    pub fn spawn(mut self) -> Result<(Child, Instant), LaunchError> {
        let (inherited, join) = (self.inherited.clone(), std::mem::take(&mut self.join));
        let pipe = io::pipe().map_err(|error| refusal(&self.words, &error))?;
        let (mut told, tell) = pipe;
        let prepare = move || {
            inherited.restore();
            for file in &join {
                // SAFETY: the descriptor is open and the byte outlives the call. "0" means the writing process.
                if unsafe { libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // If it cannot be told, the parent takes its own time.
            let now = monotonic_ns().to_ne_bytes();
            // SAFETY: the descriptor is open and the bytes outlive the call.
            unsafe { libc::write(tell.as_raw_fd(), now.as_ptr().cast(), now.len()) };
            Ok(())
        };
        // SAFETY: `prepare` makes only async-signal-safe calls and allocates nothing.
        unsafe { self.command.pre_exec(prepare) };
        let child = self.command.spawn().map_err(|error| refusal(&self.words, &error))?;
        // The other end goes with the command, or reading would wait for ever where nothing was told.
        drop(self.command);
        let mut bytes = [0; 8];
        let late = match told.read_exact(&mut bytes) {
            Ok(()) => monotonic_ns().saturating_sub(u64::from_ne_bytes(bytes)),
            Err(_) => 0,
        };
        let now = Instant::now();
        Ok((child, now.checked_sub(Duration::from_nanos(late)).unwrap_or(now)))
    }
}

/// Nanoseconds of the clock that `Instant` uses. Async-signal-safe.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The status a shell would show: 128 + n for signal n.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(command: &[&str]) -> Result<Child, LaunchError> {
        Launch::new(&command.iter().map(OsString::from).collect::<Vec<_>>(), Inherited::now())
            .spawn()
            .map(|(child, _)| child)
    }

    #[test]
    fn a_missing_command_is_127_and_a_file_that_cannot_be_executed_126() {
        for (command, status) in [("no-such-command-anywhere", 127), ("/etc/passwd", 126), ("/tmp", 126)] {
            let error = started(&[command]).unwrap_err();
            assert_eq!(error.status, status, "{}", error.message);
            assert!(error.message.contains(command), "{}", error.message);
        }
    }

    #[test]
    fn the_start_is_when_it_executed() {
        let before = Instant::now();
        let launch = Launch::new(&[OsString::from("true")], Inherited::now());
        let (mut child, began) = launch.spawn().unwrap();
        assert!(before < began && began < Instant::now());
        child.wait().unwrap();
    }

    #[test]
    fn the_status_is_the_shells() {
        for (script, status) in [("exit 3", 3), ("kill -TERM $$", 143)] {
            let mut child = started(&["sh", "-c", script]).unwrap();
            assert_eq!(shell_status(child.wait().unwrap()), status);
        }
    }
}
