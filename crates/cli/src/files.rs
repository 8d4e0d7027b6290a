//! Files that are there as a whole or not at all: written beside their place, then moved into it in one step.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A place for a file, tried out: opening it fails where writing would, and leaves nothing behind however the process ends.
#[derive(Debug)]
pub enum Place {
    /// A file is moved there.
    Replaced(PathBuf),
    /// What is no regular file (/dev/stdout, a pipe), or one in a folder that is closed to us: only written.
    Written(File),
}

impl Place {
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.file_name().is_none() && !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        // A link's target is what is meant. What has no path, like a pipe's /dev/fd/63, keeps this one.
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Ok(is) = fs::metadata(&real) else {
            return beside(&real).map(|_| Self::Replaced(real));
        };
        let old = OpenOptions::new().write(true).open(&real)?;
        Ok(if is.is_file() && beside(&real).is_ok() { Self::Replaced(real) } else { Self::Written(old) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Written(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                file.write_all(bytes)
            }
            Self::Replaced(path) => {
                let mut new = beside(path)?;
                new.write_all(bytes)?;
                put(new, path)
            }
        }
    }
}

/// Moves a file that is [`beside`] a place into it, with the permissions and the owner of the one that was there.
pub fn put(new: NamedTempFile, path: &Path) -> io::Result<()> {
    if let Ok(old) = fs::metadata(path) {
        new.as_file().set_permissions(old.permissions())?;
        // Root's result stays its user's. Others can give nothing away, nor have they anything to.
        let _ = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
    }
    new.persist(path)?;
    Ok(())
}

/// A file in the same folder, which goes away with the value: renaming works within one file system only.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // Less what the umask takes away, like any new file.
    builder.prefix(".gleaner-").suffix(".new").permissions(Permissions::from_mode(0o666));
    let made = builder.tempfile_in(folder);
    // The system's word for it, without the random name.
    made.map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::Place;
    use std::fs::{self, Permissions};
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
