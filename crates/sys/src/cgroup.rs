//! Which cgroups a process is in, and where they can be seen.
//!
//! `/proc/PID/cgroup` names a group by its path from the root of the reader's cgroup namespace, `mountinfo` a mount by
//! the path of what it shows, from the same root. A mount shows a group only if the group's path begins with the
//! mount's. What is above the namespace's root has no name here (`/..`), so nothing is concluded from such a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What of the file system is mounted there.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// The file system's type: `cgroup`, `cgroup2`, `resctrl`.
    pub kind: Vec<u8>,
    /// The file system's own options.
    options: Vec<u8>,
}

impl Mount {
    /// Whether the file system has this option, such as a v1 controller's name.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(|byte| *byte == b',').any(|found| found == option.as_bytes())
    }
}

/// Every mount, in order: format in proc_pid_mountinfo(5). Lines that are none are left out.
pub fn mounts(mountinfo: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, point) = (fields.nth(3)?, fields.next()?);
        // Optional fields end with a hyphen.
        fields.find(|field| *field == b"-")?;
        let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { root: unescape(root), point: unescape(point), kind: kind.to_owned(), options: options.to_owned() })
    })
}

/// Spaces, tabs, line feeds and backslashes stand as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// The path of a process's group in the v1 hierarchy of `controller`, or in the unified one (`None`), from a `cgroup`
/// file.
pub fn cgroup_path<'a>(cgroup: &'a [u8], controller: Option<&str>) -> Option<&'a Path> {
    cgroup.split(|byte| *byte == b'\n').find_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match controller {
            None => id == b"0" && controllers.is_empty(),
            Some(name) => controllers.split(|byte| *byte == b',').any(|found| found == name.as_bytes()),
        };
        wanted.then(|| Path::new(OsStr::from_bytes(path)))
    })
}

/// The folder in which `mount` shows the group at `path`; `None` where it shows another part of the tree, or that
/// cannot be told.
pub fn hierarchy_folder(mount: &Mount, path: &Path) -> Option<PathBuf> {
    let is_named = |path: &Path| {
        path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
    };
    if !is_named(path) || !is_named(&mount.root) {
        return None;
    }
    let below = path.strip_prefix(&mount.root).ok()?;
    // Joining nothing would add a slash.
    Some(if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_taken_apart_whatever_their_names_are() {
        let text = b"30 25 0:26 / /cg\\040x/\xff rw,nosuid shared:5 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
                     31 25 0:27 /a\\134b /u rw - cgroup2 none rw\nnonsense\n32 25 0:2 / /x rw\n";
        let found: Vec<Mount> = mounts(text).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].point.as_os_str().as_bytes(), b"/cg x/\xff");
        assert!(found[0].has_option("cpuacct") && !found[0].has_option("cpuset"));
        assert_eq!((found[1].root.as_path(), &found[1].kind[..]), (Path::new("/a\\b"), &b"cgroup2"[..]));
    }

    #[test]
    fn a_process_is_in_one_group_of_each_hierarchy() {
        let text = b"9:name=systemd:/s\n4:cpu,cpuacct:/a:b\n1:cpuset:/\n0::/c\xff\n";
        let path = |controller| cgroup_path(text, controller).map(|path| path.as_os_str().as_bytes().to_vec());
        assert_eq!(path(Some("cpuacct")), Some(b"/a:b".to_vec()));
        assert_eq!((path(Some("memory")), path(None)), (None, Some(b"/c\xff".to_vec())));
    }

    #[test]
    fn a_mount_shows_what_is_below_its_root_and_nothing_else() {
        for (root, path, folder) in [
            ("/", "/", Some("/cg")),
            ("/", "/a/b", Some("/cg/a/b")),
            ("/a", "/a", Some("/cg")),
            ("/a", "/a/b", Some("/cg/b")),
            // Somebody else's part of the tree.
            ("/other", "/", None),
            ("/other", "/a", None),
            ("/a", "/ab", None),
            // Above the root of the cgroup namespace.
            ("/..", "/", None),
            ("/", "/../x", None),
            ("/../..", "/../../y", None),
            ("", "/", None),
        ] {
            let mount = Mount { root: root.into(), point: "/cg".into(), kind: b"cgroup".to_vec(), options: Vec::new() };
            assert_eq!(hierarchy_folder(&mount, Path::new(path)), folder.map(PathBuf::from), "{root} {path}");
        }
    }
}
