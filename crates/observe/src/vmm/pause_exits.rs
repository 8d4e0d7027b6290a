//! How often a vCPU left its guest because it executed too many PAUSEs in a row: spinning, as the processor sees it.
//!
//! KVM keeps no such statistic on x86, neither in debugfs nor behind `KVM_GET_STATS_FD` (`directed_yield_attempted`,
//! which sounds like it, counts a hypercall of the guest's). Its tracepoint `kvm_exit` tells, and perf counts a
//! tracepoint for a single thread, those hits alone that pass a filter. The kernel evaluates the filter at *every* exit
//! of the thread, so this costs something on a host with many; whoever wants it asks for it.

use crate::host::host_facts;
use gleaner_sys::ProcRoot;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// `_IOW('$', 6, char *)`, of linux/perf_event.h.
const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
/// By the module: how `kvm_exit` names such an exit. `isa` tells Intel's numbers from AMD's.
const FILTERS: [(&str, &CStr); 2] =
    [("kvm_intel", c"isa == 1 && exit_reason == 40"), ("kvm_amd", c"isa == 2 && exit_reason == 119")];

/// Why pause exits cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum PauseExitRefusal {
    /// The processor makes no such exits, or it is not known whether it does: then none seen would say nothing.
    #[error("{0}")]
    NoneMade(String),
    /// The tracepoint is not to be found.
    #[error("no tracepoint kvm/kvm_exit below {}: KVM is not loaded, or tracefs is not mounted there or closed to this user (root may look)", .0.display())]
    NoTracepoint(PathBuf),
    /// The kernel refuses to count it.
    #[error("kvm/kvm_exit cannot be counted: {0}")]
    NotCounted(#[from] io::Error),
}

/// The pause exits of a set of threads.
#[derive(Debug)]
pub struct PauseExitCounters {
    tracepoint: u64,
    filter: CString,
    threads: BTreeMap<i32, (Counter, u64)>,
}

impl PauseExitCounters {
    /// None yet; tries the tracepoint on the calling thread.
    pub fn new(root: &ProcRoot) -> Result<Self, PauseExitRefusal> {
        let (tracepoint, filter) = found(root)?;
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        open(tracepoint, filter, own)?;
        Ok(Self { tracepoint, filter: filter.to_owned(), threads: BTreeMap::new() })
    }

    /// Counts exactly these threads from now on; those that are counted already go on. One that is refused is not
    /// counted.
    pub fn follow(&mut self, tids: &[i32]) {
        self.threads.retain(|tid, _| tids.contains(tid));
        for tid in tids {
            if !self.threads.contains_key(tid)
                && let Ok(counter) = open(self.tracepoint, &self.filter, *tid)
            {
                self.threads.insert(*tid, (counter, 0));
            }
        }
    }

    /// Its pause exits since the last reading; `None` for one that is not counted.
    pub fn read(&mut self, tid: i32) -> Option<u64> {
        let (counter, last) = self.threads.get_mut(&tid)?;
        let now = counter.read().ok()?;
        Some(now.saturating_sub(std::mem::replace(last, now)))
    }
}

/// The tracepoint's number, and the filter for this host's processor.
fn found(root: &ProcRoot) -> Result<(u64, &'static CStr), PauseExitRefusal> {
    let fact = host_facts(root).pause_exits;
    let Some(pauses) = fact.value else { return Err(PauseExitRefusal::NoneMade(fact.from)) };
    if !pauses.on {
        return Err(PauseExitRefusal::NoneMade(format!("pause-loop exiting is off ({})", fact.from)));
    }
    let filter = FILTERS.iter().find(|(module, _)| fact.from.contains(module)).map(|(_, filter)| *filter);
    let filter = filter.ok_or_else(|| PauseExitRefusal::NoneMade(fact.from.clone()))?;
    let places = ["kernel/tracing", "kernel/debug/tracing"].map(|folder| root.sys.join(folder));
    let id = |folder: &PathBuf| fs::read_to_string(folder.join("events/kvm/kvm_exit/id")).ok()?.trim().parse().ok();
    let id = places.iter().find_map(id).ok_or_else(|| PauseExitRefusal::NoTracepoint(places[0].clone()))?;
    Ok((id, filter))
}

fn open(tracepoint: u64, filter: &CStr, tid: i32) -> io::Result<Counter> {
    let mut builder = Builder::new(Tracepoint::with_id(tracepoint));
    // KVM is kernel: without it no hit would count.
    let mut counter = builder.observe_pid(tid).any_cpu().include_kernel().include_hv().build()?;
    // SAFETY: the descriptor is the counter's, and the kernel copies the text during the call.
    let status = unsafe { libc::ioctl(counter.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    counter.enable()?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = ProcRoot::below(dir.path());
        (dir, root)
    }

    const ID: (&str, &str) = ("sys/kernel/tracing/events/kvm/kvm_exit/id", "103\n");

    #[test]
    fn the_filter_is_the_processors() {
        let intel = ("sys/module/kvm_intel/parameters/ple_gap", "128\n");
        let amd = ("sys/module/kvm_amd/parameters/pause_filter_count", "3000\n");
        let in_debugfs = ("sys/kernel/debug/tracing/events/kvm/kvm_exit/id", "7\n");
        for (files, id, reason) in [
            ([intel, ID], 103, "isa == 1 && exit_reason == 40"),
            ([amd, in_debugfs], 7, "isa == 2 && exit_reason == 119"),
        ] {
            let (_dir, root) = tree(&files);
            let (found, filter) = found(&root).unwrap();
            assert_eq!((found, filter.to_str().unwrap()), (id, reason));
        }
    }

    #[test]
    fn none_seen_means_nothing_where_none_are_made() {
        let off = ("sys/module/kvm_intel/parameters/ple_gap", "0\n");
        let on = ("sys/module/kvm_intel/parameters/ple_gap", "128\n");
        for (files, word) in
            [(&[ID][..], "neither kvm_intel nor kvm_amd"), (&[off, ID], "is off"), (&[on], "no tracepoint")]
        {
            let (_dir, root) = tree(files);
            let refused = PauseExitCounters::new(&root).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }

    /// Every machine's tracefs, for as long as the test.
    struct Tracefs(tempfile::TempDir);

    impl Tracefs {
        fn mount() -> Option<Self> {
            let dir = tempfile::tempdir().unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tracefs", dir.path(), "tracefs", flags, None).ok()?;
            Some(Self(dir))
        }

        fn id(&self, event: &str) -> Option<u64> {
            let path: &Path = self.0.path();
            fs::read_to_string(path.join("events").join(event).join("id")).ok()?.trim().parse().ok()
        }
    }

    impl Drop for Tracefs {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }

    #[test]
    fn a_tracepoint_is_counted_for_one_thread_by_its_filter() {
        let Some(tracefs) = Tracefs::mount() else {
            gleaner_testing::skip!("needs root");
        };
        // No guest runs here: the scheduler's tracepoint stands in, and this test's own sleeps (state 1) for the exits.
        let switch = tracefs.id("sched/sched_switch").expect("every kernel has it");
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let (mut sleeps, mut none) = (
            open(switch, c"prev_state == 1", own).unwrap(),
            open(switch, c"prev_state == 1 && prev_pid == 0", own).unwrap(),
        );
        for _ in 0..20 {
            // Long enough that none is over before it has begun.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!((sleeps.read().unwrap(), none.read().unwrap()), (20, 0));
        assert!(open(switch, c"no_such_field == 1", own).is_err());
        // Where KVM is built in its tracepoint takes both filters, and counts nothing that is no exit.
        if let Some(exit) = tracefs.id("kvm/kvm_exit") {
            for (_, filter) in FILTERS {
                assert_eq!(open(exit, filter, own).unwrap().read().unwrap(), 0);
            }
        }
    }
}
