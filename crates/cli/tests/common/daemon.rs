//! A daemon of a test's own: its configuration, its state folder, what it says.

use super::program::Program;
use super::{LONGEST_WAIT, Said, finish, gleaner, pid_of, send};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// `[group.NAME]` of this program, with these keys.
pub fn group(name: &str, program: &Program, more: &str) -> String {
    format!("[group.{name}]\npid = {}\n{more}\n", program.pid())
}

pub const WATCHED: &str = "profile = \"observe-only\"";
/// Whatever others of this host take meanwhile.
pub const RETAINED: &str = "profile = \"latency\"\ntrial = false\nparams = { steal_share_stop = 1.0 }";

/// Killed when the test ends, however it ends.
pub struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Daemon {
    /// With this configuration, once it has begun.
    pub fn start(configuration: &str) -> Self {
        Self::start_in(&[], configuration)
    }

    /// The same with this in its environment.
    pub fn start_in(environment: &[(&str, &str)], configuration: &str) -> Self {
        Self::start_as(configuration, |mut command| {
            command.envs(environment.iter().copied());
            command
        })
    }

    /// The same by a command of one's own, made of the usual one.
    pub fn start_as(configuration: &str, adapt: impl FnOnce(Command) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gleaner.toml"), configuration).unwrap();
        let file = folder.path().join("gleaner.toml");
        let mut command = gleaner(["daemon", "--config", file.to_str().unwrap()]);
        command.arg("--state-dir").arg(folder.path().join("state"));
        let mut child =
            adapt(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut daemon = Self { child, folder, lines, heard: Vec::new() };
        daemon.says("managing ");
        daemon
    }

    pub fn pid(&self) -> i32 {
        pid_of(&self.child)
    }

    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("gleaner.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A command that asks it.
    pub fn asked(&self, words: &[&str]) -> Said {
        finish(gleaner(words).arg("--state-dir").arg(self.state()))
    }

    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Waits until it says a line with these words; what it said before that counts no more.
    #[track_caller]
    pub fn says(&mut self, words: &str) -> String {
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) else {
                panic!("nothing about {words:?} in {:#?}", self.heard);
            };
            self.heard.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Tells it to end, and waits for that: its status, and whether anything is left in its state folder.
    pub fn ends(mut self) -> (Option<i32>, bool) {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().unwrap().code();
        let left = Path::new(&self.state()).exists();
        (status, left)
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            send(pid_of(&self.child), libc::SIGCONT);
            send(pid_of(&self.child), libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}
