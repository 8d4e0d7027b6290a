//! Which CPUs there are, and which of them this process may use.
//!
//! The kernel's own answer is the affinity of this process: it leaves out CPUs that are offline and those outside of
//! the cpuset, and nobody can forge it. The files can lie: lxcfs numbers a container's CPUs from 0 in `/proc/stat` and
//! in sysfs. So files are asked only where the call is forbidden, and where they say nothing either, the CPU that this
//! very thread is on is the answer.

use crate::stat::status_field;
use crate::{ProcRoot, StatReader, SysError, affinity_of, is_gone, reread};
use gleaner_model::{CpuSet, VcpuId};
use std::fs::{self, File};
use std::path::PathBuf;

/// The CPUs that this process may use now, by the mask of its first thread: others of its threads may keep to one.
/// `None` where the call is forbidden.
pub fn own_affinity() -> Option<CpuSet> {
    affinity_of(rustix::process::getpid().as_raw_nonzero().get()).ok().filter(|set| !set.is_empty())
}

/// The CPUs that this process may use now; never none.
pub fn usable_cpus(root: &ProcRoot) -> CpuSet {
    let live = root.is_live().then(own_affinity).flatten();
    live.or_else(|| usable_by_files(root)).unwrap_or_else(|| std::iter::once(this_cpu()).collect())
}

fn usable_by_files(root: &ProcRoot) -> Option<CpuSet> {
    let some = |set: &CpuSet| !set.is_empty();
    let online = online_cpus(root).ok().filter(some);
    let status = fs::read(root.proc.join("self/status")).unwrap_or_default();
    let allowed =
        status_field(&status, b"Cpus_allowed_list").and_then(|list| std::str::from_utf8(list).ok()?.parse().ok());
    let Some(allowed) = allowed.filter(some) else { return online };
    // Without a common one they are numbers of two worlds, and the mask is the kernel's.
    let both = online.map(|online| online.intersection(&allowed)).filter(some);
    Some(both.unwrap_or(allowed))
}

fn this_cpu() -> VcpuId {
    // SAFETY: no memory is passed. It says -1 where the call is forbidden.
    VcpuId(u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0))
}

/// The online CPUs, from `/sys/devices/system/cpu/online`, or from `/proc/stat` where that file is missing. A
/// container's file may number them anew: which CPUs may be used is for [`usable_cpus`].
///
/// # Errors
/// When neither can be read, or the list is none.
pub fn online_cpus(root: &ProcRoot) -> Result<CpuSet, SysError> {
    OnlineReader::open(root)?.read()
}

/// The CPUs that this machine can ever have, numbers with gaps among them; `None` where it does not say.
pub fn possible_cpus(root: &ProcRoot) -> Option<CpuSet> {
    let list = fs::read_to_string(root.sys.join("devices/system/cpu/possible")).ok()?;
    list.parse().ok().filter(|set: &CpuSet| !set.is_empty())
}

/// Reads the list of online CPUs again and again through one open file.
#[derive(Debug)]
pub struct OnlineReader {
    path: PathBuf,
    source: OnlineSource,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum OnlineSource {
    List(File),
    Stat(StatReader),
}

impl OnlineReader {
    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be opened; where it is missing, when `/proc/stat` cannot.
    pub fn open(root: &ProcRoot) -> Result<Self, SysError> {
        let path = root.sys.join("devices/system/cpu/online");
        let source = match File::open(&path) {
            Ok(file) => OnlineSource::List(file),
            Err(error) if is_gone(&error) => OnlineSource::Stat(StatReader::open(root)?),
            Err(error) => return Err(SysError::read(&path, error)),
        };
        Ok(Self { path, source, buffer: Vec::new() })
    }

    /// What it says now.
    pub fn read(&mut self) -> Result<CpuSet, SysError> {
        match &mut self.source {
            OnlineSource::Stat(stat) => Ok(stat.read()?.cpus.into_iter().map(|(id, _)| id).collect()),
            OnlineSource::List(file) => {
                let list = reread(file, &mut self.buffer).map_err(|error| SysError::read(&self.path, error))?;
                let list = String::from_utf8_lossy(list);
                list.parse().map_err(|error| SysError::parse(&self.path, 1, format!("{error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(online: Option<&str>, stat: Option<&str>, allowed: Option<&str>) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        let status = allowed.map(|list| format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\n"));
        for (path, text) in [
            (root.sys.join("devices/system/cpu/online"), online),
            (root.proc.join("stat"), stat),
            (root.proc.join("self/status"), status.as_deref()),
        ] {
            if let Some(text) = text {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        (folder, root)
    }

    #[test]
    fn by_files_the_mask_counts_and_what_is_online_narrows_it() {
        let stat = "cpu  1 1 1 1 1\ncpu4 1 1 1 1 1\n";
        for (online, stat, allowed, usable) in [
            (Some("0-7"), None, Some("2-3"), "2-3"),
            // One is offline.
            (Some("0-2,4-7"), None, Some("2-3"), "2"),
            // lxcfs: one CPU, numbered from 0.
            (Some("0"), None, Some("5"), "5"),
            // Garbage, nothing, a file that ends in the middle.
            (Some("many"), None, Some("5"), "5"),
            (Some(""), None, Some("5"), "5"),
            (None, None, Some("1500,4000-4001"), "1500,4000-4001"),
            (None, Some(stat), Some("0-7"), "4"),
            (None, Some(stat), None, "4"),
            (Some("0,8,16-17"), None, None, "0,8,16-17"),
            (Some("0-1"), None, Some(""), "0-1"),
        ] {
            let (_folder, root) = tree(online, stat, allowed);
            assert_eq!(usable_cpus(&root).to_string(), usable, "{online:?} {stat:?} {allowed:?}");
        }
    }

    #[test]
    fn there_is_always_one() {
        for (online, stat) in [(None, None), (Some("x"), Some("x")), (Some(""), None), (None, Some("cpu0 1\n"))] {
            let (_folder, root) = tree(online, stat, None);
            assert_eq!(usable_cpus(&root).len(), 1, "{online:?} {stat:?}");
        }
        assert_eq!(Some(usable_cpus(&ProcRoot::default())), own_affinity());
    }

    #[test]
    fn possible_cpus_may_have_gaps() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        assert_eq!(possible_cpus(&root), None);
        fs::create_dir_all(root.sys.join("devices/system/cpu")).unwrap();
        fs::write(root.sys.join("devices/system/cpu/possible"), "0-3,8-11\n").unwrap();
        assert_eq!(possible_cpus(&root).unwrap().iter().next_back(), Some(VcpuId(11)));
    }
}
