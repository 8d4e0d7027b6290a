//! Processes and threads as the undo has to find them again: by id and start time, by ancestry, by a mark in their
//! environment.

use gleaner_sys::{Stat, children, numbered, parents};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Set in the environment of the managed program, so that its processes are found even when they have left its process
/// tree.
pub const RUN_ID_VARIABLE: &str = "GLEANER_RUN_ID";

/// So often lists of children are read until two say the same.
const LISTS_READ: u32 = 5;

/// When a process (or thread) started, in clock ticks since boot; together with the pid it names one process for ever,
/// in one PID and one time namespace. `None` when there is no such process.
pub fn process_start_time(pid: i32) -> Option<u64> {
    of_stat(&format!("/proc/{pid}/stat"), |stat| stat.start_time())
}

/// The same of this process, whosever `/proc` it is.
pub fn own_start_time() -> Option<u64> {
    of_stat("/proc/self/stat", |stat| stat.start_time())
}

/// Whether the process of this pid and start time still does anything. A zombie does not; but the first thread of a
/// killed process may be one while another is still in a call.
pub(crate) fn is_alive(pid: i32, start_time: u64) -> bool {
    let lives = |path: &str| {
        let found = of_stat(path, |stat| Some((stat.state()?, stat.start_time()?)));
        found.map(|(state, started)| (!matches!(state, b'Z' | b'X'), started))
    };
    let Some((alive, started)) = lives(&format!("/proc/{pid}/stat")) else { return false };
    let others = || threads_of(pid).into_iter().filter(|tid| *tid != pid);
    let another_lives = |tid| lives(&format!("/proc/{pid}/task/{tid}/stat")).is_some_and(|(alive, _)| alive);
    started == start_time && (alive || others().any(another_lives))
}

/// Start time of thread `tid`, whichever process it belongs to.
pub(crate) fn thread_start_time(tid: i32) -> Option<u64> {
    of_stat(&format!("/proc/{tid}/task/{tid}/stat"), |stat| stat.start_time())
}

fn of_stat<T>(path: &str, field: impl FnOnce(Stat<'_>) -> Option<T>) -> Option<T> {
    field(Stat::parse(&fs::read(path).ok()?)?)
}

/// The threads of `pid`, none when it is gone.
pub(crate) fn threads_of(pid: i32) -> Vec<i32> {
    numbered(Path::new(&format!("/proc/{pid}/task"))).collect()
}

/// The processes of a run: `root` (where it still lives) and what descends from it, and whoever carries the run's mark.
pub(crate) fn members(root: Option<i32>, run_id: &str) -> BTreeSet<i32> {
    let mark = format!("{RUN_ID_VARIABLE}={run_id}");
    let parents = parents_of_all();
    let descends = |pid: i32| root.is_some_and(|root| descends_from(pid, root, &parents));
    parents.keys().copied().filter(|pid| descends(*pid) || is_marked(*pid, &mark)).collect()
}

/// What descends from this process, by the kernel's lists of children; `None`: it keeps none, or they do not stand
/// still.
pub(crate) fn own_descendants() -> Option<BTreeSet<i32>> {
    // A list that is read while a child ends may leave others out.
    let mut before = descendants_now()?;
    for _ in 0..LISTS_READ {
        let now = descendants_now()?;
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

fn descendants_now() -> Option<BTreeSet<i32>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let lists = format!("/proc/{own}/task/{own}/children");
    Path::new(&lists).try_exists().ok().filter(|exists| *exists)?;
    let (mut found, mut next) = (BTreeSet::new(), vec![own]);
    while let Some(pid) = next.pop() {
        for tid in threads_of(pid) {
            let list = fs::read(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
            next.extend(children(&list).filter(|child| found.insert(*child)));
        }
    }
    Some(found)
}

/// What descends from this process and started at `start_time` (clock ticks since boot) or later.
pub(crate) fn adopted_since(start_time: u64) -> BTreeSet<i32> {
    let (parents, own) = (parents_of_all(), rustix::process::getpid().as_raw_nonzero().get());
    let descends = |pid: i32| pid != own && descends_from(pid, own, &parents);
    let since = |pid: i32| process_start_time(pid).is_some_and(|started| started >= start_time);
    parents.keys().copied().filter(|pid| descends(*pid) && since(*pid)).collect()
}

fn parents_of_all() -> HashMap<i32, i32> {
    parents(Path::new("/proc")).collect()
}

fn descends_from(pid: i32, root: i32, parents: &HashMap<i32, i32>) -> bool {
    let mut ancestor = pid;
    // A limit: a chain of parents cannot be longer than the number of processes.
    for _ in 0..=parents.len() {
        if ancestor == root {
            return true;
        }
        match parents.get(&ancestor) {
            Some(parent) => ancestor = *parent,
            None => return false,
        }
    }
    false
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_time_and_a_missing_one_has_none() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(process_start_time(pid).is_some());
        assert_eq!(thread_start_time(pid), process_start_time(pid));
        assert_eq!(own_start_time(), process_start_time(pid));
        assert_eq!(process_start_time(-1), None);
        assert!(threads_of(pid).contains(&pid));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start_time = process_start_time(pid).unwrap();
        assert!(is_alive(pid, start_time) && !is_alive(pid, start_time + 1));
        child.kill().unwrap();
        // Killed, and not reaped before the end.
        let noticed = (0..6_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_alive(pid, start_time)
        });
        let still_there = process_start_time(pid) == Some(start_time);
        child.wait().unwrap();
        assert!(noticed && still_there);
    }

    extern "C" fn wait_for_ever(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: no memory is passed.
            unsafe { libc::pause() };
        }
    }

    /// A process whose first thread has ended while another goes on.
    fn without_its_first_thread() -> i32 {
        const STACK: usize = 64 * 1024;
        // SAFETY: the stack is mapped before the fork, and nobody else's in the child, which allocates nothing.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let stack = libc::mmap(std::ptr::null_mut(), STACK, access, kind, -1, 0);
            assert_ne!(stack, libc::MAP_FAILED);
            let pid = libc::fork();
            if pid == 0 {
                let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
                let flags = shared | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
                libc::clone(wait_for_ever, stack.add(STACK), flags, std::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
            libc::munmap(stack, STACK);
            pid
        }
    }

    #[test]
    fn a_process_is_alive_as_long_as_a_thread_of_it_is() {
        let pid = without_its_first_thread();
        let becomes = |alive: bool, zombie: bool| {
            (0..6_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                let state = of_stat(&format!("/proc/{pid}/stat"), |stat| stat.state());
                let start_time = process_start_time(pid).unwrap();
                is_alive(pid, start_time) == alive && (state == Some(b'Z')) == zombie
            })
        };
        let first_is_gone = becomes(true, true);
        // SAFETY: the process is this one's child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let all_are_gone = becomes(false, true);
        // SAFETY: as above; the status is not wanted.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert!(first_is_gone && all_are_gone, "{first_is_gone} {all_are_gone}");
    }

    #[test]
    fn adopted_are_those_that_came_after() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start_time = process_start_time(pid).unwrap();
        let found = [start_time, start_time + 1].map(|since| adopted_since(since).contains(&pid));
        let own = adopted_since(0).contains(&i32::try_from(std::process::id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, own), ([true, false], false));
    }

    #[test]
    fn own_descendants_are_found_by_lists_of_children_where_the_kernel_keeps_them() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let shell = i32::try_from(child.id()).unwrap();
        // Other tests of this process may start and end children meanwhile.
        let found = (0..12_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let all = own_descendants()?;
            let below = all.iter().copied().find(|pid| parents_of_all().get(pid) == Some(&shell));
            Some((all.contains(&shell), below?))
        });
        let kept = Path::new("/proc/self/task").join(std::process::id().to_string()).join("children").exists();
        let _ = found.map(|(_, pid)| unsafe { libc::kill(pid, libc::SIGKILL) });
        child.wait().unwrap();
        assert_eq!(found.map(|(has_shell, _)| has_shell), kept.then_some(true));
    }

    #[test]
    fn members_are_descendants_and_whoever_is_marked() {
        let mut marked = std::process::Command::new("sleep").arg("600").env(RUN_ID_VARIABLE, "test-1").spawn().unwrap();
        let pid = i32::try_from(marked.id()).unwrap();
        // Between fork and exec the child still has this process's environment.
        let found = (0..6_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            members(None, "test-1").contains(&pid)
        });
        let by_descent = members(i32::try_from(std::process::id()).ok(), "other").contains(&pid);
        let by_neither = members(Some(pid + 1_000_000), "other").contains(&pid);
        marked.kill().unwrap();
        marked.wait().unwrap();
        assert!(found && by_descent && !by_neither);
    }
}
