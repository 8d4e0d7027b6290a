//! Cache allocation and monitoring through the kernel's resctrl (Documentation/filesystems/resctrl.rst).
//!
//! ```text
//! Resctrl::open ── info ──▶ what the host has (CacheAllocation, monitoring)
//!      │
//!      ├─ group(name, mask)          a control group of ours, with a mask of ways in every L3
//!      ├─ join(group, tid)           a thread moves into it; only one that is in nobody else's group
//!      └─ monitor(group, name, tids) a monitoring group within it: what they occupy, what they transfer
//! ```
//!
//! Every folder is in the journal before it is made. Nothing else needs undoing: the kernel puts the threads of a group
//! that is removed back into the root group, from which alone threads are taken. resctrl itself is mounted if need be,
//! and unmounted unless somebody has come to use it meanwhile.
//!
//! Tests mount a resctrl of their own (`tests/support`), on which writes are refused as the kernel refuses them.

mod info;

pub use info::{CacheAllocation, CacheMonitoring, ResctrlInfo};

use crate::cgroup;
use crate::journal::{Change, Journal, Run, When, never_written, path_bytes};
use crate::{ActError, cgroup::read};
use info::folders;
use rustix::mount::{MountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the kernel wants it.
const MOUNT_POINT: &str = "/sys/fs/resctrl";
/// What every folder of ours begins with.
const OURS: &str = "gleaner-";

/// An open resctrl file system.
#[derive(Debug)]
pub struct Resctrl {
    root: PathBuf,
    info: ResctrlInfo,
    /// Folders that are in the journal: a monitoring group that is made again and again needs one line.
    journalled: BTreeSet<PathBuf>,
}

/// A group of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheGroup {
    /// Its folder, or the root's.
    path: PathBuf,
}

/// A monitoring group of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMonitor {
    path: PathBuf,
}

/// What a monitoring group reports, summed over all L3 caches; `None` where the kernel gives no figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReading {
    /// Bytes of the last level that its lines occupy now.
    pub occupancy_bytes: Option<u64>,
    /// Bytes moved between the last level and memory since boot.
    pub memory_bytes: Option<u64>,
}

/// What became of a thread that was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It is in the group.
    Yes,
    /// It ended before.
    Gone,
}

impl Resctrl {
    /// Where resctrl is mounted, by a mountinfo file (usually `/proc/self/mountinfo`).
    pub fn mount_point(mountinfo: &Path) -> Option<PathBuf> {
        let found = gleaner_sys::mounts(&fs::read(mountinfo).ok()?).find(|mount| mount.kind == b"resctrl");
        found.map(|mount| mount.point)
    }

    /// Whether this kernel, on this processor, has resctrl at all, by `/proc/filesystems`.
    pub fn is_supported(filesystems: &Path) -> bool {
        let text = fs::read_to_string(filesystems).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().last() == Some("resctrl"))
    }

    /// Mounts it at `/sys/fs/resctrl`; journalled.
    ///
    /// # Errors
    /// When the kernel refuses, or the journal cannot be written.
    pub fn mount(journal: &mut Journal) -> Result<PathBuf, ActError> {
        let by_the_kernel =
            |target: &Path| rustix::mount::mount("resctrl", target, "resctrl", MountFlags::empty(), None);
        Self::mount_with(Path::new(MOUNT_POINT), by_the_kernel, journal)
    }

    /// The same at `target` and by `mount`: for tests, on machines whose kernel has no resctrl.
    ///
    /// # Errors
    /// As [`Resctrl::mount`].
    #[doc(hidden)]
    pub fn mount_with(
        target: &Path,
        mount: impl FnOnce(&Path) -> rustix::io::Result<()>,
        journal: &mut Journal,
    ) -> Result<PathBuf, ActError> {
        let _lock = journal.lock_folder();
        journal.before(&UnmountResctrl { path: target.to_owned() })?;
        mount(target).map_err(|errno| ActError::file("mount resctrl at", target)(errno.into()))?;
        Ok(target.to_owned())
    }

    /// For a mount that another run of Gleaner's made and will leave to us: unmounting it becomes this run's task as
    /// well.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn share_mount(root: &Path, journal: &mut Journal) -> Result<(), ActError> {
        let undo = UnmountResctrl { path: root.to_owned() };
        let _lock = journal.lock_folder();
        if journal.others_have(&undo) { journal.before(&undo) } else { Ok(()) }
    }

    /// Opens the one mounted at `root` and reads what it offers.
    ///
    /// # Errors
    /// When `root` is no resctrl, or its `info` is not what its documentation promises.
    pub fn open(root: &Path) -> Result<Self, ActError> {
        if !root.join("info").is_dir() {
            let why = "there is no folder `info` in it".to_owned();
            return Err(ActError::Unavailable { what: format!("resctrl at {}", root.display()), why });
        }
        Ok(Self { root: root.to_owned(), info: info::read_info(root)?, journalled: BTreeSet::new() })
    }

    /// What the host has.
    pub fn info(&self) -> &ResctrlInfo {
        &self.info
    }

    /// The group in which every thread begins.
    pub fn root_group(&self) -> CacheGroup {
        CacheGroup { path: self.root.clone() }
    }

    /// Makes a control group whose threads fill only the ways of `mask`, in every L3. `kind` becomes part of its name.
    ///
    /// # Errors
    /// When the kernel has no class of service left (ENOSPC) or refuses the mask (EINVAL): the message carries what the
    /// kernel says about it. An empty group may be left; it is in the journal.
    pub fn group(&mut self, kind: &str, mask: u64, journal: &mut Journal) -> Result<CacheGroup, ActError> {
        let path = self.root.join(format!("{OURS}{}-{kind}", journal.run_id()));
        self.make(&path, journal)?;
        let group = CacheGroup { path };
        self.set_mask(&group, mask)?;
        Ok(group)
    }

    /// Writes a group's mask for every L3, code and data alike where they are apart.
    fn set_mask(&self, group: &CacheGroup, mask: u64) -> Result<(), ActError> {
        let schemata = self.schemata(mask);
        let file = group.path.join("schemata");
        cgroup::write(&file, &schemata).map_err(|error| self.explain(error))
    }

    /// What is written for `mask`: a line for each resource, with every cache named.
    pub fn schemata(&self, mask: u64) -> String {
        let Some(cat) = &self.info.allocation else { return String::new() };
        let domains: Vec<String> = cat.domains.iter().map(|domain| format!("{domain}={mask:x}")).collect();
        let line = |resource: &String| format!("{resource}:{}", domains.join(";"));
        let lines: Vec<String> = cat.resources.iter().map(line).collect();
        lines.join("\n") + "\n"
    }

    /// Makes a folder, which makes a group.
    fn make(&mut self, path: &Path, journal: &mut Journal) -> Result<(), ActError> {
        if !self.journalled.contains(path) {
            journal.before(&RemoveResctrlGroup { path: path.to_owned() })?;
            self.journalled.insert(path.to_owned());
        }
        cgroup::make(path).map_err(|error| self.explain(error))
    }

    /// Adds what the kernel says of its last refusal.
    fn explain(&self, error: ActError) -> ActError {
        let said = read(&self.root.join("info/last_cmd_status")).unwrap_or_default();
        let said = said.trim();
        match error {
            ActError::File { verb, path, source } if !matches!(said, "" | "ok") => {
                let source = std::io::Error::new(source.kind(), format!("{source}; resctrl says: {said}"));
                ActError::File { verb, path, source }
            }
            error => error,
        }
    }

    /// Puts a thread into a group. Threads of somebody else's groups must not be asked for: see [`Resctrl::foreign`].
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that the thread is gone.
    pub fn join(&self, group: &CacheGroup, tid: i32) -> Result<Joined, ActError> {
        join(&group.path.join("tasks"), tid).map_err(|error| self.explain(error))
    }

    /// The threads that are in groups, or monitoring groups, which are not this run's: they are left alone.
    ///
    /// # Errors
    /// When the groups cannot be listed.
    pub fn foreign(&self, run_id: &str) -> Result<BTreeSet<i32>, ActError> {
        let ours = format!("{OURS}{run_id}-");
        let mut all = BTreeSet::new();
        for name in folders(&self.root)? {
            let foreign = !name.starts_with(&ours) && !matches!(name.as_str(), "info" | "mon_groups" | "mon_data");
            if foreign {
                all.extend(tasks(&self.root.join(&name)));
            }
        }
        let monitors = self.root.join("mon_groups");
        if monitors.is_dir() {
            let names = folders(&monitors)?;
            all.extend(
                names.iter().filter(|name| !name.starts_with(&ours)).flat_map(|name| tasks(&monitors.join(name))),
            );
        }
        Ok(all)
    }

    /// Makes a monitoring group within `group` and puts threads into it.
    ///
    /// # Errors
    /// When the kernel has no monitoring id left (ENOSPC), or there is no monitoring.
    pub fn monitor(
        &mut self,
        group: &CacheGroup,
        name: &str,
        tids: &[i32],
        journal: &mut Journal,
    ) -> Result<CacheMonitor, ActError> {
        let folder = format!("{OURS}{}-{}", journal.run_id(), file_name(name));
        let monitor = CacheMonitor { path: group.path.join("mon_groups").join(folder) };
        self.make(&monitor.path, journal)?;
        self.watch(&monitor, tids)?;
        Ok(monitor)
    }

    /// Puts more threads into a monitoring group.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that a thread is gone.
    pub fn watch(&self, monitor: &CacheMonitor, tids: &[i32]) -> Result<(), ActError> {
        for tid in tids {
            join(&monitor.path.join("tasks"), *tid).map_err(|error| self.explain(error))?;
        }
        Ok(())
    }

    /// What a monitoring group reports.
    pub fn reading(&self, monitor: &CacheMonitor) -> CacheReading {
        let data = monitor.path.join("mon_data");
        let domains = folders(&data).unwrap_or_default();
        let sum = |file: &str| {
            let values = domains.iter().filter(|name| name.starts_with("mon_L3_")).map(|domain| {
                // "Unavailable" and "Error" are answers, too.
                read(&data.join(domain).join(file)).ok()?.parse::<u64>().ok()
            });
            let values: Option<Vec<u64>> = values.collect();
            values.filter(|values| !values.is_empty()).map(|values| values.iter().sum())
        };
        CacheReading { occupancy_bytes: sum("llc_occupancy"), memory_bytes: sum("mbm_total_bytes") }
    }

    /// Removes a monitoring group before the end of the run. Undoing it again is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_monitor(&self, monitor: &CacheMonitor) -> Result<(), ActError> {
        remove_group(&monitor.path)
    }
}

impl CacheGroup {
    /// Its name, for people; the root's is `/`.
    pub fn name(&self, resctrl: &Resctrl) -> String {
        let below = self.path.strip_prefix(&resctrl.root).unwrap_or(&self.path);
        format!("/{}", below.display())
    }
}

fn join(file: &Path, tid: i32) -> Result<Joined, ActError> {
    match cgroup::write(file, &tid.to_string()) {
        Ok(()) => Ok(Joined::Yes),
        Err(ActError::File { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => Ok(Joined::Gone),
        Err(error) => Err(error),
    }
}

/// A VM's name as a folder's: no slash, no newline, and not too long.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    name.chars().take(64).map(plain).collect()
}

/// A group's threads; none when it is gone.
fn tasks(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("tasks")).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Remove a group, of allocation or of monitoring; the kernel moves who is in it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveResctrlGroup {
    /// Its folder.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
}

/// Unmount resctrl, unless somebody has come to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnmountResctrl {
    /// Where it is mounted.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
}

impl Change for RemoveResctrlGroup {
    const NAME: &'static str = "remove-resctrl-group";

    fn check(&self) -> Result<(), ActError> {
        // What is not there needs no undo.
        if !self.path.exists() || cgroup::is_ours(&self.path) {
            return Ok(());
        }
        never_written(&self.path, "its name does not begin with gleaner-")
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        remove_group(&self.path)
    }
}

impl Change for UnmountResctrl {
    const NAME: &'static str = "unmount-resctrl";
    const WHEN: When = When::Last;

    fn check(&self) -> Result<(), ActError> {
        if self.path.ends_with("resctrl") { Ok(()) } else { never_written(&self.path, "it is not called resctrl") }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        unmount(&self.path)
    }
}

/// Removes a group, if it was made and is still there.
fn remove_group(path: &Path) -> Result<(), ActError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        // Never made, or gone with the group it was in, or with the whole file system.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(_) if !path.exists() => Ok(()),
        Err(error) => Err(ActError::file("remove", path)(error)),
    }
}

/// Unmounts resctrl, which would end everybody's allocation: only where nobody else has one.
fn unmount(root: &Path) -> Result<(), ActError> {
    if !root.join("info").is_dir() {
        // Never mounted, or unmounted by somebody else.
        return Ok(());
    }
    if is_used(root) {
        tracing::warn!("{} stays mounted: somebody has groups or masks there", root.display());
        return Ok(());
    }
    match rustix::mount::unmount(root, UnmountFlags::empty()) {
        // Somebody is reading it; they will not miss us.
        Ok(()) | Err(rustix::io::Errno::BUSY | rustix::io::Errno::INVAL) => Ok(()),
        Err(errno) => Err(ActError::file("unmount", root)(errno.into())),
    }
}

/// Whether there is a group, or a mask of the root's that is not the whole. Where that cannot be told: yes.
fn is_used(root: &Path) -> bool {
    let kernels = |name: &String| matches!(name.as_str(), "info" | "mon_groups" | "mon_data");
    let monitors = root.join("mon_groups");
    let groups = folders(root).map_or(true, |names| !names.iter().all(kernels));
    let watched = monitors.is_dir() && folders(&monitors).map_or(true, |names| !names.is_empty());
    groups || watched || info::root_is_restricted(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_its_type() {
        let dir = tempfile::tempdir().unwrap();
        let mountinfo = dir.path().join("mountinfo");
        let text = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                    41 25 0:37 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw,cdp\n";
        fs::write(&mountinfo, text).unwrap();
        assert_eq!(Resctrl::mount_point(&mountinfo), Some(PathBuf::from("/sys/fs/resctrl")));
        fs::write(&mountinfo, "30 25 0:26 / /resctrl rw - cgroup2 resctrl rw\n").unwrap();
        assert_eq!(Resctrl::mount_point(&mountinfo), None);
        let filesystems = dir.path().join("filesystems");
        for (text, supported) in [("nodev\tproc\nnodev\tresctrl\n\text4\n", true), ("nodev\tresctrl2\n", false)] {
            fs::write(&filesystems, text).unwrap();
            assert_eq!(Resctrl::is_supported(&filesystems), supported);
        }
        assert!(!Resctrl::is_supported(&dir.path().join("missing")));
    }

    #[test]
    fn a_vms_name_cannot_lead_elsewhere() {
        assert_eq!(file_name("../../etc/x y\n"), ".._.._etc_x_y_");
        assert_eq!(file_name(&"é".repeat(200)).len(), 64);
    }

    #[test]
    fn a_folder_that_is_no_resctrl_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Resctrl::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no folder `info`"), "{error}");
    }
}
