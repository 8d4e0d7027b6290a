//! What resctrl's `info` folder says of the host.

use crate::{ActError, cgroup::read};
use std::fs;
use std::path::Path;

/// What the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlInfo {
    /// Allocation of the last level (CAT); `None`: the processor has none, or it is disabled.
    pub allocation: Option<CacheAllocation>,
    /// Monitoring of the last level; `None`: none.
    pub monitoring: Option<CacheMonitoring>,
}

/// Allocation of the L3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheAllocation {
    /// `L3`, or `L3CODE` and `L3DATA` where they are apart (CDP).
    pub resources: Vec<String>,
    /// A bit for every way (or share of ways).
    pub ways_mask: u64,
    /// The fewest bits in a mask; 0: a group may be kept from filling the cache at all (AMD).
    pub bits_min: u32,
    /// Whether a mask may have gaps.
    pub sparse: bool,
    /// Ways that devices fill as well.
    pub shared_with_devices: u64,
    /// Ways that somebody's group has for itself, or has locked, in any L3.
    pub taken: u64,
    /// Classes of service, the root's included.
    pub classes: usize,
    /// Control groups there are, the root included.
    pub groups: usize,
    /// Ids of the L3 caches.
    pub domains: Vec<u64>,
}

impl CacheAllocation {
    /// How many groups can still be made, as far as `info` tells.
    pub fn classes_free(&self) -> usize {
        self.classes.saturating_sub(self.groups)
    }

    /// Whether code and data are allocated apart.
    pub fn cdp(&self) -> bool {
        self.resources.len() > 1
    }
}

/// Monitoring of the L3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMonitoring {
    /// Ids there are for groups.
    pub ids: usize,
    /// `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`.
    pub features: Vec<String>,
}

/// Reads it.
pub(super) fn read_info(root: &Path) -> Result<ResctrlInfo, ActError> {
    Ok(ResctrlInfo { allocation: read_allocation(root)?, monitoring: read_monitoring(root)? })
}

fn read_allocation(root: &Path) -> Result<Option<CacheAllocation>, ActError> {
    let has = |name: &&str| root.join("info").join(name).join("cbm_mask").exists();
    let names: Vec<&str> = ["L3", "L3CODE", "L3DATA"].into_iter().filter(has).collect();
    let Some(first) = names.first() else { return Ok(None) };
    let folder = root.join("info").join(first);
    let number = |file: &str, radix: u32| {
        let path = folder.join(file);
        let text = read(&path)?;
        u64::from_str_radix(&text, radix).map_err(|error| bad(&path, &format!("{text:?}: {error}")))
    };
    let ways_mask = number("cbm_mask", 16)?;
    let schemata = root.join("schemata");
    let domains = domains_of(&read(&schemata)?, first);
    if ways_mask == 0 || domains.is_empty() {
        return Err(bad(&schemata, "there is no L3 with ways"));
    }
    // Kernels before 6.7 have no such file; AMD's processors, which alone take an empty mask, have always taken gaps.
    let bits_min = u32::try_from(number("min_cbm_bits", 10)?).unwrap_or(u32::MAX);
    let sparse = read(&folder.join("sparse_masks")).map_or(bits_min == 0, |text| text == "1");
    Ok(Some(CacheAllocation {
        ways_mask,
        bits_min,
        sparse,
        shared_with_devices: number("shareable_bits", 16).unwrap_or(0) & ways_mask,
        taken: taken(&read(&folder.join("bit_usage")).unwrap_or_default()) & ways_mask,
        classes: usize::try_from(number("num_closids", 10)?).unwrap_or(usize::MAX),
        groups: 1 + folders(root)?.iter().filter(|name| !is_kernels(name)).count(),
        domains,
        resources: names.into_iter().map(str::to_owned).collect(),
    }))
}

fn is_kernels(name: &str) -> bool {
    matches!(name, "info" | "mon_groups" | "mon_data")
}

fn read_monitoring(root: &Path) -> Result<Option<CacheMonitoring>, ActError> {
    let folder = root.join("info/L3_MON");
    let path = folder.join("num_rmids");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let ids = text.trim().parse().map_err(|error| bad(&path, &format!("{text:?}: {error}")))?;
    let features = read(&folder.join("mon_features"))?;
    Ok(Some(CacheMonitoring { ids, features: features.lines().map(str::to_owned).collect() }))
}

fn bad(path: &Path, why: &str) -> ActError {
    ActError::Unavailable { what: path.display().to_string(), why: why.to_owned() }
}

/// The caches that a schemata file names for `resource`: `    L3:0=7ff;1=7ff`.
fn domains_of(schemata: &str, resource: &str) -> Vec<u64> {
    masks_of(schemata, resource).into_iter().map(|(domain, _)| domain).collect()
}

fn masks_of(schemata: &str, resource: &str) -> Vec<(u64, u64)> {
    let line = schemata.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == resource);
    let entries = line.map(|(_, entries)| entries).unwrap_or_default().split(';');
    let entry = |entry: &str| {
        let (domain, mask) = entry.split_once('=')?;
        Some((domain.trim().parse().ok()?, u64::from_str_radix(mask.trim(), 16).ok()?))
    };
    entries.filter_map(entry).collect()
}

/// The ways that `bit_usage` (`0=SSSSXX;1=...`, the highest way first) marks as exclusive (E) or locked (P) in any
/// cache.
fn taken(bit_usage: &str) -> u64 {
    let mut mask = 0;
    for ways in bit_usage.split(';').filter_map(|entry| entry.split_once('=')).map(|(_, ways)| ways.trim()) {
        for (bit, _) in ways.chars().rev().enumerate().take(64).filter(|(_, letter)| matches!(letter, 'E' | 'P')) {
            mask |= 1 << bit;
        }
    }
    mask
}

/// Whether the root group has been given less than the whole cache. Where that cannot be told: yes.
pub(super) fn root_is_restricted(root: &Path) -> bool {
    match read_allocation(root) {
        Ok(None) => false,
        Err(_) => true,
        Ok(Some(found)) => {
            let schemata = read(&root.join("schemata")).unwrap_or_default();
            let whole = |name: &String| masks_of(&schemata, name).iter().all(|(_, mask)| *mask == found.ways_mask);
            !found.resources.iter().all(whole)
        }
    }
}

pub(super) fn folders(path: &Path) -> Result<Vec<String>, ActError> {
    let entries = fs::read_dir(path).map_err(ActError::file("read", path))?;
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.flatten().filter(is_folder).map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const INTEL: [(&str, &str); 8] = [
        ("info/L3/cbm_mask", "7ff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/shareable_bits", "600\n"),
        ("info/L3/bit_usage", "0=HHSSSSSSSEE;1=HHPSSSSSSSS\n"),
        ("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
        ("info/L3_MON/num_rmids", "176\n"),
        ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\n"),
    ];

    #[test]
    fn an_intel_server_before_6_7() {
        let dir = tree(&INTEL);
        fs::create_dir(dir.path().join("theirs")).unwrap();
        let info = read_info(dir.path()).unwrap();
        let found = info.allocation.unwrap();
        assert_eq!((found.ways_mask, found.bits_min, found.sparse), (0x7ff, 1, false));
        assert_eq!((found.shared_with_devices, found.taken), (0x600, 0x103));
        assert_eq!((found.classes, found.groups, found.classes_free()), (16, 2, 14));
        assert_eq!((found.domains.as_slice(), found.cdp()), (&[0, 1][..], false));
        assert_eq!(info.monitoring.unwrap().features, ["llc_occupancy", "mbm_total_bytes"]);
    }

    #[test]
    fn amd_takes_empty_masks_and_gaps_and_may_number_caches_as_it_likes() {
        let mut files = INTEL.to_vec();
        files[1] = ("info/L3/min_cbm_bits", "0\n");
        files[5] = ("schemata", "    L3:0=ffff;8=ffff;12=ffff\n");
        files.truncate(6);
        let info = read_info(tree(&files).path()).unwrap();
        let found = info.allocation.unwrap();
        assert_eq!((found.bits_min, found.sparse, found.domains), (0, true, vec![0, 8, 12]));
        assert_eq!(info.monitoring, None);
    }

    #[test]
    fn code_and_data_apart_are_two_resources() {
        let files: Vec<(String, &str)> = INTEL[..5]
            .iter()
            .flat_map(|(path, text)| ["L3CODE", "L3DATA"].map(|name| (path.replace("L3", name), *text)))
            .collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.push(("schemata", "L3CODE:0=7ff\nL3DATA:0=7ff\n"));
        let found = read_info(tree(&files).path()).unwrap().allocation.unwrap();
        assert!(found.cdp());
        assert_eq!(found.resources, ["L3CODE", "L3DATA"]);
    }

    #[test]
    fn what_is_missing_is_none_and_what_is_garbage_is_named() {
        let only_mb = tree(&[("info/MB/num_closids", "8\n"), ("schemata", "MB:0=100\n")]);
        assert_eq!(read_info(only_mb.path()).unwrap(), ResctrlInfo::default());
        for (at, text, word) in [
            (0, "zz\n", "cbm_mask"),
            (1, "\n", "min_cbm_bits"),
            (2, "-1\n", "num_closids"),
            (5, "L2:0=ff\n", "no L3"),
            (6, "x", "num_rmids"),
        ] {
            let mut files = INTEL;
            files[at].1 = text;
            let error = read_info(tree(&files).path()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_root_with_less_than_all_is_somebodys_doing() {
        assert!(!root_is_restricted(tree(&INTEL).path()));
        let mut files = INTEL;
        files[5] = ("schemata", "    L3:0=7ff;1=00f\n");
        assert!(root_is_restricted(tree(&files).path()));
        assert!(!root_is_restricted(tree(&[("schemata", "MB:0=100\n")]).path()));
    }
}
