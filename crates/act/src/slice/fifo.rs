//! SCHED_FIFO for the calling thread, and what to do where that is refused.
//!
//! EPERM has two causes, and the kernel does not say which: the thread may not (no CAP_SYS_NICE), or its cgroup has no
//! real-time budget (CONFIG_RT_GROUP_SCHED). With cgroup v1 the thread alone goes to the root cgroup of the cpu
//! controller, which has one. With v2 only whole processes move there, and that is left to whoever starts Gleaner.

use crate::cgroup::{self, Hierarchy, cpu_controller};
use crate::{ActError, CgroupRoots, Fallback};
use gleaner_sys::why_refused;
use rustix::thread::{CapabilitySet, capabilities, gettid};
use std::io;

/// SCHED_FIFO at the lowest priority, for the calling thread.
pub(super) fn enter_fifo() -> Result<Option<Fallback>, ActError> {
    let may = || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    enter(set_fifo, may, &CgroupRoots::default())
}

/// Whether a ticker gets its class here, and what had to be done for it: tried on a thread that ends at once.
///
/// # Errors
/// Why not, and what would help.
pub fn try_fifo() -> Result<Option<Fallback>, ActError> {
    let untried = |why| ActError::Unavailable { what: "SCHED_FIFO".into(), why };
    let thread = std::thread::Builder::new().spawn(enter_fifo);
    let thread = thread.map_err(|error| untried(format!("no thread to try it on: {}", why_refused(&error))))?;
    thread.join().unwrap_or_else(|_| Err(untried("the thread that tried it died".into())))
}

/// By what `set` answers, and whether the thread `may` where its cgroup lets it.
fn enter(
    mut set: impl FnMut() -> io::Result<()>,
    may: impl FnOnce() -> bool,
    roots: &CgroupRoots,
) -> Result<Option<Fallback>, ActError> {
    let Err(refused) = set() else { return Ok(None) };
    // Who may not has no use for another cgroup, and is not to be sent looking for one.
    if refused.raw_os_error() != Some(libc::EPERM) || !may() {
        return Err(no_fifo(&refused, "; run as root, or with CAP_SYS_NICE"));
    }
    match cpu_controller(roots).filter(|cpu| !cpu.own_is_root()) {
        Some(group) if !group.v2 => in_root_group(set, &group).map(Some),
        Some(_) => Err(no_fifo(
            &refused,
            "; if this kernel has CONFIG_RT_GROUP_SCHED (`gleaner host probe` tells), start gleaner in the root cgroup: \
             sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs; exec gleaner ...'",
        )),
        None => Err(no_fifo(
            &refused,
            "; this thread has CAP_SYS_NICE, so something else forbids it: the rules of a container or of a service \
             (systemd's RestrictRealtime=); start gleaner outside of it",
        )),
    }
}

fn in_root_group(mut set: impl FnMut() -> io::Result<()>, group: &Hierarchy) -> Result<Fallback, ActError> {
    cgroup::write(&group.mount.join("tasks"), &gettid().as_raw_nonzero().to_string())?;
    set().map_err(|error| no_fifo(&error, ", in the root cpu cgroup too"))?;
    Ok(Fallback {
        wanted: "tickers in this process's cpu cgroup",
        used: "tickers in the root cpu cgroup",
        why: format!("{} has no real-time budget (cpu.rt_runtime_us)", group.own.display()),
    })
}

fn set_fifo() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: pid 0 is the calling thread; the parameter outlives the call.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn no_fifo(error: &io::Error, advice: &str) -> ActError {
    ActError::Unavailable { what: "SCHED_FIFO, which a ticker needs,".into(), why: format!("{error}{advice}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::fs;
    use std::path::Path;

    /// A machine whose cpu controller is in `DIR/cg`, and Gleaner in its cgroup `own`.
    fn machine(dir: &Path, v2: bool, own: &str) -> CgroupRoots {
        let roots = CgroupRoots { mountinfo: dir.join("mountinfo"), own: dir.join("own"), member: None };
        let mount = dir.join("cg");
        fs::create_dir(&mount).unwrap();
        fs::write(mount.join("tasks"), "").unwrap();
        fs::write(mount.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let (kind, options, line) = if v2 { ("cgroup2", "rw", "0:") } else { ("cgroup", "rw,cpu", "1:cpu") };
        fs::write(&roots.mountinfo, format!("30 25 0:26 / {} rw - {kind} cgroup {options}\n", mount.display()))
            .unwrap();
        fs::write(&roots.own, format!("{line}:{own}\n")).unwrap();
        roots
    }

    /// A kernel that answers so, and nothing more after that.
    fn kernel(answers: &[Option<i32>]) -> impl FnMut() -> io::Result<()> {
        let mut left: VecDeque<_> = answers.iter().copied().collect();
        move || {
            left.pop_front().expect("asked once more").map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        }
    }

    const EPERM: Option<i32> = Some(libc::EPERM);
    const TAKEN: Option<i32> = None;

    #[test]
    fn a_thread_that_gets_its_class_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), false, "/vms");
        assert_eq!(enter(kernel(&[TAKEN]), || panic!("nobody needs to know"), &roots).unwrap(), None);
        assert_eq!(fs::read_to_string(dir.path().join("cg/tasks")).unwrap(), "");
    }

    #[test]
    fn on_v1_the_thread_alone_goes_to_the_root_cgroup_and_that_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), false, "/vms");
        let fallback = enter(kernel(&[EPERM, TAKEN]), || true, &roots).unwrap().unwrap().to_string();
        assert!(fallback.contains("root cpu cgroup") && fallback.contains("cg/vms has no"), "{fallback}");
        let moved = fs::read_to_string(dir.path().join("cg/tasks")).unwrap();
        assert_eq!(moved, gettid().as_raw_nonzero().to_string());
    }

    #[test]
    fn what_is_refused_says_what_would_help() {
        let (v1, v2) = (false, true);
        let advice =
            ["run as root, or with CAP_SYS_NICE", "start gleaner in the root cgroup", "something else forbids it"];
        for (answers, may, version, own, words) in [
            // Without the privilege no cgroup helps, whichever it is.
            (&[EPERM][..], false, v1, "/vms", advice[0]),
            (&[EPERM], false, v2, "/vms", advice[0]),
            (&[EPERM], false, v2, "/", advice[0]),
            // With it, it may be the cgroup.
            (&[EPERM], true, v2, "/vms", advice[1]),
            (&[EPERM, EPERM], true, v1, "/vms", "in the root cpu cgroup too"),
            // Or neither.
            (&[EPERM], true, v1, "/", advice[2]),
            (&[EPERM], true, v2, "/", advice[2]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let roots = machine(dir.path(), version, own);
            let error = enter(kernel(answers), || may, &roots).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
            let others = advice.iter().filter(|other| **other != words);
            others.for_each(|other| assert!(!error.contains(other), "{other}: {error}"));
            let moved = !fs::read_to_string(dir.path().join("cg/tasks")).unwrap().is_empty();
            assert_eq!(moved, answers.len() > 1, "{answers:?} {may} {own}");
        }
    }

    #[test]
    fn a_root_cgroup_that_takes_no_thread_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), false, "/vms");
        fs::remove_file(dir.path().join("cg/tasks")).unwrap();
        let error = enter(kernel(&[EPERM]), || true, &roots).unwrap_err().to_string();
        assert!(error.contains("cg/tasks"), "{error}");
    }
}
