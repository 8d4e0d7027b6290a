//! Who may do what to a journal: its file, its locks, and its folder's.

use crate::ActError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Permissions of a journal that is undone, before its name is removed.
pub(super) const UNDONE: u32 = 0o400;
/// How long another may hold the folder's lock: two seconds, which undoing a few journals takes at most.
const FOLDER_TRIES: u32 = 1000;
const FOLDER_PAUSE: Duration = Duration::from_millis(2);

/// Marks a journal as that of a living process, in a way that means the same in every namespace: the kernel takes the
/// lock back when the last descriptor of this opening goes. Where it cannot be had, process ids alone tell.
pub(crate) fn hold(file: &File) {
    // SAFETY: flock is plain data, and outlives the call.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock);
    }
}

/// Whether somebody [holds](hold) the journal at `path`.
pub(super) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // SAFETY: flock is plain data, which the kernel reads and fills.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) == 0
            && lock.l_type != i16::try_from(libc::F_UNLCK).unwrap_or_default()
    }
}

/// Opens what is called a journal, if nobody but this user could have written it. A pipe of that name would keep us
/// waiting for ever.
pub(super) fn open_file(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(libc::ELOOP);
        if is_link { std::io::Error::other("it is a link, so it is no journal; remove it") } else { error }
    })?;
    let found = file.metadata()?;
    let why = if !found.is_file() {
        "it is no regular file, so it is no journal; remove it".to_owned()
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {}, so it could be forged; remove it", found.uid())
    } else if found.mode() & 0o022 != 0 || found.nlink() > 1 {
        "others may write to it, or it has another name, so it could be forged; remove it".to_owned()
    } else {
        return Ok(file);
    };
    Err(std::io::Error::other(why))
}

/// The lock on a journal; held while undoing.
pub(crate) struct Lock(#[allow(dead_code, reason = "the lock goes with the file")] pub(super) File);

/// Locks the journal at `path`, waiting for whoever holds it. `None` when it is gone: somebody has undone it.
pub(crate) fn lock(path: &Path) -> Result<Option<Lock>, ActError> {
    loop {
        let file = match open_file(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                remove_folder_of(path);
                return Ok(None);
            }
            Err(error) => return Err(ActError::file("open", path)(error)),
        };
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| ActError::file("lock", path)(errno.into()))?;
        // The holder before us may have removed it, or its run have written it anew (once in thousands of lines).
        let locked = file.metadata().map_err(ActError::file("look at", path))?;
        match fs::metadata(path) {
            Ok(found) if found.ino() == locked.ino() => return Ok(Some(Lock(file))),
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Locks the folder of the journal at `path`; taken after a journal's own lock. `None`, told in the log, where it
/// cannot be had: undoing must not fail for it, nor wait for ever.
pub(crate) fn lock_folder_of(path: &Path) -> Option<Lock> {
    let folder = path.parent()?;
    let locked = File::open(folder).and_then(|file| {
        for _ in 0..FOLDER_TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => sleep(FOLDER_PAUSE),
                locked => return Ok(locked.map(|()| Lock(file))?),
            }
        }
        Err(Errno::WOULDBLOCK.into())
    });
    locked.inspect_err(|error| tracing::warn!("cannot lock {}: {error}", folder.display())).ok()
}

/// Removes a journal whose changes are undone, and its folder when that was the last one.
pub(crate) fn remove(path: &Path) -> Result<(), ActError> {
    // A kill may have cut off its being written anew.
    let _ = fs::remove_file(path.with_extension("new"));
    // Whoever holds the file is to know.
    let _ = fs::set_permissions(path, Permissions::from_mode(UNDONE));
    fs::remove_file(path).map_err(ActError::file("remove", path))?;
    remove_folder_of(path);
    Ok(())
}

fn remove_folder_of(path: &Path) {
    if let Some(dir) = path.parent() {
        // Fails while a journal is in it: that is the point.
        let _ = fs::remove_dir(dir);
    }
}

/// Whether the journal that this file is was undone, and its name removed for that.
pub(crate) fn was_undone(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & 0o777 == UNDONE)
}
