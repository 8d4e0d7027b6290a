//! A thread's cgroup, from `/proc/PID/task/TID/cgroup`.

use crate::root::ProcRoot;
use std::path::Path;

/// Where a thread is in the hierarchy that shares out CPU time: that of the v1 `cpu` controller where it is mounted apart, else
/// cgroup v2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupPath {
    /// 1 or 2.
    pub version: u8,
    /// From the hierarchy's root, with a leading `/`.
    pub path: String,
}

impl CgroupPath {
    /// Groups between it and the root: 0 in the root itself. Each level is a choice the scheduler makes on the way to the thread.
    pub fn depth(&self) -> usize {
        self.path.split('/').filter(|part| !part.is_empty()).count()
    }
}

/// The cgroup of a thread; `None` when it is gone, or there are no cgroups.
pub fn cgroup_of(root: &ProcRoot, pid: i32, tid: i32) -> Option<CgroupPath> {
    let path = root.proc.join(format!("{pid}/task/{tid}/cgroup"));
    parse(&read(&path)?)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(text: &str) -> Option<CgroupPath> {
    let mut unified = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|name| name == "cpu") {
            return Some(CgroupPath { version: 1, path: path.to_owned() });
        }
        if id == "0" && controllers.is_empty() {
            unified = Some(CgroupPath { version: 2, path: path.to_owned() });
        }
    }
    unified
}

/// The machine's name in a libvirt cgroup's path: `/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0` or, without
/// systemd, `/machine/qemu-1-web.libvirt-qemu`.
pub(super) fn libvirt_name(path: &str) -> Option<String> {
    path.split('/').find_map(|part| {
        let whole = match part.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope")) {
            Some(escaped) => unescape(escaped),
            None => part.strip_suffix(".libvirt-qemu")?.to_owned(),
        };
        // DRIVER-ID-NAME
        let mut parts = whole.splitn(3, '-');
        let (_driver, id, name) = (parts.next()?, parts.next()?, parts.next()?);
        (id.parse::<u64>().is_ok() && !name.is_empty()).then(|| name.to_owned())
    })
}

/// The jailer's cgroup ends in the VM's id: `/firecracker/ID`.
pub(super) fn jailer_name(path: &str) -> Option<String> {
    let (parent, id) = path.rsplit_once('/')?;
    (parent.ends_with("/firecracker") && !id.is_empty()).then(|| id.to_owned())
}

/// systemd writes what a unit's name may not hold as `\xNN`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        if let Some(byte) = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.extend_from_slice(b"\\x");
            rest = after;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_shares_out_cpu_time_counts() {
        let text = "9:name=systemd:/a\n4:memory:/b\n2:cpu,cpuacct:/machine/x\n0::/c\n";
        assert_eq!(parse(text), Some(CgroupPath { version: 1, path: "/machine/x".into() }));
        assert_eq!(parse("0::/a.slice/b:c.scope\n").unwrap().path, "/a.slice/b:c.scope");
        assert_eq!(parse("4:memory:/b\n"), None);
        assert_eq!(parse("nonsense"), None);
        for (path, depth) in [("/", 0), ("/a", 1), ("/a/b/c", 3)] {
            assert_eq!(CgroupPath { version: 2, path: path.into() }.depth(), depth);
        }
    }

    #[test]
    fn libvirts_names_are_undone() {
        for (path, name) in [
            (r"/machine.slice/machine-qemu\x2d1\x2dname.scope", Some("name")),
            (r"/machine.slice/machine-qemu\x2d12\x2dweb\x2dfront.scope/libvirt/vcpu3", Some("web-front")),
            ("/machine/qemu-3-db.libvirt-qemu/vcpu0", Some("db")),
            (r"/machine.slice/machine-x\xzz.scope", None),
            ("/system.slice/docker-abc.scope", None),
            ("/", None),
        ] {
            assert_eq!(libvirt_name(path).as_deref(), name, "{path}");
        }
        assert_eq!(jailer_name("/firecracker/vm-1").as_deref(), Some("vm-1"));
        assert_eq!(jailer_name("/firecracker"), None);
    }
}
