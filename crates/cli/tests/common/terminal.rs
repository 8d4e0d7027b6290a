//! A shell on a pseudo-terminal of its own, for what only a terminal does: job control.

use super::comes_true;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// An interactive bash whose controlling terminal is ours to type on.
pub struct Terminal {
    shell: Child,
    master: File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    pub fn open() -> Self {
        let (master, slave) = pair();
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]).env("PS1", "").env("TERM", "dumb");
        for (stream, set) in [Command::stdin, Command::stdout, Command::stderr].into_iter().zip(["in", "out", "err"]) {
            let copy = slave.try_clone().unwrap_or_else(|error| panic!("std{set}: {error}"));
            stream(&mut command, Stdio::from(copy));
        }
        let become_its_session = || {
            // SAFETY: both are async-signal-safe; descriptor 0 is the terminal by now.
            let done = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: as said there; nothing is allocated.
        unsafe { command.pre_exec(become_its_session) };
        let shell = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, seen) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Fails once the shell has gone.
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Self { shell, master, shown }
    }

    /// Types keys.
    pub fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Everything on the screen so far.
    pub fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits for `word` directly followed by a number (so not for the command line that asks for it), and says which.
    #[track_caller]
    pub fn number_after(&self, word: &str) -> i32 {
        let find = |text: &str| {
            text.match_indices(word).find_map(|(at, _)| {
                let rest = &text[at + word.len()..];
                let end = rest.find(|c: char| !c.is_ascii_digit())?;
                rest[..end].parse().ok()
            })
        };
        assert!(comes_true(|| find(&self.shown()).is_some()), "no {word} in {:?}", self.shown());
        find(&self.shown()).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Everything of the terminal's session is hung up on.
        super::send(super::pid_of(&self.shell), libc::SIGHUP);
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn pair() -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: both descriptors are ours to fill; name, settings and size may be null.
    let opened = unsafe {
        libc::openpty(&raw mut master, &raw mut slave, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty has just opened them, and nobody else knows them.
    let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    for fd in [master.as_raw_fd(), slave.as_raw_fd()] {
        // SAFETY: a flag on a descriptor of ours: children shall not hold it.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    (master, slave)
}
