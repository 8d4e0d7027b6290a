//! The folder of the journals: this user's own, under a name that nobody else can take.

use crate::ActError;
use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a user without a runtime folder has it.
const TMP: &str = "/tmp";
/// Names in it that are looked at: others may make as many as they like.
const NAMES_MAX: usize = 10_000;

/// `/run/gleaner` for root, else in the user's runtime folder, else a private folder in `/tmp`.
pub fn default_state_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/gleaner");
    }
    let uid = uid.as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime_dir([runtime, Some(format!("/run/user/{uid}").into())], uid).unwrap_or_else(|| {
        // Somebody's folder may come and go: one process keeps to one.
        static FOUND: OnceLock<PathBuf> = OnceLock::new();
        FOUND.get_or_init(|| private_dir(Path::new(TMP), uid)).clone()
    })
}

/// Other folders that may be this user's, from before the default was another.
pub(crate) fn other_state_dirs() -> Vec<PathBuf> {
    let (default, uid) = (default_state_dir(), rustix::process::geteuid());
    let dirs = if uid.is_root() { Vec::new() } else { own_dirs(Path::new(TMP), uid.as_raw()) };
    dirs.into_iter().filter(|dir| *dir != default).collect()
}

/// Under `su USER` the runtime folder may still be that of whoever called it: it has to be the user's own.
fn runtime_dir(folders: [Option<PathBuf>; 2], uid: u32) -> Option<PathBuf> {
    let own = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    folders.into_iter().flatten().find(own).map(|dir| dir.join("gleaner"))
}

/// `gleaner-UID`. Where somebody else has taken that name: one that nobody can guess, or that this user made before.
fn private_dir(tmp: &Path, uid: u32) -> PathBuf {
    let usual = tmp.join(format!("gleaner-{uid}"));
    match fs::symlink_metadata(&usual) {
        Ok(found) if !(found.is_dir() && found.uid() == uid) => {}
        _ => return usual,
    }
    own_dirs(tmp, uid).into_iter().next().unwrap_or_else(|| {
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let own = std::process::id().to_string();
        let unguessed = if random.is_empty() { &own } else { random.trim() };
        tmp.join(format!("gleaner-{uid}-{unguessed}"))
    })
}

/// The folders of this user, in order of name.
fn own_dirs(tmp: &Path, uid: u32) -> Vec<PathBuf> {
    let usual = format!("gleaner-{uid}");
    let is_one = |name: &str| name.strip_prefix(&usual).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let named = fs::read_dir(tmp).into_iter().flatten().flatten().take(NAMES_MAX);
    let named = named.filter(|entry| entry.file_name().to_str().is_some_and(is_one)).map(|entry| entry.path());
    let own = |dir: &PathBuf| fs::symlink_metadata(dir).is_ok_and(|found| found.uid() == uid && is_safe(&found));
    let mut found: Vec<PathBuf> = named.filter(own).collect();
    found.sort();
    found
}

fn is_safe(found: &Metadata) -> bool {
    found.is_dir() && found.mode() & 0o022 == 0
}

/// Whether a folder is root's or this user's, and nobody else writes to it. Its files may be opened then.
pub fn is_trusted_dir(dir: &Path) -> bool {
    let trusted = [0, rustix::process::geteuid().as_raw()];
    fs::symlink_metadata(dir).is_ok_and(|found| trusted.contains(&found.uid()) && is_safe(&found))
}

pub(crate) fn make_state_dir(dir: &Path) -> Result<(), ActError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(ActError::file("create", dir))?;
    is_ours(dir).map(|_| ())
}

/// Whether `dir` is there; an error when it is not a folder of this user's own. A journal is a list of things to do as
/// its reader, so one that somebody else could have written must not be read.
pub(crate) fn is_ours(dir: &Path) -> Result<bool, ActError> {
    let found = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found.map_err(ActError::file("look at", dir))?,
    };
    let why = if !found.is_dir() {
        "it is no folder; remove it".to_owned()
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {}; a journal there could be forged", found.uid())
    } else if !is_safe(&found) {
        format!(
            "others may write to it (mode {:03o}), so what is in it could be forged; remove it",
            found.mode() & 0o777
        )
    } else {
        return Ok(true);
    };
    Err(ActError::Unavailable { what: format!("the state folder {}", dir.display()), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_runtime_folder_of_another_user_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, uid) = (dir.path().to_owned(), fs::metadata(dir.path()).unwrap().uid());
        assert_eq!(runtime_dir([Some(runtime.clone()), None], uid), Some(runtime.join("gleaner")));
        assert_eq!(runtime_dir([None, Some(runtime.clone())], uid), Some(runtime.join("gleaner")));
        for runtime in [Some(runtime.clone()), Some(runtime.join("missing")), None] {
            assert_eq!(runtime_dir([runtime, None], uid + 1), None);
        }
    }

    #[test]
    fn a_name_in_tmp_that_somebody_has_taken_is_not_used() {
        let tmp = tempfile::tempdir().unwrap();
        let (tmp, uid) = (tmp.path(), fs::metadata(tmp.path()).unwrap().uid());
        let usual = tmp.join(format!("gleaner-{uid}"));
        assert_eq!(private_dir(tmp, uid), usual, "nobody has it");
        fs::create_dir(&usual).unwrap();
        assert_eq!(private_dir(tmp, uid), usual, "it is this user's");
        fs::remove_dir(&usual).unwrap();
        // What is no folder, or not ours (a link's target is).
        symlink(tmp, &usual).unwrap();
        let [one, two] = [(), ()].map(|()| private_dir(tmp, uid));
        let is_random = |path: &Path| path.to_str().unwrap().len() > usual.to_str().unwrap().len() + 20;
        assert!(one != two && is_random(&one) && is_random(&two), "{} {}", one.display(), two.display());
        // One that was made is found again; others' are passed over.
        DirBuilder::new().mode(0o700).create(&two).unwrap();
        let open = tmp.join(format!("gleaner-{uid}-0"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&two, tmp.join(format!("gleaner-{uid}-1"))).unwrap();
        assert_eq!((private_dir(tmp, uid), own_dirs(tmp, uid)), (two.clone(), vec![two]));
    }
}
