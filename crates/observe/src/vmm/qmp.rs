//! QEMU's monitor: which thread is which vCPU, by QEMU's own word.
//!
//! QMP is lines of JSON over a socket: a greeting, `qmp_capabilities`, `query-cpus-fast`. Three lines of a protocol do not need
//! a library with QEMU's whole schema. A monitor serves one client at a time, so one that is taken (libvirt's always is) accepts
//! the connection and stays silent: hence the time-out.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest answer that is read: thousands of vCPUs.
const LONGEST_ANSWER: u64 = 4 << 20;
/// Events may come between question and answer; not for ever.
const MOST_LINES: usize = 1000;

/// One vCPU as QEMU reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QmpCpu {
    /// `cpu-index`.
    pub index: u32,
    /// `thread-id`.
    pub thread_id: i32,
}

/// Why a monitor did not say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QmpError {
    /// The socket cannot be connected to.
    #[error("cannot connect to the QMP socket {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// Nothing came back in time.
    #[error(
        "the QMP socket {} did not answer within {} ms: a monitor serves one client at a time; close the other one, or give \
         this VM a second monitor (-qmp unix:PATH,server=on,wait=off)",
        socket.display(), timeout.as_millis()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// How long was waited.
        timeout: Duration,
    },
    /// Something answered that does not speak QMP, or not this command.
    #[error("the socket {} is no QMP monitor: {what}", socket.display())]
    Protocol {
        /// The socket.
        socket: PathBuf,
        /// What it said.
        what: String,
    },
    /// Its threads are not of this machine's processes.
    #[error(
        "the vCPU threads that the QMP socket {} names are in no process that this user sees here: is it in another PID namespace?",
        socket.display()
    )]
    Elsewhere {
        /// The socket.
        socket: PathBuf,
    },
}

impl QmpError {
    /// The monitor's socket.
    pub fn socket(&self) -> &Path {
        match self {
            Self::Connect { socket, .. }
            | Self::Silent { socket, .. }
            | Self::Protocol { socket, .. }
            | Self::Elsewhere { socket } => socket,
        }
    }
}

/// Asks a monitor for its vCPUs' threads.
///
/// # Errors
/// When it cannot be connected to, does not answer within `timeout` altogether, or answers something else.
pub fn query_cpus(socket: &Path, timeout: Duration) -> Result<Vec<QmpCpu>, QmpError> {
    let end = Instant::now() + timeout;
    let stream = connected(socket, timeout, end)?;
    let mut monitor = Monitor { socket, timeout, end, stream: BufReader::new(stream) };
    let greeting = monitor.line()?;
    if greeting.get("QMP").is_none() {
        return Err(monitor.protocol(&format!("it greets with {}", start_of(&greeting.to_string()))));
    }
    monitor.command("qmp_capabilities")?;
    let answer = monitor.command("query-cpus-fast")?;
    let cpus = answer.as_array().and_then(|cpus| {
        let number = |cpu: &Value, key: &str| cpu.get(key).and_then(Value::as_i64);
        let parsed = cpus.iter().map(|cpu| {
            Some(QmpCpu {
                index: u32::try_from(number(cpu, "cpu-index")?).ok()?,
                thread_id: i32::try_from(number(cpu, "thread-id")?).ok()?,
            })
        });
        parsed.collect::<Option<Vec<_>>>()
    });
    cpus.ok_or_else(|| monitor.protocol(&format!("query-cpus-fast answers {}", start_of(&answer.to_string()))))
}

/// Connects, and lets nothing that is sent take longer than `timeout` either. Whoever listens and accepts nobody has a queue, and once
/// that is full a connection waits for ever unless it is told how long.
fn connected(socket: &Path, timeout: Duration, end: Instant) -> Result<UnixStream, QmpError> {
    let failed = |errno: Errno| QmpError::Connect { socket: socket.to_owned(), source: Arc::new(errno.into()) };
    let address = SocketAddrUnix::new(socket).map_err(failed)?;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(QmpError::Silent { socket: socket.to_owned(), timeout });
        }
        set_socket_timeout(&stream, Timeout::Send, Some(left)).map_err(failed)?;
        match connect(&stream, &address) {
            Ok(()) => return Ok(stream.into()),
            // The time is over, or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

struct Monitor<'a> {
    socket: &'a Path,
    timeout: Duration,
    end: Instant,
    stream: BufReader<UnixStream>,
}

impl Monitor<'_> {
    fn command(&mut self, name: &str) -> Result<Value, QmpError> {
        let question = format!("{}\n", json!({ "execute": name }));
        let sent = self.stream.get_mut().write_all(question.as_bytes());
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => self.silent(),
            _ => self.protocol(&format!("it hung up ({error})")),
        })?;
        for _ in 0..MOST_LINES {
            let mut answer = self.line()?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(self.protocol(&format!("{name} is refused: {}", start_of(&error.to_string()))));
            }
            // Anything else is an event.
        }
        Err(self.protocol(&format!("{MOST_LINES} events and no answer")))
    }

    fn line(&mut self) -> Result<Value, QmpError> {
        let mut line = Vec::new();
        // A read may end with part of a line; what is left of the time bounds all of them together.
        while line.last() != Some(&b'\n') {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silent());
            }
            let set = self.stream.get_ref().set_read_timeout(Some(left));
            set.map_err(|error| self.protocol(&error.to_string()))?;
            match self.stream.by_ref().take(LONGEST_ANSWER).read_until(b'\n', &mut line) {
                Ok(0) => return Err(self.protocol("it hung up")),
                Ok(_) if line.len() as u64 >= LONGEST_ANSWER => return Err(self.protocol("its answer has no end")),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(self.silent());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.protocol(&error.to_string())),
            }
        }
        serde_json::from_slice(&line)
            .map_err(|_| self.protocol(&format!("it says {}", start_of(&String::from_utf8_lossy(&line)))))
    }

    fn silent(&self) -> QmpError {
        QmpError::Silent { socket: self.socket.to_owned(), timeout: self.timeout }
    }

    fn protocol(&self, what: &str) -> QmpError {
        QmpError::Protocol { socket: self.socket.to_owned(), what: what.to_owned() }
    }
}

fn start_of(text: &str) -> String {
    format!("'{}'", text.trim_end().chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// A monitor that says `greeting`, and then `answers` to one line each; keeps the connection until it is dropped.
    fn monitor(greeting: &'static str, answers: &'static [&'static str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.write_all(greeting.as_bytes());
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                let _ = lines.next();
                let _ = stream.write_all(answer.as_bytes());
            }
            let _ = lines.next();
        });
        (folder, socket)
    }

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n";

    #[test]
    fn threads_by_index_with_events_between() {
        let answers = &[
            "{\"return\": {}}\n",
            "{\"event\": \"RESUME\"}\n{\"return\": [{\"cpu-index\": 0, \"thread-id\": 71, \"target\": \"x86_64\"},\
             {\"cpu-index\": 1, \"thread-id\": 72}]}\n",
        ];
        let (_folder, socket) = monitor(GREETING, answers);
        let cpus = query_cpus(&socket, Duration::from_secs(5)).unwrap();
        assert_eq!(cpus, [QmpCpu { index: 0, thread_id: 71 }, QmpCpu { index: 1, thread_id: 72 }]);
    }

    #[test]
    fn a_monitor_that_accepts_nobody_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        // SAFETY: no memory is passed; the descriptor is the listener's.
        unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
        // A queue for none holds one.
        let _queued = UnixStream::connect(&socket).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(query_cpus(&socket, Duration::from_millis(50))));
        let said = told.recv_timeout(Duration::from_secs(20)).expect("it hangs");
        assert!(matches!(said, Err(QmpError::Silent { .. })), "{said:?}");
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let short = Duration::from_millis(50);
        let (_a, silent) = monitor("", &[]);
        assert!(matches!(query_cpus(&silent, short), Err(QmpError::Silent { .. })));
        let (_b, half) = monitor("{\"QMP\": ", &[]);
        assert!(matches!(query_cpus(&half, short), Err(QmpError::Silent { .. })));
        let (_c, other) = monitor("220 mail ready\n", &[]);
        let said = query_cpus(&other, Duration::from_secs(5)).unwrap_err();
        assert!(said.to_string().contains("220 mail ready"), "{said}");
        let (_d, old) = monitor(GREETING, &["{\"return\": {}}\n", "{\"error\": {\"class\": \"CommandNotFound\"}}\n"]);
        let said = query_cpus(&old, Duration::from_secs(5)).unwrap_err();
        assert!(said.to_string().contains("CommandNotFound"), "{said}");
        let missing = query_cpus(Path::new("/no/such/socket"), short);
        assert!(matches!(missing, Err(QmpError::Connect { .. })));
    }
}
