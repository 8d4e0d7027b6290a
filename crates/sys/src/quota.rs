//! What cgroups allow: CPU time (`cpu.max`, `cpu.cfs_quota_us`), processes (`pids.max`) and memory (`memory.max`,
//! `memory.limit_in_bytes`). A limit counts for the
//! group that has it and for all below; limits above what is mounted here cannot be seen.

use crate::stat::{self, status_field, words};
use crate::{ProcRoot, numbered};
use std::fs;
use std::path::{Path, PathBuf};

/// A limit of CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// The file that sets it.
    pub file: PathBuf,
    /// CPUs' worth of time.
    pub cpus: f64,
}

/// The tightest limit of CPU time of the group at `folder` or of one above it, up to the mount's folder `top`.
pub fn cpu_quota(top: &Path, folder: &Path) -> Option<Quota> {
    groups(top, folder).filter_map(own_quota).min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

/// How many processes and threads the group at `folder` may still have, by it and those above, and by which file.
pub fn processes_left(top: &Path, folder: &Path) -> Option<(u64, PathBuf)> {
    let left = |group: &Path| {
        let most: u64 = number(&group.join("pids.max"))?;
        let now: u64 = number(&group.join("pids.current"))?;
        Some((most.saturating_sub(now), group.join("pids.max")))
    };
    groups(top, folder).filter_map(left).min()
}

/// The bytes of memory that the group at `folder` may have, by it and those above, and by which file.
pub fn memory_limit(top: &Path, folder: &Path) -> Option<(u64, PathBuf)> {
    let files = ["memory.max", "memory.limit_in_bytes"];
    let limits = groups(top, folder).flat_map(|group| files.map(|file| group.join(file)));
    limits.filter_map(|file| Some((number(&file)?, file))).min()
}

/// How many processes and threads a user has here, as far as `/proc` shows them.
pub fn tasks_of_user(root: &ProcRoot, uid: u32) -> u64 {
    let tasks = |pid: i32| {
        let status = fs::read(root.proc.join(format!("{pid}/status"))).ok()?;
        let first = |key: &[u8]| words(status_field(&status, key)?).next().and_then(stat::number);
        (first(b"Uid")? == u64::from(uid)).then(|| first(b"Threads")).flatten()
    };
    numbered(&root.proc).filter_map(tasks).sum()
}

fn groups<'a>(top: &'a Path, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
    folder.ancestors().take_while(move |group| group.starts_with(top))
}

fn own_quota(group: &Path) -> Option<Quota> {
    let file = group.join("cpu.max");
    if let Ok(text) = fs::read_to_string(&file) {
        let (quota, period) = text.trim().split_once(' ')?;
        return ratio(file, quota.parse().ok()?, period.parse().ok()?);
    }
    let file = group.join("cpu.cfs_quota_us");
    // -1 is no limit.
    let (quota, period) = (number(&file)?, number(&group.join("cpu.cfs_period_us"))?);
    ratio(file, quota, period)
}

fn ratio(file: PathBuf, quota_us: u64, period_us: u64) -> Option<Quota> {
    (period_us > 0).then(|| Quota { file, cpus: quota_us as f64 / period_us as f64 })
}

/// `None` for `max`, `-1` and what is not there.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("cg");
        fs::create_dir_all(top.join("a/b")).unwrap();
        for (path, text) in files {
            fs::write(folder.path().join(path), text).unwrap();
        }
        (folder, top)
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        for (files, cpus, by) in [
            (&[("cg/cpu.max", "max 100000\n"), ("cg/a/cpu.max", "max 100000\n")][..], None, ""),
            (&[("cg/a/cpu.max", "50000 100000\n"), ("cg/a/b/cpu.max", "200000 100000\n")], Some(0.5), "cg/a/cpu.max"),
            (&[("cg/cpu.max", "150000 100000\n")], Some(1.5), "cg/cpu.max"),
            (&[("cg/a/cpu.cfs_quota_us", "-1\n"), ("cg/a/cpu.cfs_period_us", "100000\n")], None, ""),
            (
                &[("cg/a/cpu.cfs_quota_us", "50000\n"), ("cg/a/cpu.cfs_period_us", "100000\n")],
                Some(0.5),
                "cg/a/cpu.cfs_quota_us",
            ),
            // Above the mount is not ours; garbage is no limit.
            (&[("cpu.max", "1000 100000\n"), ("cg/cpu.max", "x\n")], None, ""),
            (&[("cg/cpu.max", "1000 0\n")], None, ""),
        ] {
            let (folder, top) = tree(files);
            let found = cpu_quota(&top, &top.join("a/b"));
            let wanted = cpus.map(|cpus| Quota { file: folder.path().join(by), cpus });
            assert_eq!(found, wanted, "{files:?}");
        }
    }

    #[test]
    fn a_users_tasks_are_the_threads_of_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        for (pid, uid, threads) in [(1, 0, 1), (20, 1000, 3), (21, 1000, 1), (22, 1001, 9)] {
            let path = root.proc.join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            let status = format!("Name:\tx\nUid:\t{uid}\t0\t0\t0\nThreads:\t{threads}\n");
            fs::write(path.join("status"), status).unwrap();
        }
        assert_eq!((tasks_of_user(&root, 1000), tasks_of_user(&root, 5)), (4, 0));
    }

    #[test]
    fn of_limits_of_processes_the_nearest_to_being_reached_counts() {
        let (folder, top) = tree(&[
            ("cg/a/pids.max", "100\n"),
            ("cg/a/pids.current", "97\n"),
            ("cg/a/b/pids.max", "max\n"),
            ("cg/a/b/pids.current", "2\n"),
        ]);
        assert_eq!(processes_left(&top, &top.join("a/b")), Some((3, folder.path().join("cg/a/pids.max"))));
        assert_eq!(processes_left(&top, &top), None);
    }

    #[test]
    fn the_least_memory_on_the_way_up_counts() {
        let (folder, top) = tree(&[
            ("memory.max", "1\n"),
            ("cg/memory.max", "max\n"),
            ("cg/a/memory.max", "1000\n"),
            ("cg/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(memory_limit(&top, &top.join("a/b")), Some((1000, folder.path().join("cg/a/memory.max"))));
        assert_eq!(memory_limit(&top, &top), None);
    }
}
