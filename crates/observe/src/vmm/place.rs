//! Files as a process names them: its root, its mounts and its folder may be others than ours.

use super::address::MonitorAddress;
use gleaner_sys::ProcRoot;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest file of options that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// Where a process is.
pub(super) struct Place<'a> {
    root: &'a ProcRoot,
    folder: PathBuf,
}

impl<'a> Place<'a> {
    pub fn of(root: &'a ProcRoot, pid: i32) -> Self {
        Self { root, folder: root.proc.join(pid.to_string()) }
    }

    /// A path of the process's, as it is reached from here.
    fn path(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            return self.below_root(path);
        }
        let from_folder = match fs::read_link(self.folder.join("cwd")) {
            Ok(cwd) if !self.is_elsewhere() => cwd.join(path),
            _ => self.folder.join("cwd").join(path),
        };
        if from_folder.exists() {
            return from_folder;
        }
        // With -daemonize QEMU leaves the folder that it was started in.
        self.started_in()
            .map(|folder| self.below_root(&folder.join(path)))
            .filter(|path| path.exists())
            .unwrap_or(from_folder)
    }

    fn below_root(&self, path: &Path) -> PathBuf {
        if !self.is_elsewhere() {
            return path.to_owned();
        }
        self.folder.join("root").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether its files are others than ours under the same name. Not where it cannot be told: then they are taken for
    /// ours.
    fn is_elsewhere(&self) -> bool {
        let moved = fs::read_link(self.folder.join("root")).is_ok_and(|root| root != Path::new("/"));
        moved || self.has_other("mnt")
    }

    /// Whether it is in another namespace of this kind.
    fn has_other(&self, kind: &str) -> bool {
        let of = |folder: &Path| fs::read_link(folder.join("ns").join(kind));
        matches!((of(&self.folder), of(&self.root.proc.join("self"))), (Ok(its), Ok(ours)) if its != ours)
    }

    fn started_in(&self) -> Option<PathBuf> {
        let environment = fs::read(self.folder.join("environ")).ok()?;
        let pwd = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"PWD="))?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(pwd))).filter(|folder| folder.is_absolute())
    }

    /// A monitor's address as seen from here; `None` where it cannot be reached from another network namespace.
    pub fn address(&self, monitor: MonitorAddress) -> Option<MonitorAddress> {
        match monitor {
            MonitorAddress::Path(path) => Some(MonitorAddress::Path(self.path(&path))),
            other => (!self.has_other("net")).then_some(other),
        }
    }

    /// A small ordinary file; whoever named it may have named anything, a pipe that nobody writes to for instance.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(self.path(path), flags, Mode::empty()).ok()?);
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = Vec::new();
        file.take(LONGEST_FILE).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_the_processs_own() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        for (pid, mounts, at) in [(1, "mnt:[1]", "/"), (2, "mnt:[2]", "/"), (3, "mnt:[1]", "/srv/jail")] {
            let proc = root.proc.join(pid.to_string());
            fs::create_dir_all(proc.join("ns")).unwrap();
            symlink(mounts, proc.join("ns/mnt")).unwrap();
            symlink(if pid == 2 { "net:[2]" } else { "net:[1]" }, proc.join("ns/net")).unwrap();
            symlink(at, proc.join("root")).unwrap();
            symlink("/nowhere/there", proc.join("cwd")).unwrap();
        }
        symlink("1", root.proc.join("self")).unwrap();
        let path = |pid, name: &str| Place::of(&root, pid).path(Path::new(name));
        assert_eq!(path(1, "/run/q"), Path::new("/run/q"));
        assert_eq!(path(1, "q"), Path::new("/nowhere/there/q"));
        for pid in [2, 3] {
            assert_eq!(path(pid, "/run/q"), root.proc.join(format!("{pid}/root/run/q")));
            assert_eq!(path(pid, "q"), root.proc.join(format!("{pid}/cwd/q")));
        }
        let port = MonitorAddress::from_option(Path::new("tcp::1"));
        assert_eq!([1, 2, 3].map(|pid| Place::of(&root, pid).address(port.clone()).is_some()), [true, false, true]);
        // It was started in a folder that it has left since.
        fs::write(folder.path().join("q"), "text").unwrap();
        fs::write(root.proc.join("1/environ"), format!("A=b\0PWD={}\0", folder.path().display())).unwrap();
        assert_eq!(path(1, "q"), folder.path().join("q"));
        assert_eq!(Place::of(&root, 1).read(Path::new("q")).as_deref(), Some(&b"text"[..]));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(Place::of(&root, 1).read(&pipe), None);
    }
}
