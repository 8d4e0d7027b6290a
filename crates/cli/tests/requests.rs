//! Whoever asks the daemon, and however often: it goes on with its windows and looks, and hears no end of joins.

mod common;

use common::comes_true;
use common::daemon::Daemon;
use common::program::Program;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// Asks; empty where nobody answers any more.
fn asked(socket: &Path, request: &str) -> String {
    let mut answer = String::new();
    let ask = |stream: UnixStream, answer: &mut String| {
        (&stream).write_all(request.as_bytes()).and_then(|()| (&stream).read_to_string(answer))
    };
    let _ = UnixStream::connect(socket).and_then(|stream| ask(stream, &mut answer));
    answer
}

/// Asks for the same far more often than there are windows, until it is dropped.
struct Storm {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    answered: Arc<AtomicU32>,
}

impl Storm {
    fn of(daemon: &Daemon, request: &'static str) -> Self {
        let (socket, ends, answered) = (daemon.state().join("gleaner.sock"), Arc::default(), Arc::default());
        let (told, count): (Arc<AtomicBool>, Arc<AtomicU32>) = (Arc::clone(&ends), Arc::clone(&answered));
        let work = move || {
            while !told.load(Ordering::Relaxed) {
                count.fetch_add(u32::from(!asked(&socket, request).is_empty()), Ordering::Relaxed);
                sleep(Duration::from_millis(10));
            }
        };
        Self { ends, thread: Some(std::thread::spawn(work)), answered }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A program of this name, killed at the end.
struct Named(Child);

impl Named {
    fn start(folder: &Path, name: &str) -> Self {
        std::fs::copy("/bin/sleep", folder.join(name)).unwrap();
        Self(Command::new(folder.join(name)).arg("600").spawn().unwrap())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often the watchdog was told that the daemon is alive, since this was asked last.
fn words_to_the_watchdog(socket: &UnixDatagram) -> usize {
    let (mut bytes, mut words) = ([0; 4096], 0);
    while let Ok(length) = socket.recv(&mut bytes) {
        words += usize::from(bytes[..length].windows(10).any(|word| word == b"WATCHDOG=1"));
    }
    words
}

/// Refused or not: what is asked for puts off neither the look at what runs nor the watchdog. It has the machine to
/// itself: beside the tests of `run` the daemon got no time for its look within a minute.
#[test]
fn a_storm_of_requests_starves_nothing_machine() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let notify = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    notify.set_nonblocking(true).unwrap();
    let path = folder.path().join("notify");
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    for (request, name) in [
        ("{\"request\":\"leave\",\"group\":0}\n", "gl-leave"),
        ("{\"request\":\"hold\",\"group\":\"nobody\"}\n", "gl-hold"),
        ("{\"request\":\"hold\",\"group\":\"one\"}\n", "gl-held"),
        ("{\"request\":\"status\"}\n", "gl-status"),
    ] {
        let configuration = format!(
            "[group.one]\npid = {}\nprofile = \"observe-only\"\n[group.new]\nprogram = \"{name}\"\n\
             profile = \"observe-only\"\n",
            program.pid()
        );
        let mut daemon = Daemon::start_in(&environment, &configuration);
        let storm = Storm::of(&daemon, request);
        assert!(comes_true(|| storm.answered.load(Ordering::Relaxed) > 20), "{request}");
        words_to_the_watchdog(&notify);
        let _named = Named::start(folder.path(), name);
        daemon.says(&format!("new: program {name} is managed"));
        let mut heard = 0;
        assert!(
            comes_true(|| {
                heard += words_to_the_watchdog(&notify);
                heard > 5
            }),
            "{request}: {heard}"
        );
        drop(storm);
        assert_eq!(daemon.ends(), (Some(0), false));
    }
    program.ends_well();
}

/// Each costs everybody a window. What is refused is managed by who asked.
#[test]
fn joins_have_a_rate() {
    let program = Program::start();
    let daemon = Daemon::start("[group.nobody]\nprogram = \"no-such-program\"\n");
    let socket = daemon.state().join("gleaner.sock");
    let join = format!(
        "{{\"request\":\"join\",\"name\":\"x\",\"pid\":{},\"policy\":\"observe\",\"profile\":\"balanced\"}}\n",
        program.pid()
    );
    let mut refused = String::new();
    for _ in 0..100 {
        let answer = asked(&socket, &join);
        let Some(group) = answer.strip_prefix("{\"joined\":{\"group\":").and_then(|rest| rest.split(',').next()) else {
            refused = answer;
            break;
        };
        let left = asked(&socket, &format!("{{\"request\":\"leave\",\"group\":{group}}}\n"));
        assert!(left.starts_with("{\"left\""), "{left}");
    }
    assert!(refused.contains("joined within a few seconds"), "{refused}");
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}
