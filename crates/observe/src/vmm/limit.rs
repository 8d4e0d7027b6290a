//! How much CPU time cgroups let a VM have at most (`cpu.max`, or `cpu.cfs_quota_us` in v1).

use super::cgroup::{CgroupPath, prefixes};
use super::weight::below;
use gleaner_sys::ProcRoot;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

/// The cap of a VM whose vCPU threads are in these cgroups, in CPUs: the tightest of those that hold all of them, or
/// the sum of each thread's own (libvirt's `vcpuN`). What is shared with other VMs counts whole.
pub fn cpu_limit(root: &ProcRoot, vcpus: &[Option<&CgroupPath>]) -> Option<f64> {
    let limits: Vec<BTreeMap<OsString, f64>> = vcpus.iter().map(|cgroup| limits(root, *cgroup)).collect();
    let shared = |path: &OsString| limits.iter().all(|of| of.contains_key(path));
    let tightest = |of: &BTreeMap<OsString, f64>, all: bool| {
        of.iter().filter(|(path, _)| shared(path) == all).map(|(_, cpus)| *cpus).reduce(f64::min)
    };
    let whole = tightest(limits.first()?, true);
    let own: Option<f64> = limits.iter().map(|of| tightest(of, false)).sum();
    whole.into_iter().chain(own).reduce(f64::min)
}

/// The limits on the way down to a cgroup, by path; groups without one are left out.
fn limits(root: &ProcRoot, cgroup: Option<&CgroupPath>) -> BTreeMap<OsString, f64> {
    let paths = cgroup.into_iter().flat_map(|cgroup| prefixes(&cgroup.path).map(|path| (path, cgroup.version)));
    paths
        .filter_map(|(path, version)| Some((group_limit(root, version, &path)?, path)))
        .map(|(cpus, path)| (path, cpus))
        .collect()
}

/// A group's own limit, in CPUs.
fn group_limit(root: &ProcRoot, version: u8, path: &OsStr) -> Option<f64> {
    let tree = root.sys.join("fs/cgroup");
    let below = below(path);
    let read = |file: PathBuf| fs::read_to_string(file).ok();
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    if version == 1 {
        // -1: no limit.
        let of = |mount: &&str| {
            let group = tree.join(mount).join(below);
            let quota = number(&read(group.join("cpu.cfs_quota_us"))?)?;
            Some(quota / number(&read(group.join("cpu.cfs_period_us"))?)?)
        };
        return ["cpu", "cpu,cpuacct"].iter().find_map(of);
    }
    let text = [tree.clone(), tree.join("unified")].iter().find_map(|mount| read(mount.join(below).join("cpu.max")))?;
    let (quota, period) = text.trim().split_once(' ')?;
    // "max": no limit.
    Some(number(quota)? / number(period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(files: &[(&str, &str)], version: u8, paths: &[&str]) -> Option<f64> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let groups: Vec<CgroupPath> = paths.iter().map(|path| CgroupPath { version, path: (*path).into() }).collect();
        cpu_limit(&ProcRoot::below(folder.path()), &groups.iter().map(Some).collect::<Vec<_>>())
    }

    #[test]
    fn the_tightest_group_counts_and_vcpus_of_their_own_add_up() {
        let vm = ["/vms/a/vcpu0", "/vms/a/vcpu1"];
        let (all, whole) = (("vms/cpu.max", "400000 100000\n"), ("vms/a/cpu.max", "150000 100000\n"));
        let (one, other) = (("vms/a/vcpu0/cpu.max", "25000 50000\n"), ("vms/a/vcpu1/cpu.max", "30000 100000\n"));
        for (files, expected) in [
            (&[][..], None),
            (&[("vms/a/cpu.max", "max 100000\n")], None),
            (&[all], Some(4.0)),
            (&[all, whole], Some(1.5)),
            (&[all, whole, one, other], Some(0.8)),
            // One vCPU without a limit of its own: only the VM's counts.
            (&[whole, one], Some(1.5)),
            (&[one], None),
            (&[("vms/a/cpu.max", "rubbish\n")], None),
        ] {
            assert_eq!(limit(files, 2, &vm), expected, "{files:?}");
        }
    }

    #[test]
    fn version_1_has_quota_and_period_in_files_of_their_own() {
        let files = [("cpu,cpuacct/vm/cpu.cfs_quota_us", "200000\n"), ("cpu,cpuacct/vm/cpu.cfs_period_us", "100000\n")];
        assert_eq!(limit(&files, 1, &["/vm"]), Some(2.0));
        assert_eq!(limit(&[("cpu/vm/cpu.cfs_quota_us", "-1\n"), files[1]], 1, &["/vm"]), None);
        assert_eq!(limit(&[], 1, &[]), None);
    }
}
