//! What the scheduler entitles vCPUs to where their VMs are in cgroups with weights of their own (`cpu.weight`, or
//! `cpu.shares` in v1).
//!
//! A group competes on each CPU with the part of its weight that its load there is of its load everywhere
//! (kernel/sched/fair.c, `calc_group_shares`). So a VM's weight is divided among its busy vCPUs: of two VMs with equal
//! weights, one of four busy vCPUs gets a quarter as much on each CPU as one with a single one.

use super::cgroup::{CgroupPath, prefixes};
use gleaner_sys::ProcRoot;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Weight of a thread with nice 0, and of a group with `cpu.weight` 100 or `cpu.shares` 1024.
const ORDINARY: f64 = 1024.0;

/// A vCPU thread over some time.
#[derive(Clone, Debug)]
pub struct VcpuLoad {
    /// Where it is.
    pub cgroup: Option<CgroupPath>,
    /// Its own weight, by its nice value: 1024 at 0.
    pub weight: f64,
    /// Share of the time in which it ran or wanted to, 0 to 1.
    pub activity: f64,
}

/// What each vCPU competes with on its CPU, relative to the others. Groups that hold all of them make no difference
/// between them and do not count; nor do those without a weight, where the `cpu` controller is off.
pub fn entitlements(root: &ProcRoot, vcpus: &[VcpuLoad]) -> Vec<f64> {
    let mut weights: BTreeMap<OsString, Option<f64>> = BTreeMap::new();
    let mut levels: Vec<Vec<(OsString, f64)>> = Vec::new();
    for vcpu in vcpus {
        let mut groups = Vec::new();
        for (path, version) in
            vcpu.cgroup.iter().flat_map(|cgroup| prefixes(&cgroup.path).map(|path| (path, cgroup.version)))
        {
            let weight = *weights.entry(path.clone()).or_insert_with(|| group_weight(root, version, &path));
            groups.extend(weight.map(|weight| (path, weight)));
        }
        levels.push(groups);
    }
    let common = (0..).take_while(|&level| {
        let first = levels.first().and_then(|groups| groups.get(level));
        first.is_some() && levels.iter().all(|groups| groups.get(level) == first)
    });
    let common = common.count();
    let mut found: Vec<f64> = vcpus.iter().map(|vcpu| vcpu.weight).collect();
    let deepest = levels.iter().map(Vec::len).max().unwrap_or(0);
    // From the inside out: what counts in a group is what its members came to in theirs.
    for level in (common..deepest).rev() {
        let inside = found.clone();
        for (me, groups) in levels.iter().enumerate() {
            let Some((path, weight)) = groups.get(level) else { continue };
            let others =
                (0..vcpus.len()).filter(|&it| it != me && levels[it].get(level).is_some_and(|(p, _)| p == path));
            let load: f64 = others.map(|it| inside[it] * vcpus[it].activity.clamp(0.0, 1.0)).sum();
            found[me] = weight * inside[me] / (inside[me] + load).max(f64::MIN_POSITIVE);
        }
    }
    found
}

/// A group's weight, in the units of threads' weights.
fn group_weight(root: &ProcRoot, version: u8, path: &OsStr) -> Option<f64> {
    let tree = root.sys.join("fs/cgroup");
    let below = below(path);
    let read = |file: std::path::PathBuf| fs::read_to_string(file).ok()?.trim().parse::<f64>().ok();
    if version == 1 {
        let mounts = ["cpu", "cpu,cpuacct"];
        return mounts.iter().find_map(|mount| read(tree.join(mount).join(below).join("cpu.shares")));
    }
    // Beside v1 controllers, v2 is mounted in a folder of its own.
    let mounts = [tree.clone(), tree.join("unified")];
    let weight = mounts.iter().find_map(|mount| read(mount.join(below).join("cpu.weight")));
    weight.map(|weight| weight * ORDINARY / 100.0)
}

/// A group's path without the slashes that would make it one from the root.
pub(super) fn below(path: &OsStr) -> &OsStr {
    let bytes = path.as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    OsStr::from_bytes(&bytes[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = ProcRoot::below(folder.path());
        (folder, root)
    }

    fn vcpu(version: u8, path: &str, weight: f64, activity: f64) -> VcpuLoad {
        VcpuLoad { cgroup: Some(CgroupPath { version, path: path.into() }), weight, activity }
    }

    fn close(found: &[f64], expected: &[f64]) {
        let near = found.iter().zip(expected).all(|(found, expected)| (found / expected - 1.0).abs() < 1e-9);
        assert!(found.len() == expected.len() && near, "{found:?} against {expected:?}");
    }

    #[test]
    fn a_vms_weight_is_divided_among_its_busy_vcpus() {
        let (_folder, root) = tree(&[
            ("machine.slice/cpu.weight", "300\n"),
            ("machine.slice/a.scope/cpu.weight", "100\n"),
            ("machine.slice/b.scope/cpu.weight", "200\n"),
        ]);
        // a: one vCPU, 1024. b: 2048 for two busy ones and one that is busy half of the time: 2048 / 2.5, and 2048 / 3
        // for the latter.
        let busy = |path: &str| vcpu(2, path, 1024.0, 1.0);
        let b = "/machine.slice/b.scope/libvirt/vcpu";
        let vcpus = [
            busy("/machine.slice/a.scope/libvirt/vcpu0"),
            busy(&format!("{b}0")),
            busy(&format!("{b}1")),
            vcpu(2, &format!("{b}2"), 1024.0, 0.5),
        ];
        close(&entitlements(&root, &vcpus), &[1024.0, 2048.0 / 2.5, 2048.0 / 2.5, 2048.0 / 3.0]);
    }

    #[test]
    fn in_one_group_nice_values_count() {
        let (_folder, root) = tree(&[("vms/cpu.weight", "700\n")]);
        close(&entitlements(&root, &[vcpu(2, "/vms", 1024.0, 1.0), vcpu(2, "/vms", 335.0, 1.0)]), &[1024.0, 335.0]);
        close(&entitlements(&root, &[VcpuLoad { cgroup: None, weight: 512.0, activity: 1.0 }]), &[512.0]);
        assert!(entitlements(&root, &[]).is_empty());
    }

    #[test]
    fn a_group_beside_a_bare_thread() {
        let (_folder, root) = tree(&[("cpu,cpuacct/vm/cpu.shares", "2048\n")]);
        // No weight for /elsewhere, so its thread competes by itself.
        let vcpus = [vcpu(1, "/vm", 335.0, 1.0), vcpu(1, "/elsewhere", 1024.0, 1.0)];
        close(&entitlements(&root, &vcpus), &[2048.0, 1024.0]);
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(prefixes(OsStr::new("/a/b")).collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert!(prefixes(OsStr::new("/")).next().is_none());
        assert!(prefixes(OsStr::new("")).next().is_none());
    }
}
