//! Gleaner as a user without any privilege.

use super::{GLEANER, Said, is_root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

/// Another user's view of this machine: no privilege, a state folder of its own, and a copy of the binary within reach
/// (a build folder below /root is not). When the tests themselves have no privilege, they are that user.
pub struct Unprivileged {
    pub folder: tempfile::TempDir,
}

impl Unprivileged {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("gleaner-test-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let this = Self { folder };
        fs::copy(GLEANER, this.binary()).unwrap();
        fs::set_permissions(this.binary(), fs::Permissions::from_mode(0o755)).unwrap();
        this.make_folder(&this.runtime());
        this
    }

    pub fn binary(&self) -> PathBuf {
        self.folder.path().join("gleaner")
    }

    /// XDG_RUNTIME_DIR.
    pub fn runtime(&self) -> PathBuf {
        self.folder.path().join("runtime")
    }

    /// Where its journals are.
    pub fn state(&self) -> PathBuf {
        self.runtime().join("gleaner")
    }

    pub fn make_folder(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        self.give(path);
    }

    /// Makes a file the user's own.
    #[expect(clippy::unused_self, reason = "it is this user's")]
    pub fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Writes a journal of a run that nobody knows.
    pub fn journal(&self, name: &str, text: &str) -> PathBuf {
        if !self.state().exists() {
            self.make_folder(&self.state());
        }
        let path = self.state().join(name);
        fs::write(&path, text).unwrap();
        self.give(&path);
        path
    }

    pub fn gleaner(&self, arguments: &[&str]) -> Command {
        self.behind(&[], arguments)
    }

    /// With a command before it that executes it.
    pub fn behind(&self, prefix: &[&str], arguments: &[&str]) -> Command {
        let mut words: Vec<String> = Vec::new();
        if is_root() {
            let user = format!("--reuid={NOBODY}");
            let group = format!("--regid={NOBODY}");
            words.extend(["setpriv", &user, &group, "--clear-groups", "--"].map(str::to_owned));
        }
        words.extend(prefix.iter().map(|word| (*word).to_owned()));
        words.push(self.binary().display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).current_dir("/").env("XDG_RUNTIME_DIR", self.runtime());
        command.env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID");
        command
    }
}

/// What it said on stdout.
pub fn json(said: &Said) -> serde_json::Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:#?}"))
}
