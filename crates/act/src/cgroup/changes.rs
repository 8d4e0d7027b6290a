//! What is changed in cgroups, and the way back.

use super::{read, write};
use crate::ActError;
use crate::journal::{Change, Journal, Run, When, never_written, path_bytes};
use rustix::fs::statfs;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// How long a cgroup may take to become empty after its last thread was killed.
const EMPTYING_TRIES: usize = 200;
/// Magic numbers of the cgroup file systems (linux/magic.h).
const CGROUPS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];

/// Remove a cgroup of this program's own threads, which end with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveCgroup {
    /// Its folder.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
}

/// Take a controller away from the children of a v2 cgroup again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisableController {
    /// The parent's folder.
    #[serde(with = "path_bytes")]
    pub parent: PathBuf,
    /// `cpu`.
    pub controller: String,
}

impl Change for RemoveCgroup {
    const NAME: &'static str = "remove-cgroup";

    fn check(&self) -> Result<(), ActError> {
        let path = &self.path;
        // What is not there needs no undo.
        if !path.exists() {
            return Ok(());
        }
        if !is_ours(path) {
            return never_written(path, "its name does not begin with gleaner-");
        }
        if is_cgroup(path) { Ok(()) } else { never_written(path, "it is no cgroup") }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        remove_cgroup(&self.path)
    }
}

impl Change for DisableController {
    const NAME: &'static str = "disable-controller";
    const WHEN: When = When::Last;

    fn check(&self) -> Result<(), ActError> {
        let known = self.controller == "cpu";
        let parent = &self.parent;
        if known && (!parent.exists() || is_cgroup(parent)) { Ok(()) } else { never_written(parent, "it is no cgroup") }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        disable_controller(&self.parent, &self.controller)
    }
}

/// Whether it is called as what Gleaner makes.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"gleaner-"))
}

fn is_cgroup(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| CGROUPS.contains(&found.f_type))
}

/// Makes a v2 controller available to the children of `parent`; undone only if Gleaner made it so: this run, or another
/// that still goes on and will leave it to us.
pub(crate) fn enable_controller(parent: &Path, controller: &str, journal: &mut Journal) -> Result<(), ActError> {
    let control = parent.join("cgroup.subtree_control");
    let undo = DisableController { parent: parent.to_owned(), controller: controller.to_owned() };
    let _lock = journal.lock_folder();
    if read(&control)?.split_whitespace().any(|name| name == controller) {
        return if journal.others_have(&undo) { journal.before(&undo) } else { Ok(()) };
    }
    journal.before(&undo)?;
    write(&control, &format!("+{controller}"))
}

fn disable_controller(parent: &Path, controller: &str) -> Result<(), ActError> {
    let control = parent.join("cgroup.subtree_control");
    // The change was never made: whoever was refused it (a user without privilege) would be refused its undo as well.
    if read(&control).is_ok_and(|now| !now.split_whitespace().any(|name| name == controller)) {
        return Ok(());
    }
    match write(&control, &format!("-{controller}")) {
        // The cgroup is gone, or another user of the machine has come to rely on the controller: not ours any more.
        Err(ActError::File { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn remove_cgroup(path: &Path) -> Result<(), ActError> {
    if !path.exists() {
        // Never made. A read-only file system would refuse even to remove what is not there.
        return Ok(());
    }
    hasten_the_end(path);
    for _ in 0..EMPTYING_TRIES {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // Not empty yet: a killed thread is still on its way out.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => sleep(Duration::from_millis(10)),
            Err(error) => return Err(ActError::file("remove", path)(error)),
        }
    }
    fs::remove_dir(path).map_err(ActError::file("remove", path))
}

/// Lifts the yielding threads' cgroup out of the idle class. A killed thread dies on a CPU: below everybody else, on a
/// machine whose CPUs are all taken, it would get none for seconds, and the cgroup would stay.
fn hasten_the_end(path: &Path) {
    // If it fails, the removal says so.
    let _ = write(&path.join("cpu.idle"), "0");
}

#[cfg(test)]
mod tests;
