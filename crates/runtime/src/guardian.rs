//! The guardian: a process of its own that undoes a run's changes when the main process dies without doing so.
//!
//! It reads a socket whose other end only the main process holds. A byte means that main has cleaned up itself; the end
//! without one means that it was killed. With another byte comes the journal's open file, so that nothing is lost if
//! somebody removes its name. While main's heartbeat is silent, because it hangs or was stopped, the
//! guardian takes back what would go on keeping vCPUs awake. The guardian has a session of its own and ignores the
//! signals that a terminal or a supervisor sends to everybody, so that it outlives what it guards.

use crate::heartbeat::{Heartbeat, SILENT};
use gleaner_act::{ActError, UndoOutcome, take_values_back, undo_held};
use gleaner_model::Nanos;
use gleaner_sys::monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
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
/// Said when its heartbeat is to be watched from now on.
const WATCH: u8 = b'w';
/// Said when the journal's open file comes along.
const JOURNAL: u8 = b'j';
/// Said when something comes along that it is to close last.
const CLOSING: u8 = b'c';
/// How long main may take to be gone after its end of the pipe was closed.
const TRIES: usize = 200;

/// Main's side: the guardian's process and the socket to it.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
    socket: UnixStream,
    /// It closes what takes long, at its end.
    closes: bool,
}

impl Guardian {
    /// Starts one for the journal at `path`.
    pub fn start(path: &Path, heartbeat: Option<&Heartbeat>) -> io::Result<Self> {
        let mut command = Command::new(own_binary());
        let heartbeat = heartbeat.map_or_else(Stdio::null, Heartbeat::as_stdout);
        let (socket, its) = UnixStream::pair()?;
        command.arg("guardian").arg(path).stdin(OwnedFd::from(its)).stdout(heartbeat).stderr(Stdio::null());
        Ok(Self { child: command.spawn()?, socket, closes: false })
    }

    /// Has it watch the heartbeat: values that were set are taken back while that is silent.
    pub fn watch(&mut self) {
        // If it is gone, another one takes its place.
        let _ = self.socket.write_all(&[WATCH]);
    }

    /// Has it hold the journal's open file.
    pub fn hold(&self, journal: &File) {
        self.hand(JOURNAL, journal.as_fd());
    }

    /// Has it close these at its end, for which nobody waits then.
    pub fn is_to_close(&mut self, files: &[OwnedFd]) {
        for file in files {
            self.hand(CLOSING, file.as_fd());
        }
        self.closes |= !files.is_empty();
    }

    fn hand(&self, word: u8, file: BorrowedFd<'_>) {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        along.push(SendAncillaryMessage::ScmRights(&files));
        // If it is gone, another one takes its place.
        let _ = sendmsg(&self.socket, &[IoSlice::new(&[word])], &mut along, SendFlags::NOSIGNAL);
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Whether it has ended: killed, as nobody told it to.
    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it that there is nothing left to do, and waits for its end, unless that takes long and changes nothing.
    pub fn dismiss(mut self) {
        // If it is gone, there is nobody to tell.
        let _ = self.socket.write_all(&[ALL_CLEAR]);
        drop(self.socket);
        if !self.closes {
            let _ = self.child.wait();
        }
    }
}

/// Why a guardian could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Not everything could be undone.
    #[error(transparent)]
    Undo(#[from] ActError),
    /// There is nothing to undo as long as it acts.
    #[error("the main process closed its socket but lives on")]
    MainLives,
}

/// The guardian's own side: what a binary that begins a [`crate::Session`] does when it is started as `BINARY guardian
/// JOURNAL`.
pub fn guard(journal: &Path) -> Result<(), GuardError> {
    // Fails only if we lead a group already, which is as good.
    let _ = rustix::process::setsid();
    let sent_to_all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE];
    // Limits that were meant for the program.
    for signal in sent_to_all.into_iter().chain([libc::SIGXCPU, libc::SIGXFSZ]) {
        // SAFETY: SIG_IGN is no function of ours; ignoring a signal touches no memory.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut held = Held::default();
    if wait_for_the_end(journal, &mut held) {
        return Ok(());
    }
    for _ in 0..TRIES {
        match undo_held(journal, held.journal.as_ref()) {
            // The socket closes a moment before the process is gone.
            Ok(UndoOutcome::InUse { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(GuardError::MainLives)
}

/// What main has handed over.
#[derive(Default)]
struct Held {
    /// The journal's open file.
    journal: Option<File>,
    /// What is closed at the end, whenever that is.
    closing: Vec<OwnedFd>,
}

/// Waits for the end of main's side, and watches its heartbeat meanwhile, if that is wanted; whether main has cleaned
/// up itself.
fn wait_for_the_end(journal: &Path, held: &mut Held) -> bool {
    let heartbeat = Heartbeat::from_stdout().ok();
    // Whoever takes another guardian's place may not be told: main can be stopped before it gets to.
    let mut watched = heartbeat.as_ref().and_then(Heartbeat::last).is_some();
    loop {
        let last = heartbeat.as_ref().filter(|_| watched).and_then(Heartbeat::last);
        // Looked at again when it would have been silent for too long.
        let left = last.map(|last| (last + SILENT) - monotonic());
        // Again and again: main may be stopped once more in the middle of setting something, without a beat between.
        if let (Some(heartbeat), Some(Nanos::ZERO)) = (&heartbeat, left) {
            heartbeat.takes_back();
            let taken = take_values_back(journal, held.journal.as_ref());
            tracing::debug!(?taken, "the main process is silent");
            // Only now: what main sets once it knows must not be taken back.
            heartbeat.took_back();
        }
        let timeout = left.map(|left| Duration::from(if left == Nanos::ZERO { SILENT } else { left }));
        match next_word(timeout, held) {
            Word::Said(ALL_CLEAR) => return true,
            Word::Said(WATCH) => watched = true,
            Word::Said(_) | Word::Nothing => {}
            Word::Ended => return false,
        }
    }
}

enum Word {
    Said(u8),
    Nothing,
    Ended,
}

fn next_word(timeout: Option<Duration>, held: &mut Held) -> Word {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Word::Nothing,
        // Where it cannot be waited for, reading waits.
        _ => {}
    }
    let mut word = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut word)], &mut along, RecvFlags::CMSG_CLOEXEC);
    let length = match received {
        // Whoever starts a guardian by a pipe has no file to hand over.
        Err(Errno::NOTSOCK) => rustix::io::read(io::stdin(), &mut word),
        received => received.map(|received| received.bytes),
    };
    let files = along.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    for file in files.flatten() {
        match word {
            [CLOSING] => held.closing.push(file),
            _ => held.journal = Some(file.into()),
        }
    }
    match length {
        Ok(1) => Word::Said(word[0]),
        Err(Errno::INTR) => Word::Nothing,
        _ => Word::Ended,
    }
}
