//! Where `/proc` and `/sys` are, so that tests can hand in trees of their own, and how a file there is
//! read without allocating.

use crate::{SysError, is_gone};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The roots that every reader starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcRoot {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for ProcRoot {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl ProcRoot {
    /// A fixture tree: `proc` and `sys` below `root`.
    pub fn below(root: &Path) -> Self {
        Self { proc: root.join("proc"), sys: root.join("sys") }
    }

    /// Whether this is the running machine: only then do its pids mean something to system calls.
    pub fn is_live(&self) -> bool {
        self.proc == Path::new("/proc")
    }
}

/// A small text file as a whole; `None` where it does not exist. What is no UTF-8 in it is replaced: names may hold any
/// bytes.
pub fn read_optional(path: &Path) -> Result<Option<String>, SysError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(SysError::read(path, error)),
    }
}

/// Reads an open file from its start into `buffer`, growing it up to `LIMIT`; returns what was read.
///
/// # Errors
/// What the kernel says; ESRCH where the thread that the file is about has ended.
pub fn reread<'a>(file: &File, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    /// `/proc/stat` of the largest machine, or 100,000 children, with room.
    const LIMIT: usize = 1 << 20;
    if buffer.is_empty() {
        buffer.resize(4096, 0);
    }
    let mut filled = 0;
    loop {
        let read = file.read_at(&mut buffer[filled..], filled as u64)?;
        filled += read;
        // Only an empty answer is the end: files of many records, such as `children`, answer a page at a time.
        if read == 0 || filled == LIMIT {
            return Ok(&buffer[..filled]);
        }
        if filled == buffer.len() {
            buffer.resize((buffer.len() * 2).min(LIMIT), 0);
        }
    }
}

/// The numbered entries of a folder, such as the processes of `/proc`; none when it is gone.
pub fn numbered(folder: &Path) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).ok().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
