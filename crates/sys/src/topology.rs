//! Which CPUs share a core, a last-level cache and a memory node (`/sys/devices/system/cpu/cpuN`).
//!
//! In a VM it is what the hypervisor says: many say nothing, and then each vCPU is a socket or a core of its own.

use crate::ProcRoot;
use gleaner_model::{CpuSet, Topology, VcpuId, VcpuPlace};
use std::fs;
use std::path::Path;

/// Caches of one CPU that are looked at.
const CACHES_MAX: u32 = 16;

/// Where each of these CPUs is. What a file does not tell is taken to be shared by all, a core to be one CPU's.
pub fn topology(root: &ProcRoot, cpus: &CpuSet) -> Topology {
    let folder = |cpu: VcpuId| root.sys.join(format!("devices/system/cpu/cpu{}", cpu.0));
    cpus.iter().map(|cpu| (cpu, place(&folder(cpu), cpu))).collect()
}

fn place(folder: &Path, cpu: VcpuId) -> VcpuPlace {
    let lowest = |name: &str| Some(list(&folder.join("topology").join(name))?.iter().next()?.0);
    VcpuPlace {
        node: node(folder).unwrap_or(0),
        llc: last_level(folder)
            .or_else(|| lowest("package_cpus_list"))
            .or_else(|| lowest("core_siblings_list"))
            .unwrap_or(0),
        core: lowest("core_cpus_list").or_else(|| lowest("thread_siblings_list")).unwrap_or(cpu.0),
    }
}

fn list(path: &Path) -> Option<CpuSet> {
    fs::read_to_string(path).ok()?.parse().ok()
}

/// The lowest CPU of those that share the cache of the highest level.
fn last_level(folder: &Path) -> Option<u32> {
    let cache = |index: u32| {
        let folder = folder.join(format!("cache/index{index}"));
        let level: u32 = fs::read_to_string(folder.join("level")).ok()?.trim().parse().ok()?;
        Some((level, list(&folder.join("shared_cpu_list"))?.iter().next()?.0))
    };
    (0..CACHES_MAX).map_while(cache).max_by_key(|(level, _)| *level).map(|(_, lowest)| lowest)
}

/// The kernel puts a link `nodeN` there.
fn node(folder: &Path) -> Option<u32> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names below the CPU's folder, and what is in the files; a name that ends with `/` is a folder.
    fn tree(cpus: &[(u32, &[(&str, &str)])]) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(dir.path());
        for (cpu, files) in cpus {
            let folder = root.sys.join(format!("devices/system/cpu/cpu{cpu}"));
            for (name, text) in *files {
                let path = folder.join(name);
                if name.ends_with('/') {
                    fs::create_dir_all(path).unwrap();
                } else {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
            }
        }
        (dir, root)
    }

    fn of(files: &[(&str, &str)]) -> (u32, u32, u32) {
        let (_dir, root) = tree(&[(9, files)]);
        let VcpuPlace { node, llc, core } = topology(&root, &"9".parse().unwrap()).place(VcpuId(9));
        (node, llc, core)
    }

    #[test]
    fn a_place_is_read_from_whichever_files_there_are() {
        let full = [
            ("topology/core_cpus_list", "1,9\n"),
            ("topology/package_cpus_list", "0-15\n"),
            ("cache/index0/level", "1\n"),
            ("cache/index0/shared_cpu_list", "1,9\n"),
            ("cache/index1/level", "3\n"),
            ("cache/index1/shared_cpu_list", "8-11\n"),
            ("cache/index2/level", "2\n"),
            ("cache/index2/shared_cpu_list", "9\n"),
            ("node1/", ""),
        ];
        assert_eq!(of(&full), (1, 8, 1));
        let old_names = [("topology/thread_siblings_list", "8-9\n"), ("topology/core_siblings_list", "4-11\n")];
        assert_eq!(of(&old_names), (0, 4, 8));
        // Nothing, and garbage.
        assert_eq!(of(&[]), (0, 0, 9));
        assert_eq!(of(&[("topology/core_cpus_list", "many"), ("cache/index0/level", "3"), ("nodes/", "")]), (0, 0, 9));
    }

    #[test]
    fn what_is_not_asked_for_is_not_known() {
        let (_dir, root) = tree(&[(1, &[("node1/", "")])]);
        let found = topology(&root, &CpuSet::new());
        assert_eq!(found.place(VcpuId(1)), VcpuPlace { node: 0, llc: 0, core: 1 });
    }

    #[test]
    fn each_cpu_of_this_machine_is_in_a_core_with_itself() {
        let root = ProcRoot::default();
        let cpus = crate::usable_cpus(&root);
        let found = topology(&root, &cpus);
        assert!(cpus.iter().all(|cpu| found.place(cpu).core <= cpu.0), "{found:?}");
    }
}
