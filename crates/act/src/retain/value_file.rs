//! A file of the kernel's that holds one value: read, locked against another Gleaner, journalled, set, given back.

use crate::journal::{Change, Run, When, never_written, path_bytes};
use crate::{ActError, Journal};
use gleaner_sys::{ProcRoot, user_is_initial};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// How long, in steps of 10 ms, a run that has let go of a file may take to give its value back.
const TRIES: usize = 200;

/// One value, ours for as long as this lives. The lock is on the file itself, so nothing is left behind.
#[derive(Debug)]
pub(crate) struct ValueFile {
    path: PathBuf,
    _lock: File,
    had: String,
    /// What it is now, unless somebody else has set it.
    now: String,
    /// Whether it was ever set by us.
    touched: bool,
    /// What was journalled as set by us.
    journalled: Vec<String>,
}

impl ValueFile {
    /// Opens it for writing and takes its lock. Waits for a run that is about to give its value back.
    pub fn open(path: &Path, journal: &Journal) -> Result<Self, ActError> {
        Self::open_within(path, journal, TRIES)
    }

    /// The same without waiting.
    pub fn open_at_once(path: &Path, journal: &Journal) -> Result<Self, ActError> {
        Self::open_within(path, journal, 0)
    }

    fn open_within(path: &Path, journal: &Journal, tries: usize) -> Result<Self, ActError> {
        if !user_is_initial(&ProcRoot::default()) {
            let why = "this is a user namespace, and `gleaner restore` of the machine's root could not undo it";
            return Err(ActError::Unavailable { what: path.display().to_string(), why: why.into() });
        }
        let lock = OpenOptions::new().write(true).open(path).map_err(ActError::file("open", path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(ActError::Unavailable {
                    what: path.display().to_string(),
                    why: "another Gleaner has set it; its vCPUs are kept awake already".into(),
                });
            }
            Err(errno) => return Err(ActError::file("lock", path)(errno.into())),
        }
        given_back(path, journal, tries)?;
        let had = read(path)?;
        let (path, now) = (path.to_owned(), had.clone());
        Ok(Self { path, _lock: lock, now, had, touched: false, journalled: Vec::new() })
    }

    /// Writes what it holds, which changes nothing.
    ///
    /// # Errors
    /// As setting it would fail.
    pub fn try_out(&self) -> Result<(), ActError> {
        write(&self.path, &read(&self.path)?)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is now, unless somebody else has set it.
    pub fn now(&self) -> &str {
        &self.now
    }

    /// What it was before us.
    pub fn had(&self) -> &str {
        &self.had
    }

    /// It had this before us.
    pub fn had_been(&mut self, had: String) {
        if !self.touched {
            self.now.clone_from(&had);
            self.had = had;
        }
    }

    /// Fails with [`ActError::Theirs`] where somebody else has set it since we did.
    ///
    /// # Errors
    /// That, or it cannot be read.
    pub fn is_ours(&self) -> Result<(), ActError> {
        if !self.touched {
            return Ok(());
        }
        let value = read(&self.path)?;
        if value == self.now { Ok(()) } else { Err(ActError::Theirs { path: self.path.clone(), value }) }
    }

    /// Sets it, journalled first. Nothing is done where it is so already, or where it is somebody else's by now.
    pub fn set(&mut self, value: &str, journal: &mut Journal) -> Result<(), ActError> {
        if !self.touched {
            // What others set before the first time is what it had.
            self.had_been(read(&self.path)?);
        }
        self.is_ours()?;
        if self.now == value {
            return Ok(());
        }
        if value != self.had && !self.journalled.iter().any(|known| known == value) {
            journal.before(&FileValue { path: self.path.clone(), had: self.had.clone(), set: value.to_owned() })?;
            self.journalled.push(value.to_owned());
        }
        self.write(value)
    }

    /// Somebody gave its earlier value back.
    pub fn was_given_back(&mut self) {
        self.now.clone_from(&self.had);
    }

    /// Sets it to what it was.
    pub fn give_back(&mut self) -> Result<(), ActError> {
        let had = self.had.clone();
        self.write(&had)
    }

    /// Sets it to what it was, or to something set and journalled before, unless it is somebody else's by now.
    pub fn write(&mut self, value: &str) -> Result<(), ActError> {
        self.is_ours()?;
        if self.now == value {
            return Ok(());
        }
        write(&self.path, value)?;
        self.touched = true;
        value.clone_into(&mut self.now);
        Ok(())
    }
}

/// Waits until no other run has to give the file's value back: one that was killed, or is about to end, no longer has
/// the lock. What it had set would be taken for the machine's own.
fn given_back(path: &Path, journal: &Journal, tries: usize) -> Result<(), ActError> {
    for tried in 0..=tries {
        let claimed = journal.others_with(|claim: &FileValue| claim.path == path);
        if claimed.is_empty() {
            return Ok(());
        }
        for other in claimed {
            // One that lives undoes for itself.
            journal.undo_other(&other)?;
        }
        if tried < tries {
            sleep(Duration::from_millis(10));
        }
    }
    let why = "another run has not given its value back; run `gleaner restore`".into();
    Err(ActError::Unavailable { what: path.display().to_string(), why })
}

pub(super) fn read(path: &Path) -> Result<String, ActError> {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(ActError::file("read", path))
}

/// Through no link: a journal names the file, too.
pub(super) fn write(path: &Path, value: &str) -> Result<(), ActError> {
    let file = OpenOptions::new().write(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(path);
    file.and_then(|mut file| file.write_all(value.as_bytes())).map_err(ActError::file("write", path))
}

/// A file of the kernel's that held one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileValue {
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// What it held.
    pub had: String,
    /// What it was given: put back only where that is still there.
    pub set: String,
}

impl Change for FileValue {
    const NAME: &'static str = "file-value";
    const WHEN: When = When::WhileSilent;

    fn check(&self) -> Result<(), ActError> {
        if is_set(&self.path) { Ok(()) } else { never_written(&self.path, "it is no file that Gleaner sets") }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        restore_value(&self.path, &self.had, &self.set)
    }
}

/// Whether it is called as one of the files that Gleaner sets. Nothing else is called so, wherever it lies.
fn is_set(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().rev().take(4).map(|name| name.to_str().unwrap_or_default()).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match names[..] {
        [parameter, "parameters", "haltpoll", "module"] => {
            ["guest_halt_poll_ns", "guest_halt_poll_grow", "guest_halt_poll_grow_start"].contains(&parameter)
        }
        ["pm_qos_resume_latency_us", "power", cpu, "cpu"] => cpu.strip_prefix("cpu").is_some_and(is_number),
        ["smp_affinity_list", number, "irq", ..] => is_number(number),
        _ => false,
    }
}

/// Gives a file its earlier value back, but only where ours is still there.
fn restore_value(path: &Path, had: &str, set: &str) -> Result<(), ActError> {
    let now = match read(path) {
        Ok(now) => now,
        // Its vCPU or its module has gone, and the value with it.
        Err(ActError::File { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if now != set {
        return Ok(());
    }
    write(path, had)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::undo_own;

    fn journal(dir: &Path) -> Journal {
        Journal::create(&dir.join("state"), "run-1").unwrap()
    }

    #[test]
    fn a_value_is_given_back_only_where_ours_is_still_there() {
        for (meanwhile, after) in [(None, "0"), (Some("7"), "7")] {
            let dir = tempfile::tempdir().unwrap();
            let path = value_in(dir.path(), "0\n");
            let mut journal = journal(dir.path());
            let mut file = ValueFile::open(&path, &journal).unwrap();
            file.set("n/a", &mut journal).unwrap();
            fs::write(&path, meanwhile.unwrap_or("n/a")).unwrap();
            undo_own(&journal).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    /// Called as one that Gleaner sets.
    fn value_in(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("irq/1/smp_affinity_list");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A value, set by us.
    fn set_to(value: &str) -> (tempfile::TempDir, PathBuf, Journal, ValueFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = value_in(dir.path(), "0\n");
        let mut journal = journal(dir.path());
        let mut file = ValueFile::open(&path, &journal).unwrap();
        file.set(value, &mut journal).unwrap();
        (dir, path, journal, file)
    }

    #[test]
    fn what_somebody_else_has_set_since_stays_theirs() {
        // What it had is somebody's choice, too; and so it is after we gave it back.
        for (given_back, theirs) in [(false, "7"), (false, "0"), (true, "7"), (true, "5")] {
            let (_dir, path, mut journal, mut file) = set_to("5");
            if given_back {
                file.give_back().unwrap();
            }
            fs::write(&path, theirs).unwrap();
            for tried in [file.set("6", &mut journal), file.write("5"), file.give_back(), file.is_ours()] {
                let said = tried.unwrap_err();
                assert!(matches!(&said, ActError::Theirs { value, .. } if value == theirs), "{said}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
        }
    }

    #[test]
    fn what_was_set_before_the_first_time_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = value_in(dir.path(), "0");
        let mut journal = journal(dir.path());
        let mut file = ValueFile::open(&path, &journal).unwrap();
        fs::write(&path, "3").unwrap();
        file.set("5", &mut journal).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "5");
        undo_own(&journal).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3");
    }

    #[test]
    fn what_was_given_back_by_another_is_ours_again() {
        let (_dir, path, mut journal, mut file) = set_to("5");
        crate::take_values_back(journal.path(), None).unwrap();
        assert!(file.is_ours().is_err());
        file.was_given_back();
        file.set("5", &mut journal).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "5");
    }

    #[test]
    fn what_cannot_be_journalled_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = value_in(dir.path(), "0");
        let mut journal = journal(dir.path());
        journal.refuse_to_write();
        let mut file = ValueFile::open(&path, &journal).unwrap();
        assert!(file.set("n/a", &mut journal).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
    }

    #[test]
    fn two_do_not_set_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = value_in(dir.path(), "0");
        let journal = journal(dir.path());
        let first = ValueFile::open(&path, &journal).unwrap();
        let why = ValueFile::open(&path, &journal).unwrap_err().to_string();
        assert!(why.contains("another Gleaner"), "{why}");
        drop(first);
        assert!(ValueFile::open(&path, &journal).is_ok());
    }

    #[test]
    fn what_a_killed_run_had_set_is_not_taken_for_the_machines_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = value_in(dir.path(), "0");
        let killed = dir.path().join("state/run-0.journal");
        let mut first = journal(dir.path());
        ValueFile::open(&path, &first).unwrap().set("7", &mut first).unwrap();
        // The same journal, of a process that no longer is.
        let text = fs::read_to_string(first.path()).unwrap();
        let own = format!("\"main_pid\":{}", std::process::id());
        assert!(text.contains(&own), "{text}");
        fs::write(&killed, text.replace(&own, "\"main_pid\":999999999")).unwrap();
        fs::remove_file(first.path()).unwrap();

        let second = Journal::create(&dir.path().join("state"), "run-2").unwrap();
        assert_eq!(ValueFile::open(&path, &second).unwrap().had(), "0");
        assert!(!killed.exists());
    }

    #[test]
    fn a_file_that_is_gone_has_nothing_to_give_back() {
        assert!(restore_value(Path::new("/nonexistent/value"), "0", "1").is_ok());
    }

    #[test]
    fn only_files_that_gleaner_sets_are_set_back() {
        for (path, set) in [
            ("/sys/module/haltpoll/parameters/guest_halt_poll_ns", true),
            ("/sys/module/haltpoll/parameters/force", false),
            ("/sys/devices/system/cpu/cpu11/power/pm_qos_resume_latency_us", true),
            ("/sys/devices/system/cpu/cpu/power/pm_qos_resume_latency_us", false),
            ("/proc/irq/5/smp_affinity_list", true),
            ("/proc/irq/default_smp_affinity", false),
            ("/proc/irq/x/smp_affinity_list", false),
            ("/etc/passwd", false),
            ("", false),
        ] {
            let undo = FileValue { path: path.into(), had: "0".into(), set: "1".into() };
            assert_eq!(undo.check().is_ok(), set, "{path}");
        }
    }
}
