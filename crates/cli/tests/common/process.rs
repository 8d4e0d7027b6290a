//! Commands that a test runs: bounded waits, what they said, signals. The laboratory's tests have it too.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing a test waits for may take longer. Most of it takes milliseconds: this is for a machine that has other work.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// As a shell says it: 128+n after signal n.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Fails unless the status is this one.
    #[track_caller]
    pub fn with_status(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// Fails unless stderr names all of these.
    #[track_caller]
    pub fn naming(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "nothing about {word:?} in {self:#?}");
        }
        self
    }

    /// Fails unless stdout is this.
    #[track_caller]
    pub fn saying(self, stdout: &str) -> Self {
        assert_eq!(self.stdout, stdout, "{self:#?}");
        self
    }
}

/// Runs a command to its end. Whatever it says, it must not be that it panicked.
#[track_caller]
pub fn finish(command: &mut Command) -> Said {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    said(&child.and_then(std::process::Child::wait_with_output).expect("the command starts"))
}

/// The same with this on stdin.
#[track_caller]
pub fn finish_with_stdin(command: &mut Command, stdin: &[u8]) -> Output {
    use std::io::Write;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let bytes = stdin.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    // The program need not read it all.
    let _ = writer.join().unwrap();
    said(&output);
    output
}

#[track_caller]
fn said(output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = Some(shell_status(output.status));
    let said = Said { status, stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert!(!said.stderr.contains("panicked") && !said.stdout.contains("panicked"), "{said:#?}");
    said
}

/// The status as a shell says it.
pub fn shell_status(status: std::process::ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

/// Whether `met` becomes true before the longest wait is over.
pub fn comes_true(met: impl FnMut() -> bool) -> bool {
    comes_true_within(LONGEST_WAIT, met)
}

/// Whether `met` becomes true within `limit`.
pub fn comes_true_within(limit: Duration, mut met: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if met() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(Duration::from_millis(2));
    }
}

/// A pid as the system calls want it.
pub fn pid_of(child: &std::process::Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// Sends a signal to a process that this test started (a negative pid: to a group of such).
pub fn send(pid: i32, signal: i32) {
    assert!(pid.abs() > 1, "not a process of ours: {pid}");
    // SAFETY: kill takes no memory. Whoever has ended already needs no signal.
    unsafe { libc::kill(pid, signal) };
}

/// Kills a child and what it started (it leads its own group) when the test ends, however it ends.
pub struct Killed(pub std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The leader is not reaped before this, so its pid is nobody else's.
        if let Ok(None) = self.0.try_wait() {
            send(-pid_of(&self.0), libc::SIGKILL);
        }
        let _ = self.0.wait();
    }
}
