//! The managed program: started so that it sees what it would see without Gleaner.

use super::signals::Inherited;
use gleaner_act::RUN_ID_VARIABLE;
use gleaner_command::refusal::{Refusal, refusal};
use gleaner_model::Nanos;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

/// How to start it.
pub struct Launch {
    command: Command,
    words: Vec<OsString>,
    /// Signals that we found ignored (nohup, a shell's background job) or blocked: the program must find them so too.
    inherited: Inherited,
    /// A cgroup.procs file that the child writes itself into before exec.
    join: Option<File>,
}

/// Why it did not start.
#[derive(Debug)]
pub struct LaunchError {
    /// 127 when there is no such command, 126 when it cannot be executed, 125 otherwise; as env(1) and nohup(1) do.
    pub status: u8,
    pub message: String,
    /// The command itself could not be executed. If not, another way to start it may do.
    pub of_command: bool,
}

impl Launch {
    pub fn new(command: &[OsString], inherited: Inherited) -> Self {
        let mut process = Command::new(command.first().cloned().unwrap_or_default());
        process.args(command.iter().skip(1));
        Self { command: process, words: command.to_vec(), inherited, join: None }
    }

    /// Marks the program's environment, so that an undo finds processes that left its tree.
    pub fn mark(&mut self, run_id: &str) {
        self.command.env(RUN_ID_VARIABLE, run_id);
    }

    /// The program writes itself into this cgroup.procs file before exec.
    pub fn join(&mut self, path: &Path) -> io::Result<()> {
        self.join = Some(OpenOptions::new().write(true).open(path)?);
        Ok(())
    }

    /// Forks and executes. Says when it executed: on a busy machine the parent learns of it milliseconds later, and not
    /// equally late under each policy.
    pub fn spawn(mut self) -> Result<(Child, Instant), LaunchError> {
        let (inherited, join) = (self.inherited.clone(), self.join.take());
        let pipe = io::pipe().map_err(|error| cannot_start(&self.words, &error))?;
        let (mut told, tell) = pipe;
        let forked = gleaner_sys::monotonic();
        let prepare = move || {
            inherited.restore();
            if let Some(file) = &join {
                // SAFETY: the descriptor is open and the byte outlives the call. "0" means the writing process.
                if unsafe { libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // If it cannot be told, the parent takes its own time.
            let now = gleaner_sys::monotonic().0.to_ne_bytes();
            // SAFETY: the descriptor is open and the bytes outlive the call.
            unsafe { libc::write(tell.as_raw_fd(), now.as_ptr().cast(), now.len()) };
            Ok(())
        };
        // SAFETY: `prepare` makes only async-signal-safe calls and allocates nothing.
        unsafe { self.command.pre_exec(prepare) };
        let spawned = self.command.spawn();
        // The other end goes with the command, or reading would wait for ever where nothing was told.
        drop(self.command);
        let mut bytes = [0; 8];
        let executed = told.read_exact(&mut bytes).ok().map(|()| Nanos(u64::from_ne_bytes(bytes)));
        let child = spawned.map_err(|error| match executed {
            Some(_) => explain(&self.words, &error),
            None => cannot_start(&self.words, &error),
        })?;
        let now = gleaner_sys::monotonic();
        // A program may begin in another time namespace: a moment outside of these two is one of another clock.
        let late = executed.filter(|at| (forked..=now).contains(at)).map_or(Nanos::ZERO, |at| now - at);
        let now = Instant::now();
        Ok((child, now.checked_sub(late.into()).unwrap_or(now)))
    }

    /// Executes it in this process's place. Returns only where that fails.
    pub fn become_it(mut self) -> LaunchError {
        let inherited = self.inherited.clone();
        let prepare = move || {
            inherited.restore();
            Ok(())
        };
        // SAFETY: `prepare` makes only async-signal-safe calls and allocates nothing.
        unsafe { self.command.pre_exec(prepare) };
        explain(&self.words, &self.command.exec())
    }
}

/// Before the command was tried: a process or a descriptor was refused, or a cgroup.
fn cannot_start(words: &[OsString], error: &io::Error) -> LaunchError {
    let name = words.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let message = format!("cannot start '{name}': {}", gleaner_sys::why_refused(error));
    LaunchError { status: 125, message, of_command: false }
}

/// The command itself could not be executed.
fn explain(words: &[OsString], error: &io::Error) -> LaunchError {
    let Refusal { status, message } = refusal(words, error);
    LaunchError { status, message, of_command: true }
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
