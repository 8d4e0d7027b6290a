//! Processes and threads as the undo has to find them again: by id and start time, by ancestry, by a mark in their
//! environment.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Set in the environment of the managed program, so that its processes are found even when they have left its process tree.
pub const RUN_ID_VARIABLE: &str = "GLEANER_RUN_ID";

/// When a process (or thread) started, in clock ticks since boot; together with the pid it names one process for ever.
/// `None` when there is no such process.
pub fn process_start_time(pid: i32) -> Option<u64> {
    stat_field(&format!("/proc/{pid}/stat"), 22)
}

/// Whether the process of this pid and start time still does anything. A zombie does not: it was killed, and its parent may
/// take its time to reap it, or never do.
pub(crate) fn is_alive(pid: i32, start_time: u64) -> bool {
    let Some(fields) = stat_fields(&format!("/proc/{pid}/stat")) else { return false };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    // The state is field 3, the start time field 22.
    let started = fields.nth(22 - 4).and_then(|field| field.parse().ok());
    !matches!(state, Some("Z" | "X") | None) && started == Some(start_time)
}

/// Start time of thread `tid`, whichever process it belongs to.
pub(crate) fn thread_start_time(tid: i32) -> Option<u64> {
    stat_field(&format!("/proc/{tid}/task/{tid}/stat"), 22)
}

/// Field `number` (1-based, above 2) of a stat file.
fn stat_field(path: &str, number: usize) -> Option<u64> {
    stat_fields(path)?.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

/// The fields of a stat file from the third on. The second is a name that may hold anything, spaces and parentheses too, so
/// it ends at the last ')'.
fn stat_fields(path: &str) -> Option<String> {
    let line = fs::read(path).ok()?;
    String::from_utf8_lossy(&line).rsplit_once(')').map(|(_, rest)| rest.to_owned())
}

/// All pids there are.
fn pids() -> Vec<i32> {
    numbers_in(Path::new("/proc"))
}

fn numbers_in(folder: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The threads of `pid`, none when it is gone.
pub(crate) fn threads_of(pid: i32) -> Vec<i32> {
    numbers_in(Path::new(&format!("/proc/{pid}/task")))
}

/// The processes of a run: `root` (where it still lives) and what descends from it, and whoever carries the run's mark.
pub(crate) fn members(root: Option<i32>, run_id: &str) -> BTreeSet<i32> {
    let mark = format!("{RUN_ID_VARIABLE}={run_id}");
    let parents = parents();
    let descends = |pid: i32| root.is_some_and(|root| descends_from(pid, root, &parents));
    parents.keys().copied().filter(|pid| descends(*pid) || is_marked(*pid, &mark)).collect()
}

/// What descends from this process and started at `start_time` (clock ticks since boot) or later.
pub(crate) fn adopted_since(start_time: u64) -> BTreeSet<i32> {
    let (parents, own) = (parents(), rustix::process::getpid().as_raw_nonzero().get());
    let descends = |pid: i32| pid != own && descends_from(pid, own, &parents);
    let since = |pid: i32| process_start_time(pid).is_some_and(|started| started >= start_time);
    parents.keys().copied().filter(|pid| descends(*pid) && since(*pid)).collect()
}

/// Every process's parent.
fn parents() -> HashMap<i32, i32> {
    pids().into_iter().filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
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

fn parent_of(pid: i32) -> Option<i32> {
    stat_field(&format!("/proc/{pid}/stat"), 4).and_then(|parent| i32::try_from(parent).ok())
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
        assert_eq!(process_start_time(-1), None);
        assert!(threads_of(pid).contains(&pid));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start_time = process_start_time(pid).unwrap();
        assert!(is_alive(pid, start_time) && !is_alive(pid, start_time + 1));
        child.kill().unwrap();
        // Killed, and not reaped before the end.
        let noticed = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_alive(pid, start_time)
        });
        let still_there = process_start_time(pid) == Some(start_time);
        child.wait().unwrap();
        assert!(noticed && still_there);
    }

    #[test]
    fn adopted_are_those_that_came_after() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start_time = process_start_time(pid).unwrap();
        let found = [start_time, start_time + 1].map(|since| adopted_since(since).contains(&pid));
        let own = adopted_since(0).contains(&i32::try_from(std::process::id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, own), ([true, false], false));
    }

    #[test]
    fn members_are_descendants_and_whoever_is_marked() {
        let mut marked = std::process::Command::new("sleep").arg("30").env(RUN_ID_VARIABLE, "test-1").spawn().unwrap();
        let pid = i32::try_from(marked.id()).unwrap();
        // Between fork and exec the child still has this process's environment.
        let found = (0..200).any(|_| {
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
