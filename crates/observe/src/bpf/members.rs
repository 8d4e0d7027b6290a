//! Who belongs to a group, as far as the kernel's side cannot know: threads that were there before.
//!
//! A thread that is entered hands its group on to what it starts. One that was started meanwhile by a thread not yet
//! entered is found by looking again, until a look finds nobody.

use super::load::{self, Loaded};
use super::skel::kernel_pid;
use super::skel::types::{cpu_state, thread_state};
use gleaner_bpf::bytemuck::{bytes_of, pod_read_unaligned};
use gleaner_model::VcpuId;
use gleaner_sys::{ProcRoot, children, children_of_all, numbered, schedstat, status_field, switches};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::offset_of;
use std::path::Path;

/// Looks for threads that were started meanwhile.
const MOST_LOOKS: u32 = 10;
/// As many as the kernel's side has room for.
const MOST_PROCESSES: usize = 16_384;
/// Threads that the kernel tells of at once.
const BATCH: u32 = 4_096;

/// What became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entered {
    /// Threads that belong to the group now.
    pub threads: u64,
    /// Threads for which there was no room.
    pub untracked: u64,
}

/// Enters all threads of the processes that `find` finds, of those that belong to no group.
pub(super) fn enter(programs: &Loaded, root: &ProcRoot, slot: u32, find: impl Fn() -> BTreeSet<i32>) -> Entered {
    let mut entered = Entered::default();
    let mut threads = BTreeSet::new();
    for _ in 0..MOST_LOOKS {
        let mut new = Vec::new();
        for pid in find() {
            let task = root.proc.join(format!("{pid}/task"));
            for tid in numbered(&task).filter(|tid| group_of(programs, *tid).is_none()) {
                match enter_thread(programs, &task.join(tid.to_string()), tid, slot) {
                    Some(true) => new.push((task.join(tid.to_string()), tid)),
                    Some(false) => {}
                    None => entered.untracked += 1,
                }
            }
        }
        if new.is_empty() {
            break;
        }
        entered.threads += new.len() as u64;
        threads.extend(new.iter().map(|(_, tid)| kernel_pid(*tid)));
        // Whoever ended before it was entered is taken out: nobody else would.
        let gone = new.iter().filter(|(task, _)| !task.exists());
        entered.threads -= gone.filter(|(_, tid)| take_out(programs, *tid)).count() as u64;
        if entered.untracked > 0 {
            break;
        }
    }
    // What runs there already counts from its next switch on.
    let runs_one = |cpu: &usize| threads.contains(&programs.cpus.read_field(*cpu, offset_of!(cpu_state, pid)));
    let vcpus = (0..programs.cpus.len()).filter(runs_one).filter_map(|cpu| u32::try_from(cpu).ok().map(VcpuId));
    load::visit(vcpus.collect::<Vec<_>>().into_iter());
    entered
}

/// Whether the thread is entered, or has gone or was entered meanwhile; `None` where there is no room.
fn enter_thread(programs: &Loaded, task: &Path, tid: i32, slot: u32) -> Option<bool> {
    let read = |name: &str| fs::read(task.join(name)).ok();
    let exec_ns = read("schedstat").and_then(|text| schedstat(&text).map(|(run_ns, ..)| run_ns));
    let nvcsw = read("status").and_then(|text| switches(&text).map(|(voluntary, _)| voluntary));
    let (Some(exec_ns), Some(nvcsw)) = (exec_ns, nvcsw) else { return Some(false) };
    let state = thread_state { exec_ns, nvcsw, group: slot, ..thread_state::default() };
    let key = kernel_pid(tid).to_ne_bytes();
    match programs.threads.update(&key, bytes_of(&state), MapFlags::NO_EXIST) {
        Ok(()) => Some(true),
        Err(_) => group_of(programs, tid).map(|_| false),
    }
}

fn take_out(programs: &Loaded, tid: i32) -> bool {
    programs.threads.delete(&kernel_pid(tid).to_ne_bytes()).is_ok()
}

/// The slot of the group that the thread belongs to.
fn group_of(programs: &Loaded, tid: i32) -> Option<u32> {
    group_in(&programs.threads.lookup(&kernel_pid(tid).to_ne_bytes(), MapFlags::ANY).ok().flatten()?)
}

fn group_in(value: &[u8]) -> Option<u32> {
    (value.len() == size_of::<thread_state>()).then(|| pod_read_unaligned::<thread_state>(value).group)
}

/// All threads of all groups alive now, ascending.
pub(super) fn threads(programs: &Loaded) -> Vec<i32> {
    let mut all: Vec<i32> = by_slot(programs).into_values().flatten().collect();
    all.sort_unstable();
    all
}

/// The same by the group's slot, each ascending: thousands at a time, because one by one takes two calls each.
pub(super) fn by_slot(programs: &Loaded) -> BTreeMap<u32, Vec<i32>> {
    let mut found: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    let all = programs.threads.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
    // Each bucket of the map comes once, so there is an end whoever comes and goes.
    for (key, value) in all.into_iter().flatten() {
        if let (Ok(key), Some(group)) = (key.try_into(), group_in(&value)) {
            found.entry(group).or_default().push(i32::from_ne_bytes(key));
        }
    }
    for threads in found.values_mut() {
        threads.sort_unstable();
    }
    found
}

/// Those of one group.
pub(super) fn threads_of(programs: &Loaded, slot: u32) -> Vec<i32> {
    by_slot(programs).remove(&slot).unwrap_or_default()
}

/// Takes out all threads of a group that the kernel's side gives no more to.
pub(super) fn take_out_all(programs: &Loaded, slot: u32) {
    for _ in 0..MOST_LOOKS {
        let left = threads_of(programs, slot);
        if left.is_empty() {
            return;
        }
        for tid in left {
            take_out(programs, tid);
        }
    }
}

/// Takes out the threads of a group whose processes are not among `members`; says how many.
pub(super) fn take_out_strangers(programs: &Loaded, root: &ProcRoot, slot: u32, members: &BTreeSet<i32>) -> u64 {
    let strange = |tid: &i32| process_of(root, *tid).is_none_or(|pid| !members.contains(&pid));
    let strangers = threads_of(programs, slot).into_iter().filter(strange);
    strangers.filter(|tid| take_out(programs, *tid)).count() as u64
}

fn process_of(root: &ProcRoot, tid: i32) -> Option<i32> {
    let status = fs::read(root.proc.join(format!("{tid}/status"))).ok()?;
    std::str::from_utf8(status_field(&status, b"Tgid")?).ok()?.parse().ok()
}

/// The processes that these threads are of.
pub(super) fn processes(root: &ProcRoot, tids: &[i32]) -> BTreeSet<i32> {
    tids.iter().filter_map(|tid| process_of(root, *tid)).collect()
}

/// `roots` and all below them, without those of `nobodys` and what is below those.
pub(super) fn tree(root: &ProcRoot, roots: &[i32], nobodys: &[i32]) -> BTreeSet<i32> {
    let by_parent =
        if root.proc.join("thread-self/children").exists() { None } else { Some(children_of_all(&root.proc)) };
    let mut found: BTreeSet<i32> = roots.iter().copied().filter(|pid| !nobodys.contains(pid)).collect();
    let mut pending: Vec<i32> = found.iter().copied().collect();
    while let Some(pid) = pending.pop() {
        let below = match &by_parent {
            Some(by_parent) => by_parent.get(&pid).cloned().unwrap_or_default(),
            None => children_of(&root.proc.join(format!("{pid}/task"))),
        };
        let new = |child: &i32| !nobodys.contains(child) && found.len() < MOST_PROCESSES && found.insert(*child);
        pending.extend(below.into_iter().filter(new));
    }
    found
}

fn children_of(task: &Path) -> Vec<i32> {
    let of = |tid: i32| fs::read(task.join(format!("{tid}/children"))).unwrap_or_default();
    numbered(task).flat_map(|tid| children(&of(tid)).collect::<Vec<_>>()).collect()
}
