//! The folders of cgroups, and who is in them.

use super::is_cgroup;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Slices in slices.
pub(super) const DEEPEST: usize = 5;
/// Folders looked at for one pattern.
const MOST_FOLDERS: usize = 10_000;

/// All folders below `top`, no deeper and no more than is reasonable.
pub(super) fn everything_below(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut level = vec![top.to_owned()];
    for _ in 0..=DEEPEST {
        level = level.iter().flat_map(|folder| folders(folder)).take(MOST_FOLDERS - found.len()).collect();
        found.extend(level.iter().cloned());
    }
    found
}

/// The first cgroup of this name in a folder, or so deep in it.
pub(super) fn named(folder: &Path, name: &OsStr, depth: usize) -> Option<PathBuf> {
    let below = folders(folder);
    let here = below.iter().find(|path| path.file_name() == Some(name) && is_cgroup(path));
    let deeper = || below.iter().find_map(|path| named(path, name, depth - 1));
    here.cloned().or_else(|| if depth > 1 { deeper() } else { None })
}

/// The processes of a cgroup and of those below it.
pub(crate) fn members_below(folder: &Path) -> BTreeSet<i32> {
    let mut pids = BTreeSet::new();
    members(folder, DEEPEST, &mut pids);
    pids
}

fn members(folder: &Path, depth: usize, into: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    into.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    if depth > 1 {
        for path in folders(folder) {
            members(&path, depth - 1, into);
        }
    }
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    // Its own name and `.`: no folder in it has it for a parent. Some file systems do not count.
    if fs::metadata(folder).is_ok_and(|of| of.nlink() == 2) {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}
