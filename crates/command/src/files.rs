//! Files that are there as a whole or not at all: written without a name, then given their name.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

const OWN_FILES: &str = "/proc/self/fd";
/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A place for a file, tried out: opening it fails where writing would, and leaves nothing behind however the process
/// ends.
#[derive(Debug)]
pub enum Place {
    /// A file is moved there.
    Replaced(PathBuf),
    /// What is no regular file (/dev/stdout, a pipe), or one in a folder that is closed to us, or somebody else's in a
    /// folder like /tmp: only written.
    Written(File),
}

impl Place {
    /// Tries it out.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.file_name().is_none() && !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        refuse_strangers(path)?;
        // By the kernel, which may refuse to follow a link.
        let old = match OpenOptions::new().write(true).open(path) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return beside(path).map(|_| Self::Replaced(path.to_owned()));
            }
            Err(error) => return Err(error),
        };
        let is = old.metadata()?;
        let replaceable = |real: &PathBuf| may_be_renamed_over(&is, folder_of(real)) && beside(real).is_ok();
        let real = name_of(path, &is).filter(|_| is.is_file()).filter(replaceable);
        Ok(real.map_or(Self::Written(old), Self::Replaced))
    }

    /// Puts a whole file there.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Written(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                file.write_all(bytes)?;
                arrived(file)
            }
            Self::Replaced(path) => {
                let mut new = beside(path)?;
                new.file.write_all(bytes)?;
                new.put(path)
            }
        }
    }
}

/// Where something is written over a long time: into its place when it is whole, so that what was there is lost to
/// nothing less.
#[derive(Debug)]
pub enum Destination {
    /// A file without a name, and the name that it gets.
    Replaced {
        /// What is written to.
        new: New,
        /// Its place.
        path: PathBuf,
    },
    /// As [`Place::Written`].
    Written(File),
    /// A file that cannot be replaced: what is to be in it is written elsewhere first.
    Copied {
        /// What is written to.
        new: File,
        /// Its place.
        to: File,
    },
}

impl Destination {
    /// And the file to write to.
    pub fn open(path: &Path) -> io::Result<(Self, File)> {
        Ok(match Place::open(path)? {
            Place::Written(to) if to.metadata()?.is_file() => {
                let new = tempfile::tempfile()?;
                let file = new.try_clone()?;
                (Self::Copied { new, to }, file)
            }
            Place::Written(file) => (Self::Written(file.try_clone()?), file),
            Place::Replaced(path) => {
                let new = beside(&path)?;
                let file = new.file.try_clone()?;
                (Self::Replaced { new, path }, file)
            }
        })
    }

    /// Puts what was written into its place.
    pub fn whole(self) -> io::Result<()> {
        match self {
            Self::Replaced { new, path } => new.put(&path),
            Self::Written(file) => arrived(&file),
            Self::Copied { mut new, mut to } => {
                new.rewind()?;
                to.set_len(0)?;
                io::copy(&mut new, &mut to)?;
                arrived(&to)
            }
        }
    }
}

/// A file that is to replace another, or to be a new one.
#[derive(Debug)]
pub struct New {
    /// What is written to.
    pub file: File,
    /// Its random name, which goes away with the value: only where the file system has no files without names (NFS,
    /// 9p). There SIGKILL leaves it behind.
    name: Option<TempPath>,
}

impl New {
    /// Gives it its name, with the permissions and the owner of the file that had it.
    pub fn put(self, path: &Path) -> io::Result<()> {
        arrived(&self.file)?;
        // What has become a link since is replaced, and its target is nothing to go by.
        if let Ok(old) = fs::symlink_metadata(path)
            && old.is_file()
        {
            self.file.set_permissions(old.permissions())?;
            // Root's result stays its user's. Others can give nothing away, nor have they anything to.
            let _ = fchown(&self.file, Some(old.uid()), Some(old.gid()));
        }
        let name = match self.name {
            Some(name) => name,
            None => match name_it(&self.file, path) {
                // A link replaces nothing, so another name comes first, for as long as a rename takes.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    random_name().make_in(folder_of(path), |name| name_it(&self.file, name))?.into_temp_path()
                }
                named => return named,
            },
        };
        Ok(name.persist(path)?)
    }
}

/// Whether all that was written got there. File systems over a network, and quotas, say so only when a descriptor is
/// closed, and `File` does not ask.
fn arrived(file: &File) -> io::Result<()> {
    let copy = file.try_clone()?.into_raw_fd();
    // SAFETY: the descriptor is ours alone.
    if unsafe { libc::close(copy) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A file in the same folder: names can be changed within one file system only.
pub fn beside(path: &Path) -> io::Result<New> {
    let folder = folder_of(path);
    // Less what the umask takes away, like any new file.
    let usual = 0o666;
    // Without /proc (a chroot) it could not be given its name.
    if Path::new(OWN_FILES).exists() {
        match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(usual)) {
            Ok(file) => return Ok(New { file: file.into(), name: None }),
            // Kernels' and file systems' ways to say that they know no such file (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let made = random_name().permissions(Permissions::from_mode(usual)).tempfile_in(folder);
    // The system's word for it, without the random name.
    let (file, name) =
        made.map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))?.into_parts();
    Ok(New { file, name: Some(name) })
}

/// In a sticky folder (/tmp) only the file's owner, the folder's, and root may give its name to another file
/// (unlink(2)).
fn may_be_renamed_over(file: &Metadata, folder: &Path) -> bool {
    let own = rustix::process::geteuid();
    let sticky = |folder: &Metadata| folder.mode() & libc::S_ISVTX != 0 && folder.uid() != own.as_raw();
    own.is_root() || file.uid() == own.as_raw() || fs::metadata(folder).is_ok_and(|folder| !sticky(&folder))
}

/// The name without links of the file that was opened at `path`. What has none, like a pipe's /dev/fd/63, is written.
fn name_of(path: &Path, opened: &Metadata) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let found = fs::symlink_metadata(&real).ok()?;
    ((found.dev(), found.ino()) == (opened.dev(), opened.ino())).then_some(real)
}

/// In a folder like /tmp no link is followed that is neither one's own nor the folder's owner's, and no such pipe is
/// waited for. As the kernel does it, wherever `fs.protected_symlinks` is not set.
pub fn refuse_strangers(path: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(is) = fs::symlink_metadata(&path) else { return Ok(()) };
        let folder = fs::metadata(folder_of(&path))?;
        let is_shared = folder.mode() & (libc::S_ISVTX | libc::S_IWOTH) == (libc::S_ISVTX | libc::S_IWOTH);
        let is_strangers = is_shared && ![own, folder.uid()].contains(&is.uid());
        if is_strangers && (is.is_symlink() || is.file_type().is_fifo()) {
            let why = format!("user {} has put a link or a pipe there, where everybody may", is.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if !is.is_symlink() {
            return Ok(());
        }
        path = folder_of(&path).join(fs::read_link(&path)?);
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn random_name() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gleaner-").suffix(".new");
    builder
}

/// Gives a file without a name one that nobody has.
fn name_it(file: &File, name: &Path) -> io::Result<()> {
    let nameless = format!("{OWN_FILES}/{}", file.as_raw_fd());
    Ok(linkat(CWD, nameless, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::{New, Place, beside, random_name};
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_place_is_as_it_was_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let path = folder.path().join("x");
        let mut place = Place::open(&path).unwrap();
        assert_eq!(names(), 0);
        place.write(b"first").unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"first".to_vec(), 1));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("x", &link).unwrap();
        let mut place = Place::open(&link).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        place.write(b"2nd").unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"2nd".to_vec(), 2));
        assert!(link.is_symlink(), "a link's target is what is meant");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    /// Where the file system has no files without names, and where it has.
    #[test]
    fn a_file_that_is_not_put_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let with_name = || {
            let (file, name) = random_name().tempfile_in(folder.path()).unwrap().into_parts();
            New { file, name: Some(name) }
        };
        drop(with_name());
        assert_eq!(names(), 0);
        let nameless = beside(&path).unwrap();
        if nameless.name.is_none() {
            // Not even when this process is killed here.
            assert_eq!(names(), 0);
        }
        let put = |mut new: New, text: &str| {
            new.file.write_all(text.as_bytes()).unwrap();
            new.put(&path).unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), (text, 1));
        };
        put(nameless, "first");
        put(with_name(), "2nd");
        put(beside(&path).unwrap(), "third");
        assert!(beside(&path).unwrap().put(&folder.path().join("none/x")).is_err());
        assert_eq!(names(), 1);
    }

    #[test]
    fn in_a_folder_like_tmp_nobody_elses_link_is_followed() {
        if !rustix::process::geteuid().is_root() {
            gleaner_testing::skip!("needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let (shared, precious) = (folder.path().join("shared"), folder.path().join("precious"));
        fs::create_dir(&shared).unwrap();
        fs::write(&precious, "gold").unwrap();
        let [link, pipe, own] = ["link", "pipe", "own"].map(|name| shared.join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        for strangers in [&link, &pipe] {
            std::os::unix::fs::lchown(strangers, Some(65_534), None).unwrap();
        }
        // One's own link to theirs, and one's own alone.
        std::os::unix::fs::symlink("link", &own).unwrap();
        let mode = |mode| fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        mode(0o1777);
        for path in [&link, &pipe, &own] {
            let said = Place::open(path).unwrap_err();
            assert_eq!(said.kind(), std::io::ErrorKind::PermissionDenied, "{}: {said}", path.display());
        }
        assert_eq!(fs::read(&precious).unwrap(), b"gold");
        fs::remove_file(&own).unwrap();
        std::os::unix::fs::symlink(&precious, &own).unwrap();
        Place::open(&own).unwrap().write(b"lead").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"lead");
        // Elsewhere whoever makes links may write.
        mode(0o755);
        Place::open(&link).unwrap().write(b"tin").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"tin");
    }

    #[test]
    fn what_became_a_link_since_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("x"), folder.path().join("precious"));
        fs::write(&precious, "gold").unwrap();
        let mut place = Place::open(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        place.write(b"ours").unwrap();
        assert_eq!((fs::read(&precious).unwrap(), fs::read(&path).unwrap()), (b"gold".to_vec(), b"ours".to_vec()));
        assert!(!path.is_symlink());
    }

    #[test]
    fn a_file_without_a_name_is_written() {
        use std::io::{Read, Seek};
        use std::os::fd::AsRawFd;
        let mut file = tempfile::tempfile().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Place::open(path.as_ref()).unwrap().write(b"result").unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "result");
    }

    #[test]
    fn new_files_are_readable_as_far_as_the_umask_lets_them() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        fs::write(folder.path().join("usual"), "").unwrap();
        Place::open(&folder.path().join("ours")).unwrap().write(b"").unwrap();
        assert_eq!(mode("ours"), mode("usual"));
    }

    #[test]
    fn what_is_no_regular_file_is_only_written() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Place::open(folder.path()).is_err());
        assert!(Place::open(&folder.path().join("none/x")).is_err());
        assert!(Place::open("".as_ref()).is_err());
        assert!(Place::open("/dev/full".as_ref()).unwrap().write(b"x").is_err());
        assert!(fs::exists("/dev/full").unwrap());
    }
}
