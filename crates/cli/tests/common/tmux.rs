//! A terminal that a test types into and whose screen it reads: tmux, with a server of its own.

use super::{LONGEST_WAIT, comes_true_within, text_of};
use std::path::Path;
use std::process::Command;

/// A shell in a terminal of 80 by 24.
pub struct Tmux {
    folder: tempfile::TempDir,
}

impl Tmux {
    /// `None` where there is no tmux.
    pub fn start(environment: &[(&str, &str)]) -> Option<Self> {
        let tmux = Self { folder: tempfile::tempdir().unwrap() };
        let mut command = tmux.command(&["new-session", "-d", "-x", "80", "-y", "24"]);
        command.args(environment.iter().flat_map(|(name, value)| ["-e".to_owned(), format!("{name}={value}")]));
        command
            .args(["bash", "--norc", "--noprofile"])
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .env_remove("NO_COLOR");
        let started = command.output().ok()?;
        assert!(started.status.success(), "{started:?}");
        Some(tmux)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("s")).args(["-f", "/dev/null"]).args(words);
        command
    }

    fn said(&self, words: &[&str]) -> String {
        let said = self.command(words).output().unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    }

    /// Types keys, by tmux's names.
    pub fn press(&self, keys: &[&str]) {
        self.said(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    pub fn enter(&self, line: &str) {
        self.said(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// What is on the screen; a line that was too long for it is one again.
    pub fn screen(&self) -> String {
        self.said(&["capture-pane", "-p", "-J"])
    }

    /// The same with what colours it.
    pub fn coloured(&self) -> String {
        self.said(&["capture-pane", "-p", "-e"])
    }

    /// Waits until these words are on the screen.
    #[track_caller]
    pub fn shows(&self, words: &str) {
        assert!(
            comes_true_within(LONGEST_WAIT, || self.screen().contains(words)),
            "no {words:?} on\n{}",
            self.screen()
        );
    }

    /// Waits until they no longer are.
    #[track_caller]
    pub fn shows_no(&self, words: &str) {
        assert!(comes_true_within(LONGEST_WAIT, || !self.screen().contains(words)), "{words:?} on\n{}", self.screen());
    }

    /// Whether a program has the terminal to itself, as full-screen ones do, or has hidden the cursor.
    pub fn is_taken(&self) -> bool {
        self.said(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim() != "0 1"
    }

    /// The process that the shell runs.
    pub fn child(&self) -> i32 {
        let shell = self.said(&["display-message", "-p", "#{pane_pid}"]);
        let file = format!("/proc/{0}/task/{0}/children", shell.trim());
        text_of(Path::new(&file)).split_whitespace().next().expect("the shell runs nothing").parse().unwrap()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
