//! Where this machine's cgroup controllers are, and the few file operations that cgroups need.
//!
//! A controller is either on the unified hierarchy (v2) or on one of its own (v1); a machine may mix them. Roots are a
//! parameter, so that tests build their own trees.

mod changes;

pub(crate) use changes::enable_controller;
pub use changes::{DisableController, RemoveCgroup};

use crate::ActError;
use gleaner_sys::{Mount, cgroup_path, hierarchy_folder, mounts};
use std::fs;
use std::path::{Path, PathBuf};

/// Where to read mounts and this process's place from.
#[derive(Clone, Debug)]
pub struct CgroupRoots {
    /// Usually `/proc/self/mountinfo`.
    pub mountinfo: PathBuf,
    /// Usually `/proc/self/cgroup`.
    pub own: PathBuf,
    /// Who has to be in the groups that are found, usually this process. `None`: a fixture tree has no members.
    pub member: Option<i32>,
}

impl Default for CgroupRoots {
    fn default() -> Self {
        let member = Some(rustix::process::getpid().as_raw_nonzero().get());
        Self { mountinfo: "/proc/self/mountinfo".into(), own: "/proc/self/cgroup".into(), member }
    }
}

/// One controller's hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Whether it is the unified one.
    pub v2: bool,
    /// Its mount point.
    pub mount: PathBuf,
    /// The folder of the cgroup this process is in.
    pub own: PathBuf,
}

impl Hierarchy {
    /// Whether this process is in the topmost cgroup it can see.
    pub fn own_is_root(&self) -> bool {
        self.own == self.mount
    }
}

/// The cgroup of this process that `controller` goes by, whether it is enabled there or not: for looking at limits.
pub fn own_group(roots: &CgroupRoots, controller: &str) -> Option<Hierarchy> {
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let mounted: Vec<Mount> = mounts(&read(&roots.mountinfo)).collect();
    let own = read(&roots.own);
    let is_v1 = |mount: &&Mount| mount.kind == b"cgroup" && mount.has_option(controller);
    // A controller is on one hierarchy only: where v1 has it and does not show our group, v2 cannot have it.
    if mounted.iter().any(|mount| is_v1(&mount)) {
        let path = cgroup_path(&own, Some(controller))?;
        return shown(false, mounted.iter().filter(is_v1), path, roots.member);
    }
    let unified = mounted.iter().filter(|mount| mount.kind == b"cgroup2");
    shown(true, unified, cgroup_path(&own, None)?, roots.member)
}

/// Of mounts that show the group at `path`, one that shows most of the tree. A mount of another part of it is not ours,
/// nor is one that something else was mounted over: `member` has to be in the group.
fn shown<'a>(v2: bool, mounts: impl Iterator<Item = &'a Mount>, path: &Path, member: Option<i32>) -> Option<Hierarchy> {
    let ours = mounts.filter_map(|mount| Some((mount, hierarchy_folder(mount, path)?)));
    let ours = ours.filter(|(_, own)| member.is_none_or(|pid| holds(own, pid)));
    let (mount, own) = ours.min_by_key(|(mount, _)| mount.root.components().count())?;
    Some(Hierarchy { v2, mount: mount.point.clone(), own })
}

/// Whether the process is in the group. A threaded group of v2 lists no processes, only threads.
fn holds(group: &Path, pid: i32) -> bool {
    let listed = |name: &str| fs::read_to_string(group.join(name));
    let members = listed("cgroup.procs").or_else(|_| listed("cgroup.threads"));
    members.is_ok_and(|members| members.lines().any(|line| line.parse() == Ok(pid)))
}

/// The hierarchy with the cpu controller, where that can be used: on v2 the groups at the top have to be able to get
/// it, because there the yielding threads' one is made.
pub fn cpu_controller(roots: &CgroupRoots) -> Option<Hierarchy> {
    let hierarchy = own_group(roots, "cpu")?;
    let at_the_top = || fs::read_to_string(hierarchy.mount.join("cgroup.controllers")).unwrap_or_default();
    let usable = !hierarchy.v2 || at_the_top().split_whitespace().any(|name| name == "cpu");
    usable.then_some(hierarchy)
}

/// Reads a small file, trimmed.
pub(crate) fn read(path: &Path) -> Result<String, ActError> {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(ActError::file("read", path))
}

/// Writes a control file. It must exist: a missing one means that the controller is not there.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), ActError> {
    use std::io::Write;
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(ActError::file("write", path))
}

/// Makes a cgroup.
pub(crate) fn make(path: &Path) -> Result<(), ActError> {
    fs::create_dir(path).map_err(ActError::file("create", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(dir: &Path, mounts: &str, own: &str) -> CgroupRoots {
        let roots = CgroupRoots { mountinfo: dir.join("mountinfo"), own: dir.join("own"), member: None };
        fs::write(&roots.mountinfo, mounts).unwrap();
        fs::write(&roots.own, own).unwrap();
        roots
    }

    #[test]
    fn finds_v1_controllers_mounted_apart_beside_a_bare_v2() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = "30 25 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu\n\
                      32 25 0:28 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n\
                      38 25 0:34 / /cg/unified rw - cgroup2 cgroup2 rw\n";
        let roots = roots(dir.path(), mounts, "3:cpuset:/\n1:cpu:/a/b\n0::/\n");
        let hierarchy = |mount: &str, own: &str| Some(Hierarchy { v2: false, mount: mount.into(), own: own.into() });
        assert_eq!(cpu_controller(&roots), hierarchy("/cg/cpu", "/cg/cpu/a/b"));
        assert_eq!(own_group(&roots, "cpuset"), hierarchy("/cg/cpuset", "/cg/cpuset"));
        assert!(own_group(&roots, "cpuset").is_some_and(|cpuset| cpuset.own_is_root()));
    }

    #[test]
    fn finds_the_cpu_controller_of_v2_only_where_it_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("cg");
        fs::create_dir_all(mount.join("user.slice")).unwrap();
        fs::write(mount.join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        fs::write(mount.join("user.slice/cgroup.controllers"), "memory\n").unwrap();
        let mounts = format!("30 25 0:26 / {} rw - cgroup2 cgroup2 rw\n", mount.display());
        let roots = roots(dir.path(), &mounts, "0::/user.slice\n");
        let found = Some(Hierarchy { v2: true, own: mount.join("user.slice"), mount: mount.clone() });
        assert_eq!(cpu_controller(&roots), found);
        fs::write(mount.join("cgroup.controllers"), "memory\n").unwrap();
        assert_eq!(cpu_controller(&roots), None);
    }

    #[test]
    fn a_mount_that_does_not_show_our_group_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let at = |root: &str, point: &str| format!("30 25 0:26 {root} {point} rw - cgroup cgroup rw,cpuset\n");
        for (mounts, path, mount, own) in [
            // Mounted twice, the first being another program's part of the tree.
            (at("/other", "/sub") + &at("/", "/cg"), "/", Some("/cg"), "/cg"),
            (at("/other", "/sub"), "/", None, ""),
            (at("/other", "/sub"), "/oth", None, ""),
            // A container without a cgroup namespace sees its own part, at its own place.
            (at("/docker/x", "/cg"), "/docker/x", Some("/cg"), "/cg"),
            (at("/docker/x", "/cg"), "/docker/x/y", Some("/cg"), "/cg/y"),
            // The whole tree is better than a part.
            (at("/a", "/part") + &at("/", "/whole"), "/a/b", Some("/whole"), "/whole/a/b"),
            // In a cgroup namespace, what is above its root cannot be named.
            (at("/../..", "/cg"), "/", None, ""),
            (at("/", "/cg"), "/../other", None, ""),
        ] {
            let found = own_group(&roots(dir.path(), &mounts, &format!("3:cpuset:{path}\n")), "cpuset");
            let wanted = mount.map(|mount| Hierarchy { v2: false, mount: mount.into(), own: own.into() });
            assert_eq!(found, wanted, "{mounts}{path}");
        }
    }

    #[test]
    fn a_group_that_does_not_list_us_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        for mount in ["covered", "cg"] {
            fs::create_dir_all(dir.path().join(mount).join("own")).unwrap();
        }
        let at = |point: &str| format!("30 25 0:26 / {}/{point} rw - cgroup2 none rw\n", dir.path().display());
        let members = |mount: &str, name: &str, pids: &str| {
            fs::write(dir.path().join(mount).join("own").join(name), pids).unwrap();
        };
        let roots = CgroupRoots { member: Some(77), ..roots(dir.path(), &(at("covered") + &at("cg")), "0::/own\n") };
        assert_eq!(own_group(&roots, "cpu"), None);
        members("covered", "cgroup.procs", "7\n777\n");
        members("cg", "cgroup.procs", "1\n77\n");
        assert_eq!(own_group(&roots, "cpu").map(|found| found.mount), Some(dir.path().join("cg")));
        // A threaded group.
        fs::remove_file(dir.path().join("cg/own/cgroup.procs")).unwrap();
        members("cg", "cgroup.threads", "77\n");
        assert_eq!(own_group(&roots, "cpu").map(|found| found.mount), Some(dir.path().join("cg")));
        // No v1 controller of this name is mounted, and one that is not shown is not looked for on v2.
        let v1 = "31 25 0:27 /other /v1 rw - cgroup none rw,cpu\n".to_owned() + &at("cg");
        fs::write(&roots.mountinfo, v1).unwrap();
        assert_eq!(own_group(&roots, "cpu"), None);
    }

    #[test]
    fn this_process_is_in_the_groups_that_are_found() {
        let roots = CgroupRoots::default();
        for controller in ["cpu", "cpuset", "pids"] {
            let Some(found) = own_group(&roots, controller) else { continue };
            assert!(holds(&found.own, i32::try_from(std::process::id()).unwrap()), "{controller}: {found:?}");
        }
    }

    #[test]
    fn no_cgroups_at_all_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let roots = CgroupRoots { mountinfo: dir.path().join("no"), own: dir.path().join("no"), member: None };
        assert_eq!(cpu_controller(&roots), None);
    }
}
