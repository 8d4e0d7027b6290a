//! Undoing a journal, newest change first. Every undo may be repeated: it looks at what is there before it touches it.

mod path_bytes;
mod plausible;

use crate::affinity::{OwnChoice, affinity_of, allowed_cpus, give_back, is_what_is_left, set_affinity};
use crate::journal::{self, Journal, JournalState};
use crate::procs::{adopted_since, members, process_start_time, thread_start_time, threads_of};
use crate::{ActError, cgroup, resctrl};
use gleaner_model::{CpuSet, Nanos, XenSetting};
use gleaner_sys::{OwnProc, ProcRoot, own_proc};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Passes over a group whose threads may be creating others meanwhile.
const PASSES: usize = 20;
/// How long a cgroup may take to become empty after its last thread was killed.
const EMPTYING_TRIES: usize = 200;

/// How one change is undone. A journal line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Undo {
    /// Remove a cgroup; move who is in it to another first.
    RemoveCgroup {
        /// Its folder.
        #[serde(with = "path_bytes")]
        path: PathBuf,
        /// Where its members go; `None`: they are this program's own threads, and end with it.
        #[serde(with = "path_bytes::optional", default)]
        members_to: Option<PathBuf>,
    },
    /// Take a controller away from the children of a v2 cgroup again.
    DisableController {
        /// The parent's folder.
        #[serde(with = "path_bytes")]
        parent: PathBuf,
        /// `cpu` or `cpuset`.
        controller: String,
    },
    /// The group's threads may use `base` again.
    GroupAffinity {
        /// The managed program.
        root_pid: i32,
        /// Its start time, in clock ticks since boot.
        root_start_time: u64,
        /// What a thread that pinned nothing may use.
        base: String,
    },
    /// The group was, or is about to be, confined to `active`.
    AffinityStep {
        /// CPU list.
        active: String,
    },
    /// Threads of the program that have this timer slack get the one that they would have had.
    TimerSlack {
        /// The managed program; 0: it was about to start.
        root_pid: i32,
        /// Its start time, in clock ticks since boot.
        root_start_time: u64,
        /// What it would have inherited, in nanoseconds.
        had_ns: u64,
        /// What it was given, in nanoseconds.
        set_ns: u64,
    },
    /// Remove a resctrl group, of allocation or of monitoring; the kernel moves who is in it back.
    RemoveResctrlGroup {
        /// Its folder.
        #[serde(with = "path_bytes")]
        path: PathBuf,
    },
    /// Unmount resctrl, unless somebody has come to use it.
    UnmountResctrl {
        /// Where it is mounted.
        #[serde(with = "path_bytes")]
        path: PathBuf,
    },
    /// A thread that the program pinned itself.
    ThreadAffinity {
        /// Which thread.
        tid: i32,
        /// Its start time, in clock ticks since boot.
        start_time: u64,
        /// The program's choice.
        own: String,
    },
    /// A thread's time slice.
    Slice {
        /// Which thread.
        tid: i32,
        /// Its start time, in clock ticks since boot.
        start_time: u64,
        /// What it was, in nanoseconds; 0: the base slice.
        was_ns: u64,
        /// What it was given: put back only where that is still there.
        set_ns: u64,
    },
    /// A file of the kernel's that held one value.
    FileValue {
        /// Which file.
        #[serde(with = "path_bytes")]
        path: PathBuf,
        /// What it held.
        had: String,
        /// What it was given: put back only where that is still there.
        set: String,
    },
    /// Each vCPU's haltpoll limit begins at 0 again: it outlives the parameters that made it.
    ResetHaltpoll {
        /// Where `/sys` is.
        #[serde(with = "path_bytes")]
        sys: PathBuf,
    },
    /// Something of Xen's.
    Xen {
        /// Xen's tool.
        #[serde(with = "path_bytes")]
        xl: PathBuf,
        /// What it was.
        was: XenSetting,
        /// What it was set to.
        set: XenSetting,
    },
}

pub(crate) fn own_affinity(choice: &OwnChoice) -> Undo {
    let start_time = thread_start_time(choice.tid).unwrap_or(0);
    Undo::ThreadAffinity { tid: choice.tid, start_time, own: choice.own.to_string() }
}

/// What became of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Everything in it is undone, and it is removed.
    Undone {
        /// How many entries it had.
        entries: usize,
    },
    /// The run that wrote it is still going on.
    InUse {
        /// Its process.
        pid: i32,
    },
    /// Somebody else undid it first.
    Gone,
}

/// Undoes the journal at `path` unless its run goes on; with `own`, although it does (main undoing its own).
///
/// # Errors
/// The first thing that could not be undone; the rest is still tried, and the journal stays for another try.
pub fn undo_journal(path: &Path, own: bool) -> Result<UndoOutcome, ActError> {
    let root = ProcRoot::default();
    if own_proc(&root) == OwnProc::Foreign {
        let why = format!("{} is another PID namespace's, so nobody could be found", root.proc.display());
        return Err(ActError::Unavailable { what: "an undo".into(), why });
    }
    let Some(_lock) = journal::lock(path)? else { return Ok(UndoOutcome::Gone) };
    let state = journal::read(path)?;
    if let Some(pid) = state.alive.filter(|_| !own) {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_all(&state, own)?;
    let _folder = journal::lock_folder_of(path);
    undo_shared(&state, own)?;
    journal::remove(path)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal at `path` once its run is over, also when somebody has removed that name meanwhile: `held` is the
/// same file.
///
/// # Errors
/// As [`undo_journal`].
pub fn undo_held(path: &Path, held: Option<&File>) -> Result<UndoOutcome, ActError> {
    let outcome = undo_journal(path, false)?;
    let is_lost = |held: &&File| outcome == UndoOutcome::Gone && !journal::was_undone(held);
    let Some(held) = held.filter(is_lost) else { return Ok(outcome) };
    let state = journal::read_open(path, held)?;
    if let Some(pid) = state.alive {
        return Ok(UndoOutcome::InUse { pid });
    }
    undo_all(&state, false)?;
    undo_shared(&state, false)?;
    Ok(UndoOutcome::Undone { entries: state.undos.len() })
}

/// Undoes the journal of this process's own run, also when somebody has removed its file meanwhile.
///
/// # Errors
/// As [`undo_journal`].
pub fn undo_own(journal: &Journal) -> Result<UndoOutcome, ActError> {
    match undo_journal(journal.path(), true)? {
        UndoOutcome::Gone => {
            let state = journal::read_open(journal.path(), journal.file())?;
            undo_all(&state, true)?;
            undo_shared(&state, true)?;
            journal.is_undone();
            Ok(UndoOutcome::Undone { entries: state.undos.len() })
        }
        outcome => Ok(outcome),
    }
}

/// Gives files of the kernel's the values that they had, for as long as the run that set them is silent. Its journal
/// stays, and all else. `held` as for [`undo_held`].
///
/// # Errors
/// The first that could not be given back; the others are.
pub fn take_values_back(path: &Path, held: Option<&File>) -> Result<(), ActError> {
    let state = match (journal::read(path), held) {
        (Err(error), Some(held)) if error.is_gone() => journal::read_open(path, held)?,
        (state, _) => state?,
    };
    first_error(&state, false, |undo| match undo {
        Undo::FileValue { path, had, set } => crate::retain::restore_value(path, had, set),
        Undo::ResetHaltpoll { sys } => crate::retain::reset_limits(sys),
        _ => Ok(()),
    })
}

/// Whether the journal at `path` is that of a run that is over without having been undone. A journal that cannot be
/// read counts.
pub fn is_abandoned(path: &Path) -> bool {
    journal::read(path).map_or(true, |state| state.alive.is_none())
}

/// All but what runs share: controllers, mounts.
fn undo_all(state: &JournalState, own: bool) -> Result<(), ActError> {
    first_error(state, own, |undo| match undo {
        Undo::RemoveCgroup { path, members_to } => remove_cgroup(path, members_to.as_deref()),
        Undo::GroupAffinity { root_pid, root_start_time, base } => {
            restore_affinities(state, own, *root_pid, *root_start_time, base)
        }
        Undo::TimerSlack { root_pid, root_start_time, had_ns, set_ns } => {
            restore_timer_slack(state, own, (*root_pid, *root_start_time), (Nanos(*had_ns), Nanos(*set_ns)))
        }
        // Another namespace's thread: its id and start time name somebody else here.
        Undo::Slice { .. } if state.foreign => Ok(()),
        Undo::Slice { tid, start_time, was_ns, set_ns } => {
            crate::slice::restore_slice(*tid, *start_time, Nanos(*was_ns), &[Nanos(*set_ns)])
        }
        Undo::RemoveResctrlGroup { path } => resctrl::remove_group(path),
        Undo::FileValue { path, had, set } => crate::retain::restore_value(path, had, set),
        Undo::ResetHaltpoll { sys } => crate::retain::reset_limits(sys),
        Undo::Xen { xl, was, set } => crate::xen::undo_xen(xl, was, set),
        // Controllers and mounts come later, and the affinities are read by GroupAffinity, which is older than both.
        Undo::DisableController { .. }
        | Undo::UnmountResctrl { .. }
        | Undo::AffinityStep { .. }
        | Undo::ThreadAffinity { .. } => Ok(()),
    })
}

/// Takes away the controllers and mounts that no other run needs. Under the folder's lock until the journal is removed:
/// of two runs that end together each would see the other's journal, and neither take anything away.
fn undo_shared(state: &JournalState, own: bool) -> Result<(), ActError> {
    first_error(state, own, |undo| match undo {
        Undo::DisableController { parent, controller } if !journal::others_have(&state.path, undo) => {
            disable_controller(parent, controller)
        }
        Undo::UnmountResctrl { path } if !journal::others_have(&state.path, undo) => resctrl::unmount(path),
        _ => Ok(()),
    })
}

/// Undoes one after the other, newest first; a failure does not keep the others from being tried. All failures are one
/// error, which says how much was undone. `own`: this process has written them itself.
fn first_error(
    state: &JournalState,
    own: bool,
    mut undo: impl FnMut(&Undo) -> Result<(), ActError>,
) -> Result<(), ActError> {
    let checked = |entry: &Undo| if own { Ok(()) } else { plausible::check(entry) };
    let tried = state.undos.iter().rev().map(|entry| checked(entry).and_then(|()| undo(entry)));
    let failed: Vec<ActError> = tried.filter_map(Result::err).inspect(|error| tracing::warn!("{error}")).collect();
    let failures = failed.len();
    failed.into_iter().next().map_or(Ok(()), |first| {
        let hint =
            if first.is_refused() { "; root of the machine itself, with all capabilities, can undo it" } else { "" };
        let (undone, of) = (state.undos.len() - failures, state.undos.len());
        Err(ActError::NotAll { first: Box::new(first), undone, of, hint })
    })
}

fn disable_controller(parent: &Path, controller: &str) -> Result<(), ActError> {
    let control = parent.join("cgroup.subtree_control");
    // The change was never made: whoever was refused it (a user without privilege) would be refused its undo as well.
    if cgroup::read(&control).is_ok_and(|now| !now.split_whitespace().any(|name| name == controller)) {
        return Ok(());
    }
    match cgroup::write(&control, &format!("-{controller}")) {
        // The cgroup is gone, or another user of the machine has come to rely on the controller: not ours any more.
        Err(ActError::File { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn remove_cgroup(path: &Path, members_to: Option<&Path>) -> Result<(), ActError> {
    if !path.exists() {
        // Never made. A read-only file system would refuse even to remove what is not there.
        return Ok(());
    }
    let offline = fs::read_to_string(ProcRoot::default().sys.join("devices/system/cpu/offline")).unwrap_or_default();
    if let Some(parent) = members_to.filter(|_| !offline.trim().is_empty()) {
        tell_apart(path, parent);
    }
    if members_to.is_none() {
        hasten_the_end(path);
    }
    for _ in 0..EMPTYING_TRIES {
        if let Some(parent) = members_to {
            evict(path, parent);
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // Not empty yet: a process forked while we moved it, or a killed thread is still on its way out.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => sleep(Duration::from_millis(10)),
            Err(error) => return Err(ActError::file("remove", path)(error)),
        }
    }
    fs::remove_dir(path).map_err(ActError::file("remove", path))
}

/// Lifts the yielding threads' cgroup out of the idle class. A killed thread dies on a CPU: below everybody else, on a
/// machine whose CPUs are all taken, it would get none for seconds, and the cgroup would stay.
fn hasten_the_end(path: &Path) {
    // Without the file (a kernel before 5.15) there is no such group; if the write fails, the removal says so.
    let _ = cgroup::write(&path.join("cpu.idle"), "0");
}

/// Makes the v2 cpuset at `path` differ from its parent's. Without a difference the kernel leaves the masks of those
/// that move as they are, which is without the vCPUs that are offline, for good; with one they get all that the parent
/// could have.
fn tell_apart(path: &Path, parent: &Path) {
    let effective = |folder: &Path| cgroup::read(&folder.join("cpuset.cpus.effective")).ok();
    let Some(cpus) = effective(path).filter(|cpus| effective(parent).as_ref() == Some(cpus)) else { return };
    let cpus = cpus.parse::<CpuSet>().unwrap_or_default();
    if let Some(one) = cpus.iter().next().filter(|_| cpus.len() > 1) {
        let one: CpuSet = std::iter::once(one).collect();
        // Nothing worse than before if it fails.
        let _ = cgroup::write(&path.join("cpuset.cpus"), &one.to_string());
    }
}

/// Moves every process of a cgroup and of the cgroups below it to `parent`, and removes those below.
fn evict(path: &Path, parent: &Path) {
    let below = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for child in below.filter(|child| child.is_dir()) {
        evict(&child, parent);
        // If it fails, the removal of its parent says so.
        let _ = fs::remove_dir(&child);
    }
    let target = parent.join("cgroup.procs");
    for pid in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
        // It may end between the reading and the moving.
        let _ = cgroup::write(&target, pid);
    }
}

/// With `own`, this process's descendants since the program began are the program's as well: it is their subreaper, so
/// whoever outlived the program became its child.
fn restore_affinities(
    state: &JournalState,
    own_run: bool,
    root_pid: i32,
    root_start: u64,
    base: &str,
) -> Result<(), ActError> {
    let parse = |list: &str| {
        list.parse::<CpuSet>().map_err(|error| ActError::Unavailable {
            what: format!("the CPU list {list:?} in {}", state.path.display()),
            why: format!("{error}; the threads were not given back their CPUs, and what else could be undone was"),
        })
    };
    let mut had = Had { base: parse(base)?, ..Had::default() };
    for undo in &state.undos {
        match undo {
            Undo::AffinityStep { active } => had.steps.push(parse(active)?),
            Undo::ThreadAffinity { tid, start_time, own: choice } => {
                let choice = parse(choice)?;
                had.others.push(choice.clone());
                // Another namespace's thread is nobody here.
                if !state.foreign {
                    had.own.insert((*tid, *start_time), choice);
                }
            }
            _ => {}
        }
    }
    // A pid that was given to another process since is not the program's.
    let root = Some(root_pid).filter(|pid| !state.foreign && process_start_time(*pid) == Some(root_start));
    had.others.sort();
    had.others.dedup();
    // A container's list (lxcfs) may have other numbers than the kernel: then it says nothing of these.
    if let Some(online) = online().filter(|online| allowed_cpus().is_subset(online)) {
        had.offline = had.base.difference(&online);
    }
    // Threads born while we look inherit what we have not yet widened: look until nothing is left to do.
    for _ in 0..PASSES {
        let mut pids = members(root, &state.run_id);
        if own_run {
            pids.extend(adopted_since(root_start));
        }
        let widened = pids.into_iter().flat_map(threads_of).filter(|tid| had.widen(*tid)).count();
        if widened == 0 {
            break;
        }
    }
    Ok(())
}

/// As the affinities are: whoever is born meanwhile inherits it, so it is looked until nobody has it.
fn restore_timer_slack(
    state: &JournalState,
    own_run: bool,
    (root_pid, root_start): (i32, u64),
    (had, set): (Nanos, Nanos),
) -> Result<(), ActError> {
    let root = Some(root_pid).filter(|pid| !state.foreign && process_start_time(*pid) == Some(root_start));
    for _ in 0..PASSES {
        let mut pids = members(root, &state.run_id);
        if own_run && root_pid != 0 {
            pids.extend(adopted_since(root_start));
        }
        if crate::timer_slack::restore(pids, had, set)? == 0 {
            break;
        }
    }
    Ok(())
}

/// What the journal knows of a group's masks.
#[derive(Default)]
struct Had {
    base: CpuSet,
    /// Own choices of threads, known by id and start time.
    own: HashMap<(i32, u64), CpuSet>,
    /// The different ones among them.
    others: Vec<CpuSet>,
    steps: Vec<CpuSet>,
    offline: CpuSet,
}

impl Had {
    /// Gives one thread back what it had; whether that changed what it may use now.
    fn widen(&self, tid: i32) -> bool {
        let Some(current) = affinity_of(tid) else { return false };
        let choice = thread_start_time(tid).and_then(|start| self.own.get(&(tid, start)));
        let wanted = give_back(&current, choice, &self.base, &self.others, &self.steps, &self.offline);
        wanted.is_some_and(|wanted| set_affinity(tid, &wanted) && !is_what_is_left(&current, &wanted, &self.offline))
    }
}

/// The online vCPUs; `None` where the kernel does not say.
fn online() -> Option<CpuSet> {
    gleaner_sys::online_cpus(&ProcRoot::default()).ok()
}

#[cfg(test)]
mod tests;
