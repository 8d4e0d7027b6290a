//! Answers over a socket: one thread serves all clients, and nobody keeps another one waiting.
//!
//! Limits: so many clients at once, of which the oldest, of whoever has most, makes way for a new one; one request
//! each; so long from the beginning to the last byte of the answer. Who never writes or never reads is dropped by one
//! of these. After each step the thread rests for a multiple of the time that the step took, so clients that ask
//! without end get a tenth of the time at most.

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
/// After a step the thread rests so many times as long as the step took, and no longer than [`PAUSE`].
const RESTS: u32 = 9;

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
        while let Some(ready) = self.wait(quit, pause) {
            let began = Instant::now();
            self.step(&ready);
            pause = !self.accept();
            if is_closed_within(quit, (began.elapsed() * RESTS).min(PAUSE)) {
                return;
            }
        }
    }

    /// Goes on with those who are ready.
    fn step(&mut self, ready: &[PollFlags]) {
        let (now, answer) = (Instant::now(), &mut self.answer);
        let mut ready = ready.iter();
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().is_some_and(|ready| !ready.is_empty());
            now < client.ends && (!is_ready || client.step(answer).is_some())
        });
    }

    /// Which clients can go on; `None`: it is to end.
    fn wait(&self, quit: &UnixStream, pause: bool) -> Option<Vec<PollFlags>> {
        let event = |client: &Client| if client.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        let clients = self.clients.iter().map(|client| PollFd::new(&client.stream, event(client)));
        let listens = if pause { PollFlags::empty() } else { PollFlags::IN };
        let ours = [PollFd::new(quit, PollFlags::IN), PollFd::new(&self.listener, listens)];
        let mut all: Vec<PollFd<'_>> = ours.into_iter().chain(clients).collect();
        let ends = self.clients.iter().map(|client| client.ends.saturating_duration_since(Instant::now()));
        let limit = ends.chain(pause.then_some(PAUSE)).min();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // The one failure there is, EINTR, is like the end of the time.
        let _ = poll(&mut all, limit.as_ref());
        all[0].revents().is_empty().then(|| all[2..].iter().map(PollFd::revents).collect())
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
                let users: Vec<Option<u32>> = self.clients.iter().map(Client::user).collect();
                self.clients.remove(makes_way(&users));
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

    fn user(&self) -> Option<u32> {
        self.peer.process.map(|(_, user)| user)
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

/// Which of the clients with these users: the oldest of whoever has most.
fn makes_way(users: &[Option<u32>]) -> usize {
    let count = |user: &Option<u32>| users.iter().filter(|other| *other == user).count();
    let most = users.iter().map(count).max();
    users.iter().position(|user| Some(count(user)) == most).unwrap_or(0)
}

/// Sleeps, unless it is to end.
fn is_closed_within(quit: &UnixStream, time: Duration) -> bool {
    let limit = Timespec::try_from(time).ok();
    poll(&mut [PollFd::new(quit, PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0)
}

fn would_block(error: &io::Error) -> Option<()> {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn who_has_most_makes_way() {
        for (users, which) in
            [(&[Some(0), Some(7), Some(7)][..], 1), (&[Some(7), Some(0), Some(0), Some(7), Some(7)], 0), (&[None], 0)]
        {
            assert_eq!(makes_way(users), which, "{users:?}");
        }
    }

    #[test]
    fn who_asks_without_end_gets_a_part_of_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (cost, asked) = (Duration::from_millis(50), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&asked);
        let answer = move |_: &[u8], _| {
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(cost);
            Some(vec![b'x'])
        };
        let _serving = Serving::start("test", Listener::Tcp(listener), answer).unwrap();
        let began = Instant::now();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"?").unwrap();
            assert_eq!(std::io::read_to_string(stream).unwrap(), "x");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        let least = cost * 4 + PAUSE * 3;
        assert!(began.elapsed() >= least, "{:?} instead of {least:?}", began.elapsed());
    }
}
