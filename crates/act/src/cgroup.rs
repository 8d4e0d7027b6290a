//! Where this machine's cgroup controllers are, and the few file operations that cgroups need.
//!
//! A controller is either on the unified hierarchy (v2) or on one of its own (v1); a machine may mix them. Roots are a parameter,
//! so that tests build their own trees.

use crate::ActError;
use crate::journal::Journal;
use crate::undo::Undo;
use std::fs;
use std::path::{Path, PathBuf};

/// Where to read mounts and this process's place from.
#[derive(Clone, Debug)]
pub struct CgroupRoots {
    /// Usually `/proc/self/mountinfo`.
    pub mountinfo: PathBuf,
    /// Usually `/proc/self/cgroup`.
    pub own: PathBuf,
}

impl Default for CgroupRoots {
    fn default() -> Self {
        Self { mountinfo: "/proc/self/mountinfo".into(), own: "/proc/self/cgroup".into() }
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

/// The hierarchies that carry `cpu` and `cpuset`; `None` where the controller is not to be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupHierarchies {
    /// The cpu controller (cpu.idle).
    pub cpu: Option<Hierarchy>,
    /// The cpuset controller.
    pub cpuset: Option<Hierarchy>,
}

impl CgroupHierarchies {
    /// Finds them. A file that cannot be read means: none.
    pub fn find(roots: &CgroupRoots) -> Self {
        let mounts = fs::read_to_string(&roots.mountinfo).unwrap_or_default();
        let own = fs::read_to_string(&roots.own).unwrap_or_default();
        Self { cpu: hierarchy("cpu", &mounts, &own), cpuset: hierarchy("cpuset", &mounts, &own) }
    }
}

impl CgroupHierarchies {
    /// The folder of this process's cgroup on the unified hierarchy, where that carries a controller we use.
    pub fn own_unified(&self) -> Option<PathBuf> {
        [&self.cpu, &self.cpuset].into_iter().flatten().find(|hierarchy| hierarchy.v2).map(|found| found.own.clone())
    }
}

/// Finds `controller` on v1, else on v2. Formats: proc_pid_mountinfo(5), cgroups(7).
fn hierarchy(controller: &str, mounts: &str, own: &str) -> Option<Hierarchy> {
    let own_path = |of_v2: bool| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let matches = if of_v2 { id == "0" } else { controllers.split(',').any(|name| name == controller) };
            matches.then(|| path.to_owned())
        })
    };
    let found = |v2: bool, mount: &str, mount_root: &str| {
        let path = own_path(v2)?;
        // A bind mount or a cgroup namespace shows a part of the tree: the mount's root is cut off the path.
        let below = path.strip_prefix(mount_root.trim_end_matches('/')).unwrap_or(&path).trim_start_matches('/');
        let own = if below.is_empty() { PathBuf::from(mount) } else { Path::new(mount).join(below) };
        Some(Hierarchy { v2, mount: mount.into(), own })
    };
    let parsed: Vec<_> = mounts.lines().filter_map(parse_mount).collect();
    let v1 = parsed.iter().find(|mount| mount.kind == "cgroup" && mount.options.split(',').any(|o| o == controller));
    if let Some(mount) = v1 {
        return found(false, mount.point, mount.root);
    }
    let v2 = parsed.iter().find(|mount| mount.kind == "cgroup2")?;
    let hierarchy = found(true, v2.point, v2.root)?;
    // The yielding threads' group is made at the top, the program's below our own.
    let parent = if controller == "cpu" { &hierarchy.mount } else { &hierarchy.own };
    let controllers = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == controller).then_some(hierarchy)
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
    Some(Mount { root, point, kind, options })
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

/// Makes a v2 controller available to the children of `parent`; undone only if Gleaner made it so: this run, or another that
/// still goes on and will leave it to us.
pub(crate) fn enable_controller(parent: &Path, controller: &str, journal: &mut Journal) -> Result<(), ActError> {
    let control = parent.join("cgroup.subtree_control");
    let undo = Undo::DisableController { parent: parent.to_owned(), controller: controller.to_owned() };
    let _lock = journal.lock_folder();
    if read(&control)?.split_whitespace().any(|name| name == controller) {
        return if journal.others_have(&undo) { journal.before(&undo) } else { Ok(()) };
    }
    journal.before(&undo)?;
    write(&control, &format!("+{controller}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(dir: &Path, mounts: &str, own: &str) -> CgroupRoots {
        let roots = CgroupRoots { mountinfo: dir.join("mountinfo"), own: dir.join("own") };
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
        let found = CgroupHierarchies::find(&roots(dir.path(), mounts, "3:cpuset:/\n1:cpu:/a/b\n0::/\n"));
        let hierarchy = |mount: &str, own: &str| Some(Hierarchy { v2: false, mount: mount.into(), own: own.into() });
        assert_eq!(found.cpu, hierarchy("/cg/cpu", "/cg/cpu/a/b"));
        assert_eq!(found.cpuset, hierarchy("/cg/cpuset", "/cg/cpuset"));
        assert!(found.cpuset.is_some_and(|cpuset| cpuset.own_is_root()));
    }

    #[test]
    fn finds_v2_controllers_only_where_they_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("cg");
        fs::create_dir_all(mount.join("user.slice")).unwrap();
        // The cpu controller counts at the top, where the yielding threads go; the cpuset one where the program is.
        fs::write(mount.join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        fs::write(mount.join("user.slice/cgroup.controllers"), "memory\n").unwrap();
        let mounts = format!("30 25 0:26 / {} rw - cgroup2 cgroup2 rw\n", mount.display());
        let roots = roots(dir.path(), &mounts, "0::/user.slice\n");
        let found = CgroupHierarchies::find(&roots);
        assert_eq!(found.cpu, Some(Hierarchy { v2: true, own: mount.join("user.slice"), mount: mount.clone() }));
        assert_eq!(found.cpuset, None);
        fs::write(mount.join("cgroup.controllers"), "memory\n").unwrap();
        assert_eq!(CgroupHierarchies::find(&roots).cpu, None);
    }

    #[test]
    fn no_cgroups_at_all_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let roots = CgroupRoots { mountinfo: dir.path().join("no"), own: dir.path().join("no") };
        assert_eq!(CgroupHierarchies::find(&roots), CgroupHierarchies::default());
    }
}
