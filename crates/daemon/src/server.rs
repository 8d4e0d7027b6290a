//! Answers over a socket: one thread serves all clients, and nobody keeps another one waiting.
//!
//! Limits: so many clients at once, of which the oldest makes way for a new one; one request each; so long from the
//! beginning to the last byte of the answer. Who never writes or never reads is dropped by one of these.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS_MAX: usize = 32;
/// From the connection to the last byte of the answer.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Where nobody can be accepted (no descriptor left), it is tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// What is listened at.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Who asks, as the kernel says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its process as this one numbers them, and its user. Over a network nobody knows.
    pub process: Option<(i32, u32)>,
    /// Whether it is root or our own user.
    pub is_trusted: bool,
}

/// A thread that answers; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    quit: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// `answer`, given what was read so far and from whom, says what to answer; `None`: the request is not whole yet.
    /// It has to answer what gets too long.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(
        name: &str,
        listener: Listener,
        answer: impl FnMut(&[u8], Peer) -> Option<Vec<u8>> + Send + 'static,
    ) -> io::Result<Self> {
        match &listener {
            Listener::Unix(listener) => listener.set_nonblocking(true)?,
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
        }
        let (quit, told) = UnixStream::pair()?;
        let server = Server { listener, clients: Vec::new(), answer };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            crate::privileges::keep_none();
            server.serve(&told);
        })?;
        Ok(Self { quit: Some(quit), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.quit.take());
        self.thread.take().map(JoinHandle::join);
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn peer(&self) -> Peer {
        let Self::Unix(stream) = self else { return Peer::default() };
        let Ok(peer) = socket_peercred(stream) else { return Peer::default() };
        Peer {
            process: Some((peer.pid.as_raw_nonzero().get(), peer.uid.as_raw())),
            is_trusted: peer.uid.is_root() || peer.uid == rustix::process::geteuid(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

struct Server<A> {
    listener: Listener,
    clients: Vec<Client>,
    answer: A,
}

struct Client {
    stream: Stream,
    ends: Instant,
    peer: Peer,
    request: Vec<u8>,
    /// Empty until the request is whole.
    answer: Vec<u8>,
    sent: usize,
}

impl<A: FnMut(&[u8], Peer) -> Option<Vec<u8>>> Server<A> {
    /// Until the other end of `quit` is closed.
    fn serve(mut self, quit: &UnixStream) {
        let mut pause = false;
        loop {
            let Some(ready) = self.wait(quit, pause) else { return };
            let (now, answer) = (Instant::now(), &mut self.answer);
            let mut ready = ready.into_iter();
            self.clients.retain_mut(|client| {
                let goes_on = !ready.next().unwrap_or(false) || client.step(answer).is_some();
                goes_on && now < client.ends
            });
            pause = !self.accept();
        }
    }

    /// Which clients can go on; `None`: it is to end.
    fn wait(&self, quit: &UnixStream, pause: bool) -> Option<Vec<bool>> {
        let wants = |client: &Client| if client.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        let clients = self.clients.iter().map(|client| PollFd::new(&client.stream, wants(client)));
        let listens = if pause { PollFlags::empty() } else { PollFlags::IN };
        let ours = [PollFd::new(quit, PollFlags::IN), PollFd::new(&self.listener, listens)];
        let mut all: Vec<PollFd<'_>> = ours.into_iter().chain(clients).collect();
        let first = self.clients.iter().map(|client| client.ends).min();
        let limit = first.map(|ends| ends.saturating_duration_since(Instant::now()));
        let limit = if pause { Some(limit.map_or(PAUSE, |limit| limit.min(PAUSE))) } else { limit };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // The one failure there is, EINTR, is like the end of the time.
        let _ = poll(&mut all, limit.as_ref());
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        (!is_ready(&all[0])).then(|| all[2..].iter().map(is_ready).collect())
    }

    /// Takes who waits. False: somebody waits, and cannot be taken.
    fn accept(&mut self) -> bool {
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok(stream) => self.clients.extend(Client::new(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
            if self.clients.len() > CLIENTS_MAX {
                self.clients.remove(0);
            }
        }
        true
    }
}

impl Client {
    fn new(stream: Stream) -> Option<Self> {
        stream.set_nonblocking().ok()?;
        let (peer, ends) = (stream.peer(), Instant::now() + CLIENT_TIME);
        Some(Self { stream, ends, peer, request: Vec::new(), answer: Vec::new(), sent: 0 })
    }

    /// Reads or writes what can be; `None`: it is done with, one way or another.
    fn step(&mut self, answer: &mut impl FnMut(&[u8], Peer) -> Option<Vec<u8>>) -> Option<()> {
        if self.answer.is_empty() {
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(n) => self.request.extend(&bytes[..n]),
                Err(error) => return would_block(&error),
            }
            let Some(answer) = answer(&self.request, self.peer) else { return Some(()) };
            self.answer = answer;
        }
        match self.stream.write(&self.answer[self.sent..]) {
            Ok(n) => self.sent += n,
            Err(error) => return would_block(&error),
        }
        (self.sent < self.answer.len()).then_some(())
    }
}

fn would_block(error: &io::Error) -> Option<()> {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted).then_some(())
}
