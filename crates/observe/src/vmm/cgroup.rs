//! A thread's cgroup, from `/proc/PID/task/TID/cgroup`.

use gleaner_model::printable;
use gleaner_sys::{ProcRoot, cgroup_path};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Where a thread is in the hierarchy that shares out CPU time: that of the v1 `cpu` controller where it is mounted
/// apart, else cgroup v2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupPath {
    /// 1 or 2.
    pub version: u8,
    /// From the hierarchy's root, with a leading `/`; as the kernel has it, which is bytes.
    pub path: OsString,
}

/// The path, fit to be shown.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.path.as_bytes()))
    }
}

impl CgroupPath {
    /// Groups between it and the root: 0 in the root itself. Each level is a choice the scheduler makes on the way to
    /// the thread.
    pub fn depth(&self) -> usize {
        self.path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count()
    }
}

/// The cgroup of a thread; `None` when it is gone, or there are no cgroups.
pub fn cgroup_of(root: &ProcRoot, pid: i32, tid: i32) -> Option<CgroupPath> {
    let path = root.proc.join(format!("{pid}/task/{tid}/cgroup"));
    parse(&std::fs::read(path).ok()?)
}

fn parse(text: &[u8]) -> Option<CgroupPath> {
    let path = |version, controller| {
        let path = cgroup_path(text, controller)?.as_os_str().to_owned();
        Some(CgroupPath { version, path })
    };
    path(1, Some("cpu")).or_else(|| path(2, None))
}

/// `/a`, `/a/b`, ... of `/a/b/...`; not the root, which has no weight.
pub(super) fn prefixes(path: &OsStr) -> impl Iterator<Item = OsString> {
    let bytes = path.as_bytes();
    let ends =
        bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([bytes.len()]);
    ends.map(|end| OsString::from_vec(bytes[..end].to_vec())).filter(|path| path.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_shares_out_cpu_time_counts() {
        let text = "9:name=systemd:/a\n4:memory:/b\n2:cpu,cpuacct:/machine/x\n0::/c\n";
        assert_eq!(parse(text.as_bytes()), Some(CgroupPath { version: 1, path: "/machine/x".into() }));
        assert_eq!(parse(b"0::/a.slice/b:c.scope\n").unwrap().path, "/a.slice/b:c.scope");
        assert_eq!(parse(b"4:memory:/b\n"), None);
        assert_eq!(parse(b"nonsense"), None);
        for (path, depth) in [("/", 0), ("/a", 1), ("/a/b/c", 3)] {
            assert_eq!(CgroupPath { version: 2, path: path.into() }.depth(), depth);
        }
    }

    #[test]
    fn a_path_is_bytes_and_is_shown_without_control_characters() {
        let found = parse(b"0::/a/\xff\x1b[2J\n").unwrap();
        assert_eq!((found.path.as_bytes(), found.to_string().as_str()), (&b"/a/\xff\x1b[2J"[..], r"/a/\xff\u{1b}[2J"));
        assert_eq!(prefixes(&found.path).map(|path| path.len()).collect::<Vec<_>>(), [2, 8]);
    }
}
