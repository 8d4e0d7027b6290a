//! Asks a running daemon.

use crate::lock;
use crate::protocol::{ANSWER_BYTES_MAX, Answer, Request, socket_in};
use gleaner_act::default_state_dir;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where root's daemon has its socket.
pub const SYSTEM_DIR: &str = "/run/gleaner";

/// A daemon answers within a window.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Where so many wait already that there is no room to wait, it is tried again after this.
const PAUSE: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no daemon.
    #[error(
        "no daemon runs here ({} answers nobody); start one with `gleaner daemon`, or `systemctl start gleaner`",
        path.display()
    )]
    NoDaemon {
        /// Its socket would be here.
        path: PathBuf,
    },
    /// There is one, and it does not listen to this user.
    #[error(
        "the daemon does not listen to you ({}: {source}); ask as root, or see control.group in its configuration",
        path.display()
    )]
    Refused {
        /// Its socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Who answers is not to be told anything.
    #[error("{} belongs to user {uid}, who is neither root nor you: nothing was asked there", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        uid: u32,
    },
    /// It went away, or said what is no answer.
    #[error("no answer from the daemon: {0}")]
    NoAnswer(String),
    /// It would not.
    #[error("{0}")]
    Refusal(String),
}

/// The socket of the daemon that this user asks: of its own one, or of root's where it has none.
pub fn default_socket() -> PathBuf {
    first_that_listens([socket_in(&default_state_dir()), socket_in(Path::new(SYSTEM_DIR))])
}

fn first_that_listens([own, system]: [PathBuf; 2]) -> PathBuf {
    let is_systems = !own.exists() && (system.exists() || is_listened_at(&system));
    if is_systems { system } else { own }
}

/// Whether somebody listens at a socket, also one that this user may not see.
pub fn is_listened_at(socket: &Path) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets.lines().any(|line| line.split_whitespace().last().is_some_and(|path| Path::new(path) == socket))
}

/// Asks the daemon by its socket, which is in its state folder.
pub fn ask_at(socket: &Path, request: &Request) -> Result<Answer, ClientError> {
    ask_within(socket, request, LONGEST_WAIT)
}

/// The same for who waits no longer than this to be let in, and for each byte.
pub fn ask_within(socket: &Path, request: &Request, longest: Duration) -> Result<Answer, ClientError> {
    let (path, state_dir) = (socket.to_owned(), socket.parent().unwrap_or(Path::new(".")));
    let mut stream = match connect(&path, longest) {
        Ok(stream) => stream,
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Err(ClientError::Refused { path, source });
        }
        Err(_) if lock::holder(state_dir).is_none() => return Err(ClientError::NoDaemon { path }),
        Err(source) => return Err(ClientError::NoAnswer(source.to_string())),
    };
    let failed = |error: io::Error| ClientError::NoAnswer(error.to_string());
    let uid = socket_peercred(&stream).map_err(|errno| failed(errno.into()))?.uid.as_raw();
    if ![0, rustix::process::geteuid().as_raw()].contains(&uid) {
        return Err(ClientError::Stranger { path, uid });
    }
    stream.set_read_timeout(Some(longest)).map_err(failed)?;
    stream.set_write_timeout(Some(longest)).map_err(failed)?;
    let line = serde_json::to_string(request).map_err(|error| ClientError::NoAnswer(error.to_string()))?;
    writeln!(stream, "{line}").map_err(failed)?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(lock::holder(state_dir), longest),
        _ => failed(error),
    })?;
    match serde_json::from_str(&text) {
        Ok(Answer::Error(why)) => Err(ClientError::Refusal(why)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(ClientError::NoAnswer(error.to_string())),
    }
}

fn silent(daemon: Option<i32>, longest: Duration) -> ClientError {
    let who = daemon.map_or_else(|| "it".to_owned(), |pid| format!("process {pid}"));
    ClientError::NoAnswer(format!(
        "{who} said nothing for {} s; it may be stopped, or has no CPU time",
        longest.as_secs()
    ))
}

/// Connects without waiting for a daemon that accepts nobody: it may be stopped.
fn connect(path: &Path, longest: Duration) -> io::Result<UnixStream> {
    let (address, ends) = (SocketAddrUnix::new(path)?, Instant::now() + longest);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(rustix::io::Errno::AGAIN) if Instant::now() < ends => sleep(PAUSE),
            Err(errno) => return Err(errno.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_has_no_daemon_asks_roots() {
        let folder = tempfile::tempdir().unwrap();
        let [own, system] = ["own", "system"].map(|name| folder.path().join(name));
        let first = || first_that_listens([own.clone(), system.clone()]);
        assert_eq!(first(), own, "nobody listens");
        let _system = UnixListener::bind(&system).unwrap();
        assert_eq!(first(), system);
        let _own = UnixListener::bind(&own).unwrap();
        assert_eq!(first(), own);
    }

    #[test]
    fn nothing_is_said_to_another_users_socket() {
        if !rustix::process::geteuid().is_root() {
            gleaner_testing::skip!("needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // Whose it is, is who listens.
        let listening = std::thread::spawn(move || {
            // SAFETY: the call takes numbers, and changes this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 54_322, 54_322, 54_322) }, 0);
            rustix::net::listen(&socket, 1).unwrap();
            UnixListener::from(socket)
        });
        let listener = listening.join().unwrap();
        let said = ask_within(&path, &Request::Status, LONGEST_WAIT).unwrap_err();
        assert!(matches!(said, ClientError::Stranger { uid: 54_322, .. }), "{said}");
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "");
    }

    #[test]
    fn where_nobody_accepts_nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        let _listener = UnixListener::from(socket);
        let mut waiting = Vec::new();
        let refused = loop {
            match connect(&path, Duration::from_millis(20)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(
            connect(&folder.path().join("none"), Duration::ZERO).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        );
    }
}
