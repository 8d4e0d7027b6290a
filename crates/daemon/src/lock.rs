//! One daemon a machine: a lock in the state folder, with the process that holds it.

use crate::control::give_back_folder;
use crate::protocol::socket_in;
use gleaner_act::{ActError, is_trusted_dir, list_journals};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Below the state folder.
const NAME: &str = "daemon.lock";
/// Somebody may remove the file between its opening and its locking, again and again.
const TRIES: usize = 10;

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// There is a daemon.
    #[error(
        "a daemon runs already: process {} holds {}",
        pid.map_or("?".to_owned(), |pid| pid.to_string()),
        path.display()
    )]
    Held {
        /// Its process, as far as the file tells.
        pid: Option<i32>,
        path: PathBuf,
    },
    /// The state folder is not to be had, or not ours.
    #[error(transparent)]
    Folder(ActError),
    /// The file cannot be made or locked.
    #[error("cannot lock {}: {source}", path.display())]
    File {
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The lock; given back when it is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes it in the state folder `folder`, which is made where it is missing.
    ///
    /// # Errors
    /// When somebody has it, or the folder is not to be trusted.
    pub(crate) fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(NAME);
        let failed = |source: io::Error| LockError::File { path: path.clone(), source };
        for _ in 0..TRIES {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            list_journals(folder).map_err(LockError::Folder)?;
            let mut create = OpenOptions::new();
            create.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = match open_trusted(create, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match lock_soon(&file) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(LockError::Held { pid: written(&path), path }),
                Err(errno) => return Err(failed(errno.into())),
            }
            // Whoever had it may have removed it before we locked.
            let same = |found: fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == found.ino());
            if !fs::metadata(&path).is_ok_and(same) {
                continue;
            }
            file.set_len(0).map_err(failed)?;
            writeln!(file, "{}", std::process::id()).map_err(failed)?;
            return Ok(Self { path, _file: file });
        }
        Err(failed(io::Error::other("it keeps vanishing")))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            // Fails while a journal is in it: that is the point.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Whoever asks who holds it ([`holder`]) has it for a moment.
fn lock_soon(file: &File) -> rustix::io::Result<()> {
    let lock = || flock(file, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..5 {
        match lock() {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(std::time::Duration::from_millis(2)),
            result => return result,
        }
    }
    lock()
}

/// Through no link, without waiting for a pipe's other end, and only what root or this user has made.
fn open_trusted(mut options: OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let trusted = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if found.is_file() && found.nlink() == 1 && trusted {
        return Ok(file);
    }
    // Removed by whoever had it.
    let kind = if found.nlink() == 0 { io::ErrorKind::NotFound } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, "somebody else has put it there; remove it"))
}

fn open_to_read(path: &Path) -> io::Result<File> {
    let mut read = OpenOptions::new();
    read.read(true);
    open_trusted(read, path)
}

fn written(path: &Path) -> Option<i32> {
    let mut text = String::new();
    open_to_read(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The process that holds the lock in `folder`; `None` where nobody does, or it is somebody else's folder.
pub fn holder(folder: &Path) -> Option<i32> {
    let path = folder.join(NAME);
    let file = is_trusted_dir(folder).then(|| open_to_read(&path).ok())??;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => written(&path).or(Some(0)),
        _ => None,
    }
}

/// Removes what a killed daemon left in `folder` to be found by, unless there is a daemon.
pub fn tidy(folder: &Path) {
    if folder.join(NAME).exists()
        && let Ok(lock) = Lock::take(folder)
    {
        let _ = fs::remove_file(socket_in(folder));
        give_back_folder(folder);
        drop(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_the_second_is_told_who() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("gleaner");
        assert_eq!(holder(&state), None);
        let own = i32::try_from(std::process::id()).unwrap();
        let first = Lock::take(&state).unwrap();
        assert_eq!(holder(&state), Some(own));
        let said = Lock::take(&state).unwrap_err().to_string();
        assert!(said.contains(&format!("process {own} holds")), "{said}");
        drop(first);
        assert!(!state.exists(), "nothing is left");
        drop(Lock::take(&state).unwrap());
    }

    #[test]
    fn nothing_of_a_killed_daemon_is_left_once_tidied() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("gleaner");
        tidy(&state);
        assert!(!state.exists());
        let running = Lock::take(&state).unwrap();
        fs::write(socket_in(&state), "").unwrap();
        tidy(&state);
        assert!(socket_in(&state).exists(), "somebody has it");
        // As a kill leaves it.
        let path = running.path.clone();
        drop(running);
        assert!(socket_in(&state).exists());
        fs::write(&path, "1\n").unwrap();
        tidy(&state);
        assert!(!state.exists());
    }

    #[test]
    fn what_a_killed_one_left_is_no_lock_and_a_folder_of_others_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("gleaner");
        DirBuilder::new().mode(0o700).create(&state).unwrap();
        fs::write(state.join(NAME), "1\n").unwrap();
        assert_eq!(holder(&state), None);
        drop(Lock::take(&state).unwrap());
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(Lock::take(&open), Err(LockError::Folder(_))));
        assert_eq!(holder(&open), None);
    }

    #[test]
    fn what_somebody_else_put_there_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("gleaner");
        DirBuilder::new().mode(0o700).create(&state).unwrap();
        let (lock, precious) = (state.join(NAME), folder.path().join("precious"));
        fs::write(&precious, "gold").unwrap();
        let pipe = || rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        let link = || std::os::unix::fs::symlink(&precious, &lock).unwrap();
        let hard_link = || fs::hard_link(&precious, &lock).unwrap();
        for put in [&pipe as &dyn Fn(), &link, &hard_link] {
            put();
            assert_eq!(holder(&state), None);
            assert!(matches!(Lock::take(&state), Err(LockError::File { .. })));
            tidy(&state);
            assert_eq!(fs::read_to_string(&precious).unwrap(), "gold");
            fs::remove_file(&lock).unwrap();
        }
    }
}
