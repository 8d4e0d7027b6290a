//! QEMU's monitor: which thread is which vCPU, by QEMU's own word.
//!
//! QMP is JSON over a socket: a greeting, `qmp_capabilities`, `query-cpus-fast` (before QEMU 2.12 `query-cpus`). The
//! crates `qapi` and `qapi-qmp` (0.15) would take 30 lines off: they read a line however long it is and takes, know no
//! object on many lines and no `query-cpus`, and bring QEMU's whole schema. A monitor serves one client at a time, so
//! one that is taken (libvirt's always is) accepts the connection and stays silent: hence the time-out.

use super::address::MonitorAddress;
use gleaner_model::printable;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest answer that is read: thousands of vCPUs.
const LONGEST_ANSWER: usize = 4 << 20;
/// Events may come between question and answer; not for ever.
const MOST_LINES: usize = 1000;

/// The longest wait before somebody looks whether it is to go on.
const NAP: Duration = Duration::from_millis(100);

/// How long a monitor is waited for.
#[derive(Clone, Copy)]
pub(super) struct Patience<'a> {
    /// As it is told.
    pub timeout: Duration,
    pub end: Instant,
    /// Ends it at once.
    pub interrupted: Option<&'a AtomicBool>,
}

impl<'a> Patience<'a> {
    pub fn new(timeout: Duration, interrupted: Option<&'a AtomicBool>) -> Self {
        Self { timeout, end: Instant::now() + timeout, interrupted }
    }

    /// A part for the first of `left` monitors of `all` that have this together.
    pub fn share(self, left: usize, all: usize) -> Self {
        let parts = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).max(1);
        Self {
            timeout: self.timeout / parts(all),
            end: Instant::now() + self.left().unwrap_or_default() / parts(left),
            ..self
        }
    }

    /// What is left of it, if anything.
    fn left(&self) -> Option<Duration> {
        Some(self.end.saturating_duration_since(Instant::now()))
            .filter(|left| !left.is_zero() && !self.is_interrupted())
    }

    /// Likewise, in parts short enough to hear of an interruption.
    fn nap(&self) -> Option<Duration> {
        self.left().map(|left| left.min(NAP))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted.load(Ordering::Relaxed))
    }

    /// Why there is no point in asking, where there is none.
    pub fn is_over(&self) -> Option<&'static str> {
        if self.is_interrupted() {
            return Some("a signal came");
        }
        // Whoever gets a moment only would be called silent.
        let moment = self.end.saturating_duration_since(Instant::now()) < self.timeout / 2;
        moment.then_some("others took all the time that there is for all of them")
    }
}

/// One vCPU as QEMU reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QmpCpu {
    /// `cpu-index`.
    pub index: u32,
    /// `thread-id`.
    pub thread_id: i32,
}

/// What a monitor said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorAnswer {
    /// The vCPUs. Threads have the numbers of the monitor's own PID namespace.
    pub cpus: Vec<QmpCpu>,
    /// Who listens, by the kernel's word; `None` for a port, and for a process that is not seen from here.
    pub peer: Option<i32>,
}

/// Why a monitor did not say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QmpError {
    /// The socket cannot be connected to.
    #[error("cannot connect to the QMP socket {}: {source}", socket)]
    Connect {
        /// The socket.
        socket: MonitorAddress,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// Nothing came back in time.
    #[error(
        "the QMP socket {} did not answer within {} ms: a monitor serves one client at a time; close the other one, or give \
         this VM a second monitor (-qmp unix:PATH,server=on,wait=off)",
        socket, timeout.as_millis()
    )]
    Silent {
        /// The socket.
        socket: MonitorAddress,
        /// How long was waited.
        timeout: Duration,
    },
    /// Nothing is known of it.
    #[error("the QMP socket {} was not asked: {why}", socket)]
    Unasked {
        /// The socket.
        socket: MonitorAddress,
        /// Why.
        why: &'static str,
    },
    /// Something answered that does not speak QMP, or not this command.
    #[error("the socket {} is no QMP monitor: {what}", socket)]
    Protocol {
        /// The socket.
        socket: MonitorAddress,
        /// What it said.
        what: String,
    },
    /// Its threads are not of this machine's processes.
    #[error(
        "the vCPU threads that the QMP socket {} names are in no process that this user sees here: is it in another PID namespace?",
        socket
    )]
    Elsewhere {
        /// The socket.
        socket: MonitorAddress,
    },
}

impl QmpError {
    /// The monitor's socket.
    pub fn socket(&self) -> &MonitorAddress {
        match self {
            Self::Connect { socket, .. }
            | Self::Silent { socket, .. }
            | Self::Unasked { socket, .. }
            | Self::Protocol { socket, .. }
            | Self::Elsewhere { socket } => socket,
        }
    }
}

/// Asks a monitor for its vCPUs' threads.
///
/// # Errors
/// When it cannot be connected to, does not answer within `timeout` altogether, or answers something else.
pub fn query_cpus(socket: &MonitorAddress, timeout: Duration) -> Result<MonitorAnswer, QmpError> {
    query_cpus_until(socket, Patience::new(timeout, None))
}

pub(super) fn query_cpus_until(socket: &MonitorAddress, patience: Patience<'_>) -> Result<MonitorAnswer, QmpError> {
    let stream = connected(socket, patience)?;
    let peer = if matches!(socket, MonitorAddress::Port(_)) { None } else { peer_of(&stream) };
    let mut monitor = Monitor { socket, patience, stream: BufReader::new(File::from(stream)) };
    let greeting = monitor.value()?;
    if greeting.get("QMP").is_none() {
        return Err(monitor.protocol(&format!("it greets with {}", start_of(&greeting))));
    }
    monitor.command("qmp_capabilities")?;
    let answer = match monitor.command("query-cpus-fast") {
        // QEMU before 2.12. What it says of that command too is no news where neither is known.
        Err(refused @ QmpError::Protocol { .. }) => monitor.command("query-cpus").map_err(|_| refused)?,
        answer => answer?,
    };
    let cpus = answer.as_array().and_then(|cpus| cpus.iter().map(cpu).collect::<Option<Vec<_>>>());
    let cpus =
        cpus.ok_or_else(|| monitor.protocol(&format!("asked for its vCPUs, it answers {}", start_of(&answer))))?;
    Ok(MonitorAnswer { cpus, peer })
}

/// Both commands' words for the same.
fn cpu(answer: &Value) -> Option<QmpCpu> {
    let number = |keys: [&str; 2]| keys.iter().find_map(|key| answer.get(key).and_then(Value::as_i64));
    Some(QmpCpu {
        index: u32::try_from(number(["cpu-index", "CPU"])?).ok()?,
        thread_id: i32::try_from(number(["thread-id", "thread_id"])?).ok()?,
    })
}

/// Connects, and lets nothing that is sent take longer either. Whoever listens and accepts nobody has a queue, and
/// once that is full a connection waits for ever unless it is told how long.
fn connected(socket: &MonitorAddress, patience: Patience<'_>) -> Result<OwnedFd, QmpError> {
    let failed = |errno: Errno| QmpError::Connect { socket: socket.clone(), source: Arc::new(errno.into()) };
    let family = match socket {
        MonitorAddress::Port(port) if port.is_ipv6() => AddressFamily::INET6,
        MonitorAddress::Port(_) => AddressFamily::INET,
        MonitorAddress::Path(_) | MonitorAddress::Abstract(_) => AddressFamily::UNIX,
    };
    let stream = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    loop {
        let Some(nap) = patience.nap() else { return Err(given_up(socket, patience)) };
        set_socket_timeout(&stream, Timeout::Send, Some(nap)).map_err(failed)?;
        let connected = match socket {
            MonitorAddress::Path(path) => connect_to_file(&stream, path),
            MonitorAddress::Abstract(name) => {
                SocketAddrUnix::new_abstract_name(name).and_then(|address| connect(&stream, &address))
            }
            MonitorAddress::Port(port) => connect(&stream, port),
        };
        match connected {
            Ok(()) => return Ok(stream),
            // The time is over, or a signal came.
            Err(Errno::AGAIN | Errno::INTR | Errno::INPROGRESS | Errno::ALREADY) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// A path may be longer than an address takes, 107 bytes: then it is named from its folder.
fn connect_to_file(stream: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let address = match (SocketAddrUnix::new(path), path.parent(), path.file_name()) {
        (Err(Errno::NAMETOOLONG), Some(parent), Some(name)) => {
            let folder = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
            return connect(stream, &SocketAddrUnix::new(short)?);
        }
        (address, ..) => address?,
    };
    connect(stream, &address)
}

/// The process that listens. (Not by rustix, whose process ids cannot be 0, and that is what the kernel says of one
/// unseen from here.)
fn peer_of(stream: &OwnedFd) -> Option<i32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: both pointers are to locals, of the type that this option has and of its length.
    let told = unsafe {
        let (value, length) = ((&raw mut peer).cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, length)
    };
    Some(peer.pid).filter(|pid| told == 0 && *pid > 0)
}

/// Nothing came back in time, or for as long as somebody waited.
fn given_up(socket: &MonitorAddress, patience: Patience<'_>) -> QmpError {
    if patience.is_interrupted() {
        return QmpError::Unasked { socket: socket.clone(), why: "a signal came" };
    }
    QmpError::Silent { socket: socket.clone(), timeout: patience.timeout }
}

struct Monitor<'a> {
    socket: &'a MonitorAddress,
    patience: Patience<'a>,
    stream: BufReader<File>,
}

impl Monitor<'_> {
    fn command(&mut self, name: &str) -> Result<Value, QmpError> {
        let question = format!("{}\n", json!({ "execute": name }));
        let left = self.patience.left().ok_or_else(|| self.silent())?;
        let sent = set_socket_timeout(self.stream.get_ref(), Timeout::Send, Some(left)).map_err(io::Error::from);
        let sent = sent.and_then(|()| self.stream.get_mut().write_all(question.as_bytes()));
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => self.silent(),
            _ => self.protocol(&format!("it hung up ({error})")),
        })?;
        for _ in 0..MOST_LINES {
            let mut answer = self.value()?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(self.protocol(&format!("{name} is refused: {}", start_of(error))));
            }
            // Anything else is an event.
        }
        Err(self.protocol(&format!("{MOST_LINES} events and no answer")))
    }

    /// The next JSON object, which may be on many lines (`-qmp-pretty`).
    fn value(&mut self) -> Result<Value, QmpError> {
        let (mut text, mut scanned) = (Vec::new(), Nesting::default());
        loop {
            let start = text.len();
            self.line(&mut text)?;
            text[start..].iter().for_each(|byte| scanned.add(*byte));
            if text.trim_ascii().is_empty() {
                text.clear();
            } else if scanned.depth == 0 || text.trim_ascii_start().first() != Some(&b'{') {
                let said = || self.protocol(&format!("it says '{}'", start_of_text(&text)));
                let text = std::str::from_utf8(&text).ok();
                return text.and_then(|text| serde_json::from_str(text).ok()).ok_or_else(said);
            }
        }
    }

    /// Appends a line, with its end.
    fn line(&mut self, text: &mut Vec<u8>) -> Result<(), QmpError> {
        loop {
            // A read may end with part of a line; what is left of the time bounds all of them together.
            let Some(nap) = self.patience.nap() else { return Err(self.silent()) };
            let set = set_socket_timeout(self.stream.get_ref(), Timeout::Recv, Some(nap));
            set.map_err(|error| self.protocol(&error.to_string()))?;
            // Not `read_until`: it reads again and again by itself, and each read has all the time that is left.
            let (length, ended) = match self.stream.fill_buf() {
                Ok([]) => return Err(self.protocol("it hung up")),
                Ok(bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let length = end.map_or(bytes.len(), |at| at + 1);
                    text.extend_from_slice(&bytes[..length]);
                    (length, end.is_some())
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => continue,
                    _ => return Err(self.protocol(&error.to_string())),
                },
            };
            self.stream.consume(length);
            if text.len() >= LONGEST_ANSWER {
                return Err(self.protocol("its answer has no end"));
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn silent(&self) -> QmpError {
        given_up(self.socket, self.patience)
    }

    fn protocol(&self, what: &str) -> QmpError {
        QmpError::Protocol { socket: self.socket.clone(), what: what.to_owned() }
    }
}

/// How deep in a JSON text a place is: an object is over where it is 0 again.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    fn add(&mut self, byte: u8) {
        match (self.in_string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

fn start_of(value: &Value) -> String {
    format!("'{}'", start_of_text(value.to_string().as_bytes()))
}

/// Whoever listens there may say anything.
fn start_of_text(text: &[u8]) -> String {
    printable(text.trim_ascii_end()).chars().take(80).collect()
}

#[cfg(test)]
mod tests;
