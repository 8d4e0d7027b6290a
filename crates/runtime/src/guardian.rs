//! The guardian: a process of its own that undoes a run's changes when the main process dies without doing so.
//!
//! It reads a pipe whose other end only the main process holds. A byte means that main has cleaned up itself; the end of the pipe
//! without one means that it was killed. The guardian has a session of its own and ignores the signals that a terminal or a
//! supervisor sends to everybody, so that it outlives what it guards.

use gleaner_act::{ActError, UndoOutcome, undo_journal};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// This program's own file, by the name it was started with where /proc does not tell.
pub fn own_binary() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    // `metadata` follows the link, also to a file that was removed.
    if std::fs::metadata(&own).is_ok() {
        return own;
    }
    PathBuf::from(OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()))
}

/// Said when main has cleaned up.
const ALL_CLEAR: u8 = b'.';
/// How long main may take to be gone after its end of the pipe was closed.
const TRIES: usize = 200;

/// Main's side: the guardian's process and the pipe to it.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts one for the journal at `path`.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new(own_binary());
        command.arg("guardian").arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: command.spawn()? })
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Whether it has ended: killed, as nobody told it to.
    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it that there is nothing left to do, and waits for its end.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // If it is gone, there is nobody to tell.
            let _ = pipe.write_all(&[ALL_CLEAR]);
        }
        let _ = self.child.wait();
    }
}

/// Why a guardian could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Not everything could be undone.
    #[error(transparent)]
    Undo(#[from] ActError),
    /// There is nothing to undo as long as it acts.
    #[error("the main process closed its pipe but lives on")]
    MainLives,
}

/// The guardian's own side: what a binary that begins a [`crate::Session`] does when it is started as `BINARY guardian JOURNAL`.
///
/// # Errors
/// When not everything could be undone.
pub fn guard(journal: &Path) -> Result<(), GuardError> {
    // Fails only if we lead a group already, which is as good.
    let _ = rustix::process::setsid();
    let sent_to_all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE];
    // Limits that were meant for the program.
    for signal in sent_to_all.into_iter().chain([libc::SIGXCPU, libc::SIGXFSZ]) {
        // SAFETY: SIG_IGN is no function of ours; ignoring a signal touches no memory.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut word = [0; 1];
    match io::stdin().read(&mut word) {
        Ok(1) if word[0] == ALL_CLEAR => return Ok(()),
        _ => {}
    }
    for _ in 0..TRIES {
        match undo_journal(journal, false) {
            // The pipe closes a moment before the process is gone.
            Ok(UndoOutcome::InUse { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(GuardError::MainLives)
}
